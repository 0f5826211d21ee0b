"""Writing files in one step: a reader never sees half of one, and a failure leaves nothing."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHART_FORMATS = (".html", ".svg", ".pdf", ".png")


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A new empty file beside ``path``, which replaces it at the end, or is removed on an error.

    Its name is random and it is opened exclusively: where others can write in the folder too, a
    link that they have planted under its name is not followed. It keeps the suffix.
    """
    draft = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    try:
        os.close(os.open(draft, flags, 0o666))
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        yield draft
        draft.replace(path)
    except BaseException as error:  # a full disk, Ctrl-C
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step. What UTF-8 does not have, such as bytes of a path, is escaped.

    Args:
        path: of the file.
        text: its new content.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_text(Path(folder, "note.txt"), "finished")
        ...     Path(folder, "note.txt").read_text()
        'finished'
    """
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file in one step.

    Args:
        path: of the file.
        content: its new content.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_bytes(Path(folder, "chart.png"), b"PNG")
        ...     Path(folder, "chart.png").read_bytes()
        b'PNG'
    """
    with draft_of(path) as draft:
        draft.write_bytes(content)


def save_chart(chart: Any, path: Path, *, points: bool = False) -> None:
    """Write one chart; the file's suffix says how. HTML is self-contained and opens offline;
    titles and data are escaped.

    Args:
        chart: of Altair.
        path: ends in .html, .svg, .pdf or .png.
        points: whether its units are points, as a PDF has them: an SVG says so, and a PNG has four
            dots for each.

    Raises:
        ValueError: another suffix.

    Example:
        >>> from depthmup.reports import drift, example_study
        >>> save_chart(drift(example_study()), Path("drift.svg"))  # doctest: +SKIP
        >>> save_chart(drift(example_study()), Path("drift.gif"))
        Traceback (most recent call last):
        ValueError: Expected a chart file to end in .html, .svg, .pdf, .png; got 'drift.gif'.
    """
    kind = path.suffix.lower()
    if kind not in CHART_FORMATS:
        raise ValueError(
            f"Expected a chart file to end in {', '.join(CHART_FORMATS)}; got {path.name!r}."
        )
    if kind == ".html":
        from depthmup.reports.page import Page, Plot, Section

        plot = Plot(chart=chart, name="chart", fixed=True)
        write_text(
            path, Page(title=path.stem, headline="", sections=[Section(plots=[plot])]).html()
        )
        return
    with draft_of(path) as draft:
        scale = (4 if points else 2) if kind == ".png" else 1
        chart.save(str(draft), format=kind[1:], scale_factor=scale)
        if points and kind == ".svg":
            sized = r'(<svg[^>]*?) width="([\d.]+)" height="([\d.]+)"'
            picture = draft.read_text(encoding="utf-8")
            draft.write_text(
                re.sub(sized, r'\1 width="\2pt" height="\3pt"', picture, count=1), "utf-8"
            )
