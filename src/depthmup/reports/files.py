"""Charts as files: pages, vectors and pixels."""

import re
from pathlib import Path
from typing import Any

from depthmup._drafts import Files, naming, together
from depthmup.reports.pdf import in_order
from depthmup.reports.picture import Picture
from depthmup.reports.theme import VEGA_LITE

CHART_FORMATS = (".html", ".svg", ".pdf", ".png")


def save_chart(
    chart: Any, path: str | Path, *, points: bool = False, files: Files | None = None
) -> None:
    """Write one chart; the file's suffix says how. HTML is self-contained and opens offline;
    titles and data are escaped.

    Args:
        chart: a ``Picture``, or one of Altair's.
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
    path = Path(path)
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
        drafts.write(path, _drawn(chart.to_dict(), kind, points=points))


def _drawn(spec: dict[str, Any], kind: str, *, points: bool) -> bytes:
    """A chart's picture as a file of some kind has it."""
    import vl_convert

    if kind == ".png":
        dots = 4 if points else 2
        png: bytes = vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=dots)
        return png
    if kind == ".pdf":
        return in_order(vl_convert.vegalite_to_pdf(spec, vl_version=VEGA_LITE))
    picture = Picture(spec=spec).svg
    if points:
        sized = r'(<svg[^>]*?) width="([\d.]+)" height="([\d.]+)"'
        picture = re.sub(sized, r'\1 width="\2pt" height="\3pt"', picture, count=1)
    return bytes(picture, "utf-8")
