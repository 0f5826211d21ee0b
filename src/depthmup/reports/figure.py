"""Pictures of one chart or several, and figures for a paper or a slide with a caption beside."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from depthmup._drafts import Files, together
from depthmup.reports.chart import panel
from depthmup.reports.files import save_chart
from depthmup.reports.page import Plot
from depthmup.reports.theme import FIGURES, SCREEN, Style, configured

Kind = Literal["paper", "slide"]


def picture(
    plots: Sequence[Plot],
    style: Style = SCREEN,
    *,
    columns: int = 0,
    title: str = "",
    lead: Sequence[str] = (),
) -> Any:
    """A chart alone, or panels in columns under their own titles, each as large as the style says.

    The title and the lines below it are shown where the style has a title.
    """
    import altair as alt

    panels = [panel(plot.chart, style) for plot in plots]
    if columns:
        small = style.type < SCREEN.type
        titled = [
            drawn.properties(
                title=alt.TitleParams(
                    text=plot.title.split("\n"),
                    subtitle=alt.Undefined if small else plot.verdicts[plot.chart.window :][:1],
                    fontSize=style.type if small else 13,
                    anchor="middle" if small else "start",
                    offset=3 if small else 6,
                )
            )
            for drawn, plot in zip(panels, plots, strict=True)
        ]
        chart = alt.concat(*titled, columns=columns, spacing=8 if small else 26)
    else:
        [chart] = panels
    if style.titled and title:
        chart = chart.properties(title=alt.TitleParams(text=title, subtitle=list(lead)))
    return configured(chart, style)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart without a title, and the caption that says what it shows.

    Attributes:
        chart: an Altair chart.
        caption: what it shows, with the numbers.
    """

    chart: Any
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

        import vl_convert

        picture = vl_convert.vegalite_to_svg(self.chart.to_json())
        return f"<figure>{picture}<figcaption>{html.escape(self.caption)}</figcaption></figure>"


def figure_style(kind: str) -> Style:
    """The style of a figure for a paper or a slide."""
    if kind not in FIGURES:
        raise ValueError(f"Expected a kind of figure, paper or slide; got {kind!r}.")
    return FIGURES[kind]
