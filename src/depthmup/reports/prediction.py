"""How the best learning rate moves with size: predicted as a line, measured as points."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from depthmup.records import AxisPrediction, Estimate, Prediction, sentence
from depthmup.records.finding import change, change_span, in_percent
from depthmup.records.prediction import direction
from depthmup.records.text import begin
from depthmup.reports.axes import plain, size_axis
from depthmup.reports.chart import Chart, against_size, powers
from depthmup.reports.figure import picture
from depthmup.reports.page import Page, Plot, Section, Table
from depthmup.reports.picture import Picture
from depthmup.reports.theme import BLUE, INK, Style

PREDICTED, MEASURED = "predicted", "measured"
PANEL = Style(width=420)


@dataclass(frozen=True, kw_only=True, slots=True)
class Movement:
    """Octaves of the best learning rate over the base's, at increasing sizes.

    Attributes:
        label: in the legend.
        sizes: along one axis.
        octaves: one for each size.
    """

    label: str
    sizes: tuple[int, ...]
    octaves: tuple[Estimate, ...]


def optimum_chart(
    predicted: Movement,
    *,
    measured: Movement | None = None,
    axis: str = "depth",
    title: str,
    style: Style = PANEL,
) -> Picture:
    """Multiples of the base's rate against size: the predicted line, and measured points.

    Args:
        predicted: what the rule says.
        measured: what training found, where it is known.
        axis: what the sizes are, "depth" or "width".
        title: of the chart.
        style: of a page, a paper or a slide.

    Returns:
        A chart for ``save_chart``.

    Example:
        >>> from depthmup.records import Estimate
        >>> stays, falls = (Estimate(value=v, low=v - 0.1, high=v + 0.1) for v in (0.0, -0.5))
        >>> movement = Movement(label="predicted", sizes=(8, 16), octaves=(stays, falls))
        >>> optimum_chart(movement, title="SP").spec["title"]["text"]
        'SP'
    """
    labels = [each.label for each in (predicted, measured) if each is not None]
    plot = _plot(predicted, measured, axis)
    return picture([plot], style, title=title, lead=labels)


def _plot(predicted: Movement, measured: Movement | None, axis: str) -> Plot:
    line = _rows(predicted, PREDICTED)
    points = [] if measured is None else _rows(measured, MEASURED)
    rows = [*line, *points]
    sizes = sorted({row["x"] for row in rows}) or [1]
    ends = [v for row in rows for v in (row["low"], row["high"])] + [-0.5, 0.5]
    tips = [
        ("kind", "kind", ""),
        ("size", axis, ""),
        ("value", "times the base's", ".3~g"),
        *((name, name, "+.2f") for name in ("octaves", "low", "high")),
    ]
    bands = [
        {"x": r["x"], "value": 1.0, "band_low": r["band_low"], "band_high": r["band_high"]}
        for r in line
    ]
    chart = Chart(
        layers=against_size(rows, by="kind", tips=tips, lines=line, bands=bands),
        x=size_axis(axis, sizes),
        y=plain(min(ends) - 0.1, max(ends) + 0.1, "best learning rate, over the base's"),
        colours={PREDICTED: INK, MEASURED: BLUE},
        shapes={PREDICTED: "circle", MEASURED: "diamond"},
        description=f"The best learning rate against {axis}, as a multiple of the base's",
        height=300,
    )
    return Plot(chart=chart)


def prediction_chart(prediction: Prediction) -> Picture:
    """One panel for each axis of a prediction.

    Args:
        prediction: of a network's optimum.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_prediction
        >>> len(prediction_chart(example_prediction()).spec["concat"])  # one for each axis
        1
    """
    plots = [
        replace(_plot(_movement(along), None, along.axis), title=f"Along {along.axis}")
        for along in prediction.axes
    ]
    title = f"{prediction.title}, {prediction.scheme}, {prediction.optimizer}"
    return picture(plots, PANEL, columns=len(plots), title=title)


def _movement(along: AxisPrediction) -> Movement:
    """An axis of a prediction, as it is drawn."""
    return Movement(
        label="line: predicted from the sharpness at initialization, band: its interval over seeds",
        sizes=tuple(at.size[along.axis] for at in along.sizes),
        octaves=tuple(at.octaves for at in along.sizes),
    )


def _rows(movement: Movement, kind: str) -> list[dict[str, Any]]:
    """What can be drawn; an interval that is open ends at the value."""
    return [
        {
            "kind": kind,
            "mark": kind,
            "size": size,
            "x": size,
            "octaves": at.value,
            "low": at.low if math.isfinite(at.low) else at.value,
            "high": at.high if math.isfinite(at.high) else at.value,
            **powers(at),
        }
        for size, at in zip(movement.sizes, movement.octaves, strict=True)
        if math.isfinite(at.value)
    ]


def optimum_page(
    movements: Mapping[str, tuple[Movement, Movement | None]],
    *,
    title: str,
    headline: str,
    notes: Sequence[str] = (),
    command: Sequence[str] = (),
    data: str = "",
) -> str:
    """Where the best learning rate moves, by axis: a chart and the numbers for each.

    Args:
        movements: by axis, what is predicted and, if there is any, what was measured.
        title: of the page.
        headline: the answer, in one sentence.
        notes: sentences below it.
        command: that made it.
        data: name of the file of numbers beside the page.

    Returns:
        The HTML.

    Example:
        >>> from depthmup.records import Estimate
        >>> stays, falls = (Estimate(value=v, low=v - 0.1, high=v + 0.1) for v in (0.0, -0.5))
        >>> falling = Movement(label="predicted", sizes=(8, 16), octaves=(stays, falls))
        >>> text = optimum_page({"depth": (falling, None)}, title="SP", headline="It falls.")
        >>> "It falls." in text and "\N{MINUS SIGN}34% to \N{MINUS SIGN}24%" in text
        True
    """
    sections = []
    for axis, (predicted, measured) in movements.items():
        dots = "" if measured is None else " Dots: measured."
        rows = _numbers(axis, predicted, measured)
        sections.append(
            Section(
                title=f"Along {axis}",
                lead=f"{begin(predicted.label)}.{dots}",
                plots=[_plot(predicted, measured, axis)],
                table=Table(
                    rows=rows, numbers={*(rows[0] if rows else {})}, name=f"Optima along {axis}"
                ),
            )
        )
    return Page(
        title=title,
        headline=headline,
        lead=notes,
        sections=sections,
        command=command,
        files=[data][: bool(data)],
    ).html()


def _numbers(axis: str, predicted: Movement, measured: Movement | None) -> list[dict[str, str]]:
    """A row for each size; an interval that nothing has is left out."""
    spans = any(at.low < at.high for at in predicted.octaves)
    beside = dict(zip(measured.sizes, measured.octaves, strict=True)) if measured else {}
    return [
        {
            axis: str(size),
            "change from the base": change(at.value),
            **({"interval": change_span(at.low, at.high)} if spans else {}),
            **(
                {"measured": in_percent(beside[size]) if size in beside else ""} if measured else {}
            ),
        }
        for size, at in zip(predicted.sizes, predicted.octaves, strict=True)
    ]


def prediction_page(prediction: Prediction, *, command: Sequence[str] = ()) -> str:
    """A prediction as one page.

    Args:
        prediction: of a network's optimum.
        command: that made it.

    Returns:
        The HTML.

    Example:
        >>> from depthmup.reports import example_prediction
        >>> "Along depth" in prediction_page(example_prediction())
        True
    """
    axes = [along.axis for along in prediction.axes]
    undecided = [a for a in axes if prediction.drift(a).known and prediction.moves(a) is None]
    return optimum_page(
        {along.axis: (_movement(along), None) for along in prediction.axes},
        title=f"{prediction.title}, {prediction.scheme}, {prediction.optimizer}",
        headline=" ".join(
            [
                *([f"Undecided along {' and '.join(undecided)}."] if undecided else []),
                *(f"{direction(prediction, axis)}." for axis in axes if axis not in undecided),
            ]
        ),
        notes=[
            *([f"To decide, predict again with --seeds {2 * prediction.seeds}."] * bool(undecided)),
            "A rule of thumb for SGD; nothing was trained. The intervals do not include the error "
            "of the rule itself: on small batches the direction is usually right and the size "
            "often too large.",
            *(sentence(prediction, axis) for axis in axes),
            *prediction.notes,
        ],
        command=command,
    )
