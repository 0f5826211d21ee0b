"""Losses against the value tuned: the one chart of them, whoever trained the runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from depthmup.records.text import MUTED
from depthmup.reports.axes import Axis
from depthmup.reports.chart import CROSS, Chart, Layer, Tip
from depthmup.reports.study_rows import Row
from depthmup.reports.theme import INK


def against_rate(
    *,
    x: Axis,
    y: Axis,
    points: Sequence[Row],
    optima: Sequence[Row],
    by: str,
    colours: Mapping[float, str],
    reference: float | None = None,
    tips: Sequence[Tip] = (),
    optimum_tips: Sequence[Tip] = (),
    legend: str = "",
    title: str = "",
    subtitle: Sequence[str] = (),
    description: str = "",
    height: int = 270,
    window: int = 0,
) -> Chart:
    """A curve for each size with its optimum; those who diverged stand in a margin above.

    A row of points has ``rate``, ``loss``, the interval's ends ``band_low`` and ``band_high``, the
    height ``mark`` of its size in the margin and how many seeds ``diverged``; one of optima has
    ``rate``, ``loss`` and the interval of its rate.
    """
    lost = f"!isValid(datum.loss) || datum.loss > {y.high!r}"
    clip: dict[str, Any] = {"clip": True}
    place: dict[str, Any] = {"x": "rate", "y": "loss"}
    layers = [
        Layer(mark="rule", rows=optima, x="rate", where=f"datum['{by}'] === {reference!r}",
              look={"strokeDash": [5, 4], "color": MUTED, "strokeWidth": 1.2}),
        Layer(mark="area", rows=points, x="rate", y="band_low", y2="band_high", by=by,
              look={"opacity": 0.12, **clip}),
        Layer(mark="line", rows=points, **place, by=by, look={"strokeWidth": 2, **clip}),
        Layer(mark="point", rows=points, **place, by=by, where=f"!({lost})", tips=tips,
              hollow="datum.diverged > 0", look={"size": 26, "strokeWidth": 1.4, **clip}),
        Layer(mark="point", rows=points, x="rate", y="mark", by=by, tips=tips,
              where=f"({lost}) && isValid(datum.loss)",
              look={"shape": "triangle-up", "size": 24, "strokeWidth": 1.6}),
        Layer(mark="point", rows=points, x="rate", y="mark", by=by, tips=tips,
              where="!isValid(datum.loss)", look={"shape": CROSS, "size": 24, "strokeWidth": 1.6}),
        Layer(mark="line", rows=optima, **place, order=by,
              look={"color": INK, "strokeWidth": 1.1, "opacity": 0.75}),
        Layer(mark="rule", rows=optima, x="band_low", x2="band_high", y="loss",
              look={"strokeWidth": 1.6, "color": INK, "opacity": 0.7}),
        Layer(mark="point", rows=optima, **place, by=by, filled=True, tips=optimum_tips,
              look={"shape": "diamond", "size": 95, "stroke": INK, "strokeWidth": 1.2}),
    ]  # fmt: skip
    return Chart(
        layers=layers[reference is None :],
        x=x,
        y=y,
        colours=colours,
        legend=legend,
        title=title,
        subtitle=subtitle,
        description=description,
        height=height,
        window=window,
    )
