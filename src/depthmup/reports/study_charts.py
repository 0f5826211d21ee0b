"""The charts of a study in one table, for its page, for files, for papers and for notebooks.

A further chart is a function that returns its section, and an entry of ``STUDY_CHARTS``.
"""

import textwrap
from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial

from depthmup.records import Study
from depthmup.records.finding import in_percent
from depthmup.reports.ablation import ablation_section
from depthmup.reports.charts import (
    loss_section,
    rate_chart,
    rates_section,
    transfer_section,
    window_of,
)
from depthmup.reports.drift_chart import drift_section
from depthmup.reports.figure import Figure, Kind, figure_style, picture
from depthmup.reports.gain import gain_section
from depthmup.reports.page import Plot, Section
from depthmup.reports.picture import Picture
from depthmup.reports.search_story import search_section
from depthmup.reports.sentences import headline
from depthmup.reports.slices import MOST, by_slice
from depthmup.reports.study_rows import title_of, transfers
from depthmup.reports.theme import SCREEN, Style
from depthmup.reports.training_chart import training_section

Name = str
"""A key of ``STUDY_CHARTS``."""

STUDY_CHARTS: dict[str, Callable[[Study], Section]] = {
    "ablation": ablation_section,
    "gain": gain_section,
    "rates": rates_section,
    "transfer": transfer_section,
    "loss": loss_section,
    "training": training_section,
    "drift": drift_section,
    "search": search_section,
}
"""Every chart by the name of its figure; one that has nothing to draw has no plots."""

FILES = {
    "rates": "loss-against-learning-rate",
    "transfer": "optimum-against-size",
    "loss": "loss-against-size",
    "training": "loss-against-step",
}
"""The names of files that are not those of their charts; "size" stands for the axis in them."""


def available(study: Study) -> list[str]:
    """The names of the charts for which a study has something to draw."""
    return [name for name, section in STUDY_CHARTS.items() if section(study).plots]


def section_of(study: Study, name: Name, window: int | None = None) -> Section:
    """A chart with its words, which shows a window of training first, by default the last."""
    section, shown = STUDY_CHARTS[name](study), window_of(study, window)
    plots = [replace(p, chart=replace(p.chart, window=shown)) for p in section.plots]
    return replace(section, plots=plots)


def picture_of(section: Section, style: Style = SCREEN) -> Picture:
    """The plots of a section as one picture, with its words where the style has a title."""
    columns = min(2, len(section.plots)) if section.layout == "panels" else 0
    lead = textwrap.wrap(section.lead, 100)
    return picture(section.plots, style, columns=columns, title=section.title, lead=lead)


def _chart(
    name: Name, study: Study, *, window: int | None = None, style: Style = SCREEN
) -> Picture:
    """A chart alone, with its title where the style has one."""
    return picture_of(section_of(study, name, window), style)


CHARTS = {FILES.get(name, name): partial(_chart, name) for name in STUDY_CHARTS}
"""Every chart by the name of its file: a function of the study, the window and the style."""


def chart_sections(
    study: Study, *, prefix: str = "", kinds: Container[str] | None = None
) -> list[Section]:
    """The charts of a page, those of a pair in one section; ``prefix`` begins their names."""
    sections: list[Section] = []
    several = bool(study.headline.stop) and len(study.windows) + len(study.training) > 1
    names = list(STUDY_CHARTS)
    if study.together is not None:
        # What groups show together comes before the curves of each; more lines cannot be read.
        crowded = len(transfers(study)) > MOST
        names = [n for n in names if n != "rates" and not (crowded and n in _LINES)] + ["rates"]
    for name in names:
        if kinds is not None and name not in kinds:
            continue
        section = section_of(study, name)
        if not section.plots:
            continue
        several_plots = section.layout == "panels" or len(section.plots) > 1
        plots = [
            replace(plot, name=f"{prefix}{name}{f'-{i}' * several_plots}")
            for i, plot in enumerate(section.plots)
        ]
        if name == "rates" and several:
            section = replace(section, lead=f"{section.lead} {_HINT}")
        if section.layout == "pair":
            [plot] = plots
            plots = [replace(plot, title=section.title, lead=section.lead, legend=section.legend)]
            if sections and sections[-1].layout == "pair":
                plots = [*sections.pop().plots, *plots]
            section = Section(layout="pair")
        sections.append(replace(section, plots=plots))
    return sections


_LINES = ("transfer", "loss")
"""Charts with a line for each group."""

_HINT = "Click a point for its learning curve."
"""Of a page whose charts have several windows."""


def study_figure(study: Study, name: Name = "transfer", *, kind: Kind = "paper") -> Figure:
    """A figure of a measurement.

    Args:
        study: to draw.
        name: ``transfer``, the best learning rate against size; ``rates``, the loss against
            learning rate; ``loss``, the best loss against size; ``drift``, the drifts;
            ``training``, the loss over training; ``search``, the drift's interval as the search
            went on.
        kind: ``paper``, 3.25 inches wide with type of 8 points, or ``slide``, 5.5 with 9.

    Returns:
        The figure; ``save`` writes it.

    Raises:
        ValueError: an unknown name or kind.

    Example:
        >>> from depthmup.reports import example_study
        >>> figure = study_figure(example_study(), "drift", kind="slide")
        >>> "Depth-muP transfers" in figure.caption
        True
    """
    style = figure_style(kind)
    if name not in (known := available(study)):
        raise ValueError(f"Expected a figure's name, one of {', '.join(known)}; got {name!r}.")
    section = section_of(study, name)
    if section.layout == "panels":  # share the width
        assert isinstance(style.width, int)
        # Less the labels of the axes.
        width = (style.width - 46) // min(2, len(section.plots)) - 32
        style = replace(style, width=width, height=round(width * 0.85))
    elif section.plots[0].chart.y.names:  # whose rows have their own height
        style = replace(style, height=None)
    verdicts = "; ".join(
        f"{t.title} {t.verdict.value}, {in_percent(t.drift)}" for t in transfers(study)
    )
    caption = f"{section.lead} {headline(study)} Change per doubling of {study.axis}: {verdicts}."
    return Figure(chart=picture_of(section, style), caption=caption)


def loss_against_rate(study: Study, *, window: int | None = None, style: Style = SCREEN) -> Picture:
    """Loss against what is tuned: one panel per scheme, one line per size.

    Args:
        study: to be drawn.
        window: index of the window of training; by default a parameter of the chart selects it.
        style: of a page, a paper or a slide; its size is that of a panel.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study
        >>> len(loss_against_rate(example_study()).spec["concat"])  # a panel for each scheme
        2
    """
    return _chart("rates", study, window=window, style=style)


def optimum_against_size(
    study: Study, *, window: int | None = None, style: Style = SCREEN
) -> Picture:
    """The best value of what is tuned against size, a line per scheme, beside the base's.

    Args:
        study: to draw.
        window: index of the window of training shown first, by default the last.
        style: of a page, a paper or a slide.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study, Style
        >>> optimum_against_size(example_study(), style=Style(height=240)).spec["height"]
        240
    """
    return _chart("transfer", study, window=window, style=style)


def loss_against_size(study: Study, *, window: int | None = None, style: Style = SCREEN) -> Picture:
    """The loss at each size's own best learning rate, one line per scheme.

    Args:
        study: to draw.
        window: index of the window of training shown first, by default the last.
        style: of a page, a paper or a slide.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study
        >>> loss_against_size(example_study()).spec["description"]
        'Best loss against depth, one line per scheme'
    """
    return _chart("loss", study, window=window, style=style)


def drift(study: Study, *, window: int | None = None, style: Style = SCREEN) -> Picture:
    """Drift per scheme with its interval, beside the band inside which it counts as transfer.

    Args:
        study: to draw.
        window: index of the window of training shown first, by default the last.
        style: of a page, a paper or a slide.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study, Style
        >>> drift(example_study(), style=Style(width=400)).spec["width"]
        400
    """
    return _chart("drift", study, window=window, style=style)


def rate_panel(
    study: Study, scheme: str, *, window: int | None = None, style: Style = SCREEN
) -> Picture:
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
        >>> rate_panel(example_study(), "depth-mup").spec["title"]["text"]
        'Depth-muP'
    """
    study = by_slice(study)
    chart = replace(rate_chart(study, scheme), window=window_of(study, window))
    return picture([Plot(chart=chart)], style, title=title_of(study, scheme))
