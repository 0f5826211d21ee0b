"""The charts of a study in one table, for its page, for files, for papers and for notebooks.

A further chart is a function that returns its panels, and an entry of ``STUDY_CHARTS``.
"""

import textwrap
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from depthmup.records import Study
from depthmup.records.finding import change_span
from depthmup.reports.axes import optimum_axis
from depthmup.reports.chart import Chart, draw, draw_together
from depthmup.reports.charts import (
    drift_chart,
    loss_chart,
    optimum_chart,
    rate_chart,
    scheme_signs,
    size_signs,
    window_of,
)
from depthmup.reports.page import Layout, Plot, Section, Sign
from depthmup.reports.search_story import narrowing_chart, rounds, saved_sentence
from depthmup.reports.sentences import is_larger_better
from depthmup.reports.slices import drawn
from depthmup.reports.study_rows import base_size, transfers
from depthmup.reports.theme import PAGE, SCREEN, Style
from depthmup.reports.training_chart import training_charts


@dataclass(frozen=True, kw_only=True)
class StudyChart:
    """A chart of a study, wherever it is shown."""

    file: str  # its name, in which "size" stands for the axis
    title: str  # with the names of ``words`` in braces, as the caption
    caption: str
    panels: Callable[[Study], Sequence[Chart]]  # none where the study has nothing to draw
    signs: Callable[[Study], Sequence[Sign]] = lambda study: ()  # of its legend on a page
    layout: Layout = "wide"
    hint: str = ""  # what a reader can do on a page whose charts have several windows
    details: Callable[[Study], Sequence[Section]] = lambda study: ()  # folded, below it
    sliced: bool = True  # whether each slice of a table's variant is a line of its own

    def charts(self, study: Study, *, window: int | None = None) -> list[Chart]:
        """The panels, which show a window of training first, by default the last."""
        shown = window_of(study, window)
        panels = self.panels(drawn(study) if self.sliced else study)
        return [replace(panel, window=shown) for panel in panels]

    def words(self, study: Study) -> tuple[str, str]:
        """The title and the caption."""
        plain = drawn(study)
        named = {
            "the": study.tuned.the,
            "tuned": study.tuned.name,
            "axis": plain.axis,
            "base": f"{base_size(plain):.10g}",
            "band": change_span(-study.tolerance, study.tolerance),
            "better": is_larger_better(plain.axis),
            "saved": saved_sentence(study.search, study.tuned) if study.search else "",
        }
        return self.title.format(**named), self.caption.format(**named)

    def __call__(self, study: Study, *, window: int | None = None, style: Style = SCREEN) -> Any:
        """The chart alone, with its title where the style has one."""
        charts, (title, caption) = self.charts(study, window=window), self.words(study)
        lines = textwrap.wrap(caption, 100)
        if self.layout != "panels":
            return draw(replace(charts[0], title=title, subtitle=lines), style)
        columns = min(2, len(charts))
        return draw_together(charts, style, columns=columns, title=title, subtitle=lines)

    def figure(self, study: Study, style: Style) -> Any:
        """The chart as a figure: panels share its width, rows of names have their own height."""
        charts = self.charts(study)
        if self.layout == "panels":
            assert isinstance(style.width, int)
            # Less the labels of the axes.
            width = (style.width - 46) // min(2, len(charts)) - 32
            style = replace(style, width=width, height=round(width * 0.85))
        elif charts[0].y.names:
            style = replace(style, height=None)
        return self(study, style=style)


STUDY_CHARTS = {
    "rates": StudyChart(
        file="loss-against-learning-rate",
        title="Where the minima line up, {the} transfers",
        caption=(
            "Training loss against {tuned}, one panel per scheme. Diamonds: the best {tuned} of "
            "each {axis}, with its interval. Dashed: the optimum of {axis} {base}. Shaded: the "
            "interval over seeds. Crosses on top: every seed diverged."
        ),
        panels=lambda study: [rate_chart(study, t.scheme) for t in transfers(study)],
        signs=size_signs,
        layout="panels",
        hint="Click a point for its learning curve.",
    ),
    "transfer": StudyChart(
        file="optimum-against-size",
        title="Flat lines transfer, slopes drift",
        caption=(
            "The best {tuned} at each {axis}, with its interval over seeds. Grey: the tolerance, "
            "{band} per doubling away from {axis} {base}. Triangles: on the edge of the grid. "
            "Crosses: nothing trains."
        ),
        panels=lambda study: [optimum_chart(study, optimum_axis(study))],
        signs=scheme_signs,
        layout="pair",
    ),
    "loss": StudyChart(
        file="loss-against-size",
        title="{better}",
        caption=(
            "The loss at each {axis}'s own best {tuned}, with its interval over seeds. Crosses: "
            "nothing trains."
        ),
        panels=lambda study: [loss_chart(study)],
        signs=scheme_signs,
        layout="pair",
    ),
    "training": StudyChart(
        file="loss-against-step",
        title="Has training settled?",
        caption=(
            "Mean training loss of successive windows at the best {tuned} that was run at each "
            "{axis}, one panel per scheme. Grey: the window that is judged."
        ),
        panels=training_charts,
        signs=lambda study: [sign for sign in size_signs(study) if sign[2]],
        layout="panels",
    ),
    "drift": StudyChart(
        file="drift",
        title="Does the interval stay inside the band?",
        caption=(
            "Change of the best {tuned} per doubling of {axis}, with 95% intervals. A scheme "
            "transfers when its whole interval lies in the grey band, {band}; it drifts when the "
            "whole interval lies outside."
        ),
        panels=lambda study: [drift_chart(study)],
        sliced=False,
    ),
    "search": StudyChart(
        file="search",
        title="How the search got there",
        caption=(
            "{saved} The most informative runs came first. The search stopped when the interval "
            "was decisive. Checking it after every round is accounted for. Grey: the tolerance, "
            "{band}."
        ),
        panels=lambda study: [narrowing_chart(study)] if study.search else [],
        details=lambda study: rounds(study) if study.search else [],
    ),
}
"""Every chart by the name of its figure."""

CHARTS = {chart.file: chart for chart in STUDY_CHARTS.values()}
"""Every chart by the name of its file."""


def chart_sections(
    study: Study, *, prefix: str = "", kinds: Container[str] | None = None
) -> list[Section]:
    """The charts of a page, those of a pair in one section; ``prefix`` begins their names."""
    sections: list[Section] = []
    several = bool(study.headline.stop) and len(study.windows) + len(study.training) > 1
    for name, chart in STUDY_CHARTS.items():
        if kinds is not None and name not in kinds:
            continue
        charts, signs = chart.charts(study), chart.signs(drawn(study))
        title, lead = chart.words(study)
        if not charts:
            continue
        if chart.hint and several:
            lead = f"{lead} {chart.hint}"
        names = [f"{prefix}{name}-{i}" for i, _ in enumerate(charts)]
        if chart.layout != "panels":
            names = [f"{prefix}{name}"]
        plots = [
            Plot(name=name_, title=each.title, verdicts=each.verdicts, chart=draw(each, PAGE))
            for name_, each in zip(names, charts, strict=True)
        ]
        if chart.layout != "pair":
            sections.append(
                Section(
                    title=title,
                    lead=lead,
                    legend=signs,
                    legend_of=drawn(study).axis if signs else "",
                    plots=plots,
                    layout=chart.layout,
                    details=chart.details(study),
                )
            )
            continue
        plots = [replace(plot, title=title, lead=lead, legend=signs) for plot in plots]
        if sections and sections[-1].layout == "pair":
            sections[-1] = replace(sections[-1], plots=[*sections[-1].plots, *plots])
        else:
            sections.append(Section(layout="pair", plots=plots))
    return sections


def loss_against_rate(study: Study, *, window: int | None = None, style: Style = SCREEN) -> Any:
    """Loss against what is tuned: one panel per scheme, one line per size.

    Args:
        study: to be drawn.
        window: index of the window of training; by default a parameter of the chart selects it.
        style: of a page, a paper or a slide; its size is that of a panel.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study
        >>> loss_against_rate(example_study()).save("rates.html")  # doctest: +SKIP
        >>> len(loss_against_rate(example_study()).concat)  # a panel for each scheme
        2
    """
    return STUDY_CHARTS["rates"](study, window=window, style=style)


def optimum_against_size(study: Study, *, window: int | None = None, style: Style = SCREEN) -> Any:
    """The best value of what is tuned against size, a line per scheme, beside the base's.

    Args:
        study: to draw.
        window: index of the window of training shown first, by default the last.
        style: of a page, a paper or a slide.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study, Style
        >>> optimum_against_size(example_study(), style=Style(height=240)).height
        240
    """
    return STUDY_CHARTS["transfer"](study, window=window, style=style)


def loss_against_size(study: Study, *, window: int | None = None, style: Style = SCREEN) -> Any:
    """The loss at each size's own best learning rate, one line per scheme.

    Args:
        study: to draw.
        window: index of the window of training shown first, by default the last.
        style: of a page, a paper or a slide.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study
        >>> loss_against_size(example_study()).description
        'Best loss against depth, one line per scheme'
    """
    return STUDY_CHARTS["loss"](study, window=window, style=style)


def drift(study: Study, *, window: int | None = None, style: Style = SCREEN) -> Any:
    """Drift per scheme with its interval, beside the band inside which it counts as transfer.

    Args:
        study: to draw.
        window: index of the window of training shown first, by default the last.
        style: of a page, a paper or a slide.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study, Style
        >>> drift(example_study(), style=Style(width=400)).width
        400
    """
    return STUDY_CHARTS["drift"](study, window=window, style=style)


def rate_panel(
    study: Study, scheme: str, *, window: int | None = None, style: Style = SCREEN
) -> Any:
    """One scheme's panel of ``loss_against_rate``.

    Args:
        study: to draw.
        scheme: name of the variant.
        window: index of the window of training shown first, by default the last.
        style: of a page, a paper or a slide.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study
        >>> type(rate_panel(example_study(), "depth-mup")).__name__
        'LayerChart'
    """
    chart = rate_chart(drawn(study), scheme)
    return draw(replace(chart, window=window_of(study, window)), style)
