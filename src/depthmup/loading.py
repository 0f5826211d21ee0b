"""``depthmup.load``: the report of a folder, without training anything."""

from pathlib import Path

from depthmup.report import JSON, Report, load_report, read_report
from depthmup.sweep import MAIN_STORE, StoreError, snapshot


def load(folder: str | Path) -> Report:
    """The report of a folder that ``depthmup.transfer`` or ``depthmup.fit`` has written.

    Args:
        folder: the ``out`` of the measurement, or its store (``results.sqlite``).

    Returns:
        The report of the measurement that was stored last there, or of the fitted table. Rows that
        a fit left out are in its excluded.csv, and are not part of it here. A search that asks for
        further runs is reported as far as it went, with a note.

    Raises:
        StoreError: there is no such folder, nothing of the two kinds in it, a summary.json
            that is none, or runs are missing.

    Example:
        >>> report = depthmup.load("runs/demo")  # doctest: +SKIP
        >>> report.figure("transfer").save("transfer.pdf")  # doctest: +SKIP
    """
    path = Path(folder)
    store = path if path.suffix == ".sqlite" else path / MAIN_STORE
    if store.is_file():
        with snapshot(store) as opened:
            last = opened.sessions()[-1:]
            if any("claims" in session for session in last):
                raise StoreError(
                    f"{store} holds claims of the paper, of which there is a page and no report: "
                    f"`depthmup report {path}`."
                )
            return load_report(opened, partial=True)
    return read_report(path / JSON)
