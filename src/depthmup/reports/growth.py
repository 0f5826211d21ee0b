"""The picture of a coordinate check: each observable against size, beside what theory predicts."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from depthmup.records import Check, Exponent, Outcome
from depthmup.reports.axes import Axis, size_axis
from depthmup.reports.chart import Chart, Layer, draw_together
from depthmup.reports.sentences import folded
from depthmup.reports.theme import INK, Style, tone

SMALL = Style(width=150, height=110, type=9)


def growth_rows(check: Check, exponent: Exponent) -> list[dict[str, Any]]:
    """The values of an observable by size and seed, as multiples of the smallest size's.

    Over the dimension that the exponent is not of, geometric means are taken; all seeds are divided
    by one number, so that their scatter is seen.
    """
    cells: dict[tuple[int, int], list[float]] = {}
    # A further axis is varied at the smallest width and depth, and these at its smallest value.
    fixed = {axis: min(values) for axis, values in check.along.items() if axis != exponent.axis}
    if exponent.axis in check.along:
        fixed |= {"width": min(check.widths), "depth": min(check.depths)}
    for size in check.sizes:
        if any(size.at(axis) != value for axis, value in fixed.items()):
            continue
        if (size.module, size.observable) == (exponent.module, exponent.observable):
            for seed, value in enumerate(size.seeds):
                at = size.at(exponent.axis)
                cells.setdefault((seed, at), []).append(math.log(value))
    means = {key: sum(logs) / len(logs) for key, logs in sorted(cells.items())}
    if not means:
        return []
    smallest = min(at for _, at in means)
    firsts = [mean for (_, at), mean in means.items() if at == smallest]
    first = sum(firsts) / len(firsts)
    return [
        {"size": at, "value": math.exp(mean - first), "seed": seed}
        for (seed, at), mean in means.items()
    ]


def growth_panel(check: Check, exponent: Exponent) -> Chart:
    """One observable against one dimension, log-log: a line per seed, dashed what is predicted."""
    rows = growth_rows(check, exponent)
    sizes = sorted({row["size"] for row in rows})
    predicted = [
        {"size": at, "value": (at / sizes[0]) ** float(Fraction(exponent.expected))}
        for at in (sizes if exponent.expected else ())
    ]
    # At least a factor of four is shown, so that noise does not look like growth.
    drawn = [row["value"] for row in (*rows, *predicted)]
    low, high = min(*drawn, 0.5) / 1.1, max(*drawn, 2.0) * 1.1
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    colour = {"color": tone(str(exponent.outcome))}
    place: dict[str, Any] = {"x": "size", "y": "value"}
    tips = [("size", exponent.axis, ""), ("value", "value", ".3g"), ("seed", "seed", "")]
    seeds = dict.fromkeys(sorted({row["seed"] for row in rows}), colour["color"])
    return Chart(
        layers=[
            Layer(mark="line", rows=predicted, **place,
                  look={"strokeDash": [5, 4], "color": INK, "strokeWidth": 1.6}),
            Layer(mark="line", rows=rows, **place, by="seed", look={"strokeWidth": 1.4}),
            Layer(mark="point", rows=rows, **place, by="seed", tips=tips,
                  look={"size": 18, "filled": True}),
        ],
        x=size_axis(exponent.axis, sizes),
        y=Axis(
            low=low,
            high=high,
            ticks=tuple(2.0**k for k in powers[:: max(1, len(powers) // 4)]),
            log=True,
            base=2,
            format=".3~g",
        ),
        colours=seeds,
        description=f"{_name(exponent)} against {exponent.axis}",
        height=150,
    )  # fmt: skip


def growth_chart(check: Check, *, columns: int = 3, style: Style = SMALL) -> Any:
    """All judged observables as small multiples: the coordinate check for a paper.

    *Source:* the coordinate checks of Tensor Programs V (arXiv 2203.03466) Appendix D.1, with the
    exponent that the scheme predicts.
    """
    assert isinstance(style.width, int)
    # In lines: a name that is wider than its panel would be cut.
    letters = (style.width + 25) // 6
    charts = [
        replace(growth_panel(check, e), title=folded(_name(e), letters))
        for e in _judged(check.exponents)
        if growth_rows(check, e)
    ]
    return draw_together(charts, style, columns=columns)


def _judged(exponents: Sequence[Exponent]) -> list[Exponent]:
    judged = [e for e in exponents if e.outcome is not Outcome.SHOWN]
    return sorted(judged, key=lambda e: (e.axis != "width", e.module, e.observable))


def _name(exponent: Exponent) -> str:
    return f"{exponent.module}: {exponent.observable}"
