"""How the best learning rate moves with size: predicted as a line, measured as points."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from depthmup.records import AxisPrediction, Estimate, Prediction
from depthmup.reports.axes import Axis, plain, size_axis
from depthmup.reports.chart import Chart, draw, draw_together
from depthmup.reports.layers import against_size
from depthmup.reports.theme import BLUE, INK, Style

if TYPE_CHECKING:
    import altair as alt

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
) -> "alt.LayerChart":
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
        >>> chart = optimum_chart(movement, title="SP")
        >>> type(chart).__name__
        'LayerChart'
    """
    chart = _movement_chart(predicted, measured, axis=axis, title=title)
    result: alt.LayerChart = draw(chart, style)
    return result


def _movement_chart(
    predicted: Movement, measured: Movement | None, *, axis: str, title: str
) -> Chart:
    line = _rows(predicted, PREDICTED)
    points = [] if measured is None else _rows(measured, MEASURED)
    rows = [*line, *points]
    sizes = sorted({row["x"] for row in rows}) or [1]
    ends = [v for row in rows for v in (row["low"], row["high"])] + [-0.5, 0.5]
    around = Axis(low=min(ends) - 0.1, high=max(ends) + 0.1)
    tips = [
        ("kind", "kind", ""),
        ("size", axis, ""),
        ("value", "times the base's", ".3~g"),
        *((name, name, "+.2f") for name in ("octaves", "low", "high")),
    ]
    bands = [
        {"x": r["x"], "centre": 1.0, "least": r["band_low"], "most": r["band_high"]} for r in line
    ]
    return Chart(
        layers=against_size(rows, by="kind", tips=tips, lines=line, bands=bands),
        x=size_axis(axis, sizes),
        y=plain(around, "best learning rate, over the base's"),
        colours={PREDICTED: INK, MEASURED: BLUE},
        shapes={PREDICTED: "circle", MEASURED: "diamond"},
        description=f"The best learning rate against {axis}, as a multiple of the base's",
        title=title,
        subtitle=[each.label for each in (predicted, measured) if each is not None],
        height=300,
    )


def prediction_chart(prediction: Prediction) -> "alt.ConcatChart":
    """One panel for each axis of a prediction.

    Args:
        prediction: of a network's optimum.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_prediction
        >>> len(prediction_chart(example_prediction()).concat)  # one for each axis
        1
    """
    charts = [
        _movement_chart(movement(along), None, axis=along.axis, title=f"Along {along.axis}")
        for along in prediction.axes
    ]
    title = f"{prediction.title}, {prediction.scheme}, {prediction.optimizer}"
    result: alt.ConcatChart = draw_together(charts, PANEL, columns=len(charts), title=title)
    return result


def movement(along: AxisPrediction) -> Movement:
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
            "value": 2.0**at.value,
            "low": (low := at.low if math.isfinite(at.low) else at.value),
            "high": (high := at.high if math.isfinite(at.high) else at.value),
            "band_low": 2.0**low,
            "band_high": 2.0**high,
        }
        for size, at in zip(movement.sizes, movement.octaves, strict=True)
        if math.isfinite(at.value)
    ]
