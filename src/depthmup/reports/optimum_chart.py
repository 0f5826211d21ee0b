"""How the best learning rate moves with size: predicted as a line, measured as points."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from depthmup.records import AxisPrediction, Estimate, Prediction
from depthmup.reports.theme import BAND, INK, MUTED, configured

if TYPE_CHECKING:
    import altair as alt

PREDICTED, MEASURED = "predicted", "measured"


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
    predicted: Movement, *, measured: Movement | None = None, axis: str = "depth", title: str
) -> "alt.LayerChart":
    """Octaves against size: the predicted line with its interval, measured points with theirs.

    Args:
        predicted: what the rule says.
        measured: what training found, where it is known.
        axis: what the sizes are, "depth" or "width".
        title: of the chart.

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
    import altair as alt

    rows = [
        *_rows(predicted, PREDICTED),
        *([] if measured is None else _rows(measured, MEASURED)),
    ]
    sizes = sorted({row["size"] for row in rows})
    x = alt.X(
        "size:Q",
        title=axis,
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=sizes, format="d"),
    )
    y = alt.Y("octaves:Q", title="octaves of learning rate above the base's")
    base = alt.Chart(alt.Data(values=rows))
    line = base.transform_filter(alt.datum.kind == PREDICTED)
    points = base.transform_filter(alt.datum.kind == MEASURED)
    ends = {"y": alt.Y("low:Q", title=y["title"]), "y2": "high:Q"}
    tooltip = [
        "kind:N",
        "size:Q",
        *(alt.Tooltip(f"{n}:Q", format="+.2f") for n in ("octaves", "low", "high")),
    ]
    zero = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(color=MUTED, strokeDash=[4, 4])
    measured_layers = (
        points.mark_rule(color="#d55e00").encode(x=x, **ends),
        points.mark_point(color="#d55e00", filled=True, size=70, opacity=1).encode(
            x=x, y=y, tooltip=tooltip
        ),
    )
    result: alt.LayerChart = configured(
        alt.layer(
            zero.encode(y=alt.Y("zero:Q", title=y["title"])),
            line.mark_area(color=BAND, opacity=0.7).encode(x=x, **ends),
            line.mark_line(point=alt.OverlayMarkDef(color=INK), color=INK).encode(
                x=x, y=y, tooltip=tooltip
            ),
            *(measured_layers if measured is not None else ()),
        ).properties(
            width=420,
            height=300,
            title=alt.Title(title, subtitle=_legend(predicted, measured)),
        )
    )
    return result


def prediction_chart(prediction: Prediction) -> "alt.HConcatChart":
    """One panel for each axis of a prediction.

    Args:
        prediction: of a network's optimum.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_prediction
        >>> len(prediction_chart(example_prediction()).hconcat)  # one for each axis
        1
    """
    import altair as alt

    panels = [
        optimum_chart(movement(along), axis=along.axis, title=f"Along {along.axis}")
        for along in prediction.axes
    ]
    for panel in panels:
        panel.config = alt.Undefined  # the whole has one
    title = f"{prediction.title}, {prediction.scheme}, {prediction.optimizer}"
    result: alt.HConcatChart = configured(alt.hconcat(*panels).properties(title=title))
    return result


def movement(along: AxisPrediction) -> Movement:
    """An axis of a prediction, as it is drawn."""
    return Movement(
        label="line: predicted from the sharpness at initialization, band: its interval over seeds",
        sizes=tuple(along.size(at) for at in along.sizes),
        octaves=tuple(at.octaves for at in along.sizes),
    )


def _rows(movement: Movement, kind: str) -> list[dict[str, Any]]:
    """What can be drawn; an interval that is open ends at the value."""
    return [
        {
            "kind": kind,
            "size": size,
            "octaves": at.value,
            "low": at.low if math.isfinite(at.low) else at.value,
            "high": at.high if math.isfinite(at.high) else at.value,
        }
        for size, at in zip(movement.sizes, movement.octaves, strict=True)
        if math.isfinite(at.value)
    ]


def _legend(predicted: Movement, measured: Movement | None) -> list[str]:
    return [predicted.label, *([] if measured is None else [measured.label])]
