"""The layers of the two charts that results share: against the value tuned, and against size."""

from collections.abc import Sequence
from typing import Any

from depthmup.records.text import MUTED
from depthmup.reports.chart import CROSS, Layer, Tip
from depthmup.reports.study_rows import Row
from depthmup.reports.theme import BAND, INK

DASHED = {"color": MUTED, "strokeDash": [5, 4], "strokeWidth": 1.3}
GREY = {"color": BAND, "opacity": 0.75}


def against_rate(
    points: Sequence[Row],
    optima: Sequence[Row],
    *,
    by: str,
    reference: float,
    highest: float,
    tips: Sequence[Tip],
    optimum_tips: Sequence[Tip],
) -> list[Layer]:
    """A curve for each size with its optimum; losses above ``highest`` stand in a margin.

    A row of points has ``rate``, ``loss``, the interval's ends ``band_low`` and ``band_high``, the
    height ``mark`` of its size in the margin and how many seeds ``diverged``; one of optima has
    ``rate``, ``loss`` and the interval of its rate.
    """
    lost = f"!isValid(datum.loss) || datum.loss > {highest!r}"
    clip: dict[str, Any] = {"clip": True}
    curve: dict[str, Any] = {"rows": points, "x": "rate", "by": by}
    best: dict[str, Any] = {"rows": optima, "x": "rate"}
    small: dict[str, Any] = {"size": 24, "strokeWidth": 1.6}
    return [
        Layer(mark="rule", **best, where=f"datum['{by}'] === {reference!r}", look=DASHED),
        Layer(mark="area", **curve, y="band_low", y2="band_high", look={"opacity": 0.12, **clip}),
        Layer(mark="line", **curve, y="loss", look={"strokeWidth": 2, **clip}),
        Layer(mark="point", **curve, y="loss", where=f"!({lost})", tips=tips,
              hollow="datum.diverged > 0", look={"size": 26, "strokeWidth": 1.4, **clip}),
        Layer(mark="point", **curve, y="mark", tips=tips,
              where=f"({lost}) && isValid(datum.loss)", look={"shape": "triangle-up", **small}),
        Layer(mark="point", **curve, y="mark", tips=tips, where="!isValid(datum.loss)",
              look={"shape": CROSS, **small}),
        Layer(mark="line", **best, y="loss", order=by,
              look={"color": INK, "strokeWidth": 1.1, "opacity": 0.75}),
        Layer(mark="rule", rows=optima, x="band_low", x2="band_high", y="loss",
              look={"strokeWidth": 1.6, "color": INK, "opacity": 0.7}),
        Layer(mark="point", **best, y="loss", by=by, filled=True, tips=optimum_tips,
              look={"shape": "diamond", "size": 95, "stroke": INK, "strokeWidth": 1.2}),
    ]  # fmt: skip


def against_size(
    points: Sequence[Row],
    *,
    by: str,
    tips: Sequence[Tip] = (),
    lines: Sequence[Row] | None = None,
    bands: Sequence[Row] = (),
    aims: Sequence[Row] = (),
    failed: Sequence[Row] = (),
) -> list[Layer]:
    """Points with intervals, a line for each series, over a band around an expected ``centre``.

    A row has its place ``x``, ``value``, and the ends of its interval, ``band_low`` and
    ``band_high``, clipped to the axis; a ``mark``, which has a shape; and where its line is to be
    labelled, the ``words`` with their places ``label_x`` and ``label``.
    """
    place: dict[str, Any] = {"x": "x", "y": "value", "by": by}
    spans: dict[str, Any] = {"x": "x", "y": "band_low", "y2": "band_high"}
    layers = [
        Layer(mark="area", rows=bands, x="x", y="least", y2="most", look=GREY),
        Layer(mark="line", rows=bands, x="x", y="centre", order="x", look=DASHED),
        Layer(mark="line", rows=points if lines is None else lines, **place, order="x",
              look={"strokeWidth": 2}),
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
    return [layer for layer in layers if layer.rows]
