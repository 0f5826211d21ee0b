"""Pictures of one chart or several, and figures for a paper or a slide with a caption beside."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from depthmup._drafts import Files, together
from depthmup.reports.chart import panel_of, parameters
from depthmup.reports.files import save_chart
from depthmup.reports.page import Plot
from depthmup.reports.picture import Picture, configured
from depthmup.reports.study_rows import Row
from depthmup.reports.theme import FIGURES, SCREEN, Style

Kind = Literal["paper", "slide"]


def picture(
    plots: Sequence[Plot],
    style: Style = SCREEN,
    *,
    columns: int = 0,
    title: str = "",
    lead: Sequence[str] = (),
) -> Picture:
    """A chart alone, or panels in columns under their own titles, each as large as the style says.

    The title and the lines below it are shown where the style has a title.
    """
    panels = list[dict[str, Any]]()
    rows = dict[str, list[Row]]()
    small = style.type < SCREEN.type
    for plot in plots:
        panel, own = panel_of(plot.chart, style)
        rows |= own
        if columns:
            panel["title"] = {
                "text": plot.title.split("\n"),
                "fontSize": style.type if small else 13,
                "anchor": "middle" if small else "start",
                "offset": 3 if small else 6,
            }
            if not small and plot.verdicts:
                panel["title"]["subtitle"] = plot.verdicts[plot.chart.window]
        panels.append(panel)
    if columns:
        spec = {"concat": panels, "columns": columns, "spacing": 8 if small else 26}
    else:
        [spec] = panels
    if style.titled and title:
        spec["title"] = {"text": title, "subtitle": list(lead)}
    return configured({**spec, "params": parameters(plots[0].chart), "datasets": rows}, style)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart without a title, and the caption that says what it shows.

    Attributes:
        chart: the picture.
        caption: what it shows, with the numbers.
    """

    chart: Picture
    caption: str

    def save(self, path: str | Path, *, files: Files | None = None) -> Path:
        """Write the figure, and its caption beside it as .txt.

        Args:
            path: a file that ends in .svg, .pdf, .png or .html; text stays text in the first two.
            files: of one result, with which both are written.

        Returns:
            The path of the caption.

        Raises:
            ValueError: another suffix.
        """
        path = Path(path)
        caption = path.with_suffix(".txt")
        with together(files) as drafts:
            save_chart(self.chart, path, points=True, files=drafts)
            drafts.write(caption, self.caption + "\n")
        return caption

    def _repr_html_(self) -> str:
        import html

        return (
            f"<figure>{self.chart.svg}<figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )


def figure_style(kind: str) -> Style:
    """The style of a figure for a paper or a slide."""
    if kind not in FIGURES:
        raise ValueError(f"Expected a kind of figure, paper or slide; got {kind!r}.")
    return FIGURES[kind]
