"""Charts as files: pages, vectors and pixels."""

import re
from pathlib import Path
from typing import Any

from depthmup._drafts import Files, naming, together
from depthmup.reports.pdf import in_order

CHART_FORMATS = (".html", ".svg", ".pdf", ".png")


def save_chart(chart: Any, path: Path, *, points: bool = False, files: Files | None = None) -> None:
    """Write one chart; the file's suffix says how. HTML is self-contained and opens offline;
    titles and data are escaped.

    Args:
        chart: of Altair.
        path: ends in .html, .svg, .pdf or .png.
        points: whether its units are points, as a PDF has them: an SVG says so, and a PNG has four
            dots for each.
        files: of one result, with which it is written (``together``).

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
    with together(files) as drafts, naming(path):
        if kind == ".html":
            from depthmup.reports.page import Page, Plot, Section

            plot = Plot(chart=chart, name="chart", fixed=True)
            page = Page(title=path.stem, headline="", sections=[Section(plots=[plot])])
            drafts.write(path, page.html())
            return
        draft, scale = drafts.draft(path), (4 if points else 2) if kind == ".png" else 1
        chart.save(str(draft), format=kind[1:], scale_factor=scale)
        if kind == ".pdf":
            draft.write_bytes(in_order(draft.read_bytes()))
        if points and kind == ".svg":
            sized = r'(<svg[^>]*?) width="([\d.]+)" height="([\d.]+)"'
            picture = draft.read_text(encoding="utf-8")
            draft.write_text(
                re.sub(sized, r'\1 width="\2pt" height="\3pt"', picture, count=1), "utf-8"
            )
