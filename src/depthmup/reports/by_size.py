"""A quantity against size: the one chart of best values and of losses, whoever measured them."""

from collections.abc import Mapping, Sequence
from typing import Any

from depthmup.records.text import MUTED
from depthmup.reports.axes import Axis
from depthmup.reports.chart import CROSS, Chart, Layer, Tip
from depthmup.reports.study_rows import Row
from depthmup.reports.theme import BAND, INK


def against_size(
    *,
    x: Axis,
    y: Axis,
    points: Sequence[Row],
    by: str,
    colours: Mapping[str, str],
    shapes: Mapping[str, str],
    tips: Sequence[Tip] = (),
    lines: Sequence[Row] | None = None,
    bands: Sequence[Row] = (),
    dashed: Sequence[Row] = (),
    aims: Sequence[Row] = (),
    failed: Sequence[Row] = (),
    title: str = "",
    subtitle: Sequence[str] = (),
    description: str = "",
    height: int = 320,
    window: int = 0,
) -> Chart:
    """Points with intervals, a line for each series, beside what was expected or fitted.

    A row has its place ``x``, ``value``, and the ends of its interval, ``band_low`` and
    ``band_high``, clipped to the axis; a ``mark``, which has a shape; and where its line is to be
    labelled, the ``words`` with their places ``label_x`` and ``label``.
    """
    joined = points if lines is None else lines
    place: dict[str, Any] = {"x": "x", "y": "value", "by": by}
    spans: dict[str, Any] = {"x": "x", "y": "band_low", "y2": "band_high"}
    layers = [
        Layer(mark="area", rows=bands, x="x", y="least", y2="most",
              look={"color": BAND, "opacity": 0.75}),
        Layer(mark="line", rows=dashed, x="x", y="centre", order="x",
              look={"color": MUTED, "strokeDash": [5, 4], "strokeWidth": 1.3}),
        Layer(mark="line", rows=joined, **place, order="x", look={"strokeWidth": 2}),
        Layer(mark="rule", rows=points, **spans, by=by, look={"strokeWidth": 1.6}),
        Layer(mark="point", rows=points, **place, shape="mark", tips=tips,
              look={"size": 70, "filled": True}),
        Layer(mark="point", rows=failed, **place, tips=tips,
              look={"shape": CROSS, "size": 46, "strokeWidth": 2.2}),
        Layer(mark="rule", rows=aims, **spans, look={"color": INK, "strokeWidth": 2}),
        Layer(mark="point", rows=aims, x="x", y="value",
              look={"shape": "diamond", "size": 130, "fill": "white", "stroke": INK,
                    "strokeWidth": 2}),
        Layer(mark="text", rows=[row for row in points if "label" in row], x="label_x", y="label",
              by=by, text="words", beside=True,
              look={"align": "left", "dx": 11, "fontWeight": "bold"}),
    ]  # fmt: skip
    return Chart(
        layers=[layer for layer in layers if layer.rows],
        x=x,
        y=y,
        colours=colours,
        shapes=shapes,
        title=title,
        subtitle=subtitle,
        description=description,
        height=height,
        window=window,
    )
