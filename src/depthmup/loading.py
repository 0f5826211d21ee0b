"""``depthmup.load``: the report of a folder, without training anything."""

from pathlib import Path
from typing import TYPE_CHECKING

from depthmup.report import Report, load_report
from depthmup.sweep import MAIN_STORE, StoreError, snapshot

if TYPE_CHECKING:
    from depthmup.fitting import FitReport


def load(folder: str | Path) -> "Report | FitReport":
    """The report of a folder that ``depthmup.transfer`` or ``depthmup.fit`` has written.

    Args:
        folder: the ``out`` of the measurement, or its store (``results.sqlite``).

    Returns:
        The report of the measurement that was stored last there, or of the fitted table. Rows that
        a fit left out are in its excluded.csv, and are not part of it here.

    Raises:
        StoreError: there is no such folder, nothing of the two kinds in it, a fit.json that is
            none, or runs are missing.

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
            return load_report(opened)
    fitted = path / "fit.json"
    if fitted.is_file():
        from depthmup.fitting import FitReport
        from depthmup.records import Fit
        from depthmup.records.printable import printable

        try:
            record = Fit.from_json(fitted.read_text(encoding="utf-8"))
            report = FitReport(record=record, excluded=(), cells={})
            # Each value may be of its type and all of them contradict each other: optima without
            # sizes, rows of another group. The table needs everything, and is kept.
            _ = report.table
        # A text that is no UTF-8 is a ValueError too.
        except (ArithmeticError, LookupError, ValueError) as error:
            said = printable(str(error)[:500])
            raise StoreError(f"{fitted} cannot be read as a fit: {said}") from error
        return report
    raise StoreError(
        f"Expected a folder of `depthmup transfer` or `depthmup fit`, with {MAIN_STORE} or "
        f"fit.json in it; {path} has neither."
    )
