"""The picture of a coordinate check: each observable against size, beside what theory predicts."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from depthmup.records import Check, Exponent, Outcome
from depthmup.reports.sentences import folded
from depthmup.reports.theme import INK, configured, tone


def growth_rows(check: Check, exponent: Exponent) -> list[dict[str, Any]]:
    """The values of an observable by size and seed, as multiples of the smallest size's.

    Over the dimension that the exponent is not of, geometric means are taken; all seeds are divided
    by one number, so that their scatter is seen.

    Args:
        check: with its sizes.
        exponent: of the observable, along its axis.

    Returns:
        Rows with ``size``, ``value`` and ``seed``; none where the record has no sizes.
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
            for seed, value in enumerate(size.seeds or (size.value,)):
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


def growth_panel(
    check: Check, exponent: Exponent, *, width: int | str = "container", height: int = 150
) -> Any:
    """One observable against one dimension, log-log: a line per seed, dashed what is predicted.

    Args:
        check: with its sizes.
        exponent: of the observable, along its axis.
        width: in pixels, or "container".
        height: in pixels.

    Returns:
        The chart, without configuration.
    """
    import altair as alt

    rows = growth_rows(check, exponent)
    sizes = sorted({row["size"] for row in rows})
    predicted = [
        {"size": at, "value": (at / sizes[0]) ** float(Fraction(exponent.expected))}
        for at in (sizes if exponent.expected else ())
    ]
    # At least a factor of four is shown, so that noise does not look like growth.
    drawn = [row["value"] for row in (*rows, *predicted)]
    low, high = min(*drawn, 0.5), max(*drawn, 2.0)
    x = alt.X(
        "size:Q",
        title=exponent.axis,
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(values=sizes, grid=False, format="d"),
    )
    y = alt.Y(
        "value:Q",
        title=None,
        scale=alt.Scale(type="log", base=2, domain=[low / 1.1, high * 1.1], nice=False),
        axis=alt.Axis(tickCount=4, format=".3~g"),
    )
    colour = tone(str(exponent.outcome))
    lines = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point={"size": 18, "color": colour}, strokeWidth=1.4, color=colour)
        .encode(
            x=x,
            y=y,
            detail="seed:N",
            tooltip=["size:Q", alt.Tooltip("value:Q", format=".3g"), "seed:N"],
        )
    )
    dashed = (
        alt.Chart(alt.Data(values=predicted))
        .mark_line(strokeDash=[5, 4], color=INK, strokeWidth=1.6)
        .encode(x=x, y=y)
    )
    return (dashed + lines).properties(width=width, height=height)


def growth_chart(check: Check, *, columns: int = 3, width: int = 150, height: int = 110) -> Any:
    """All judged observables as small multiples: the coordinate check for a paper.

    Args:
        check: with its sizes.
        columns: panels beside each other.
        width: of a panel, in pixels.
        height: of a panel, in pixels.

    Returns:
        The chart.

    *Source:* the coordinate checks of Tensor Programs V (arXiv 2203.03466) Appendix D.1, with the
    exponent that the scheme predicts.
    """
    import altair as alt

    panels = [
        growth_panel(check, e, width=width, height=height).properties(
            title=alt.TitleParams(
                # In lines: a name that is wider than its panel would be cut.
                text=folded(_name(e), (width + 25) // 6).split("\n"),
                fontSize=9,
                anchor="start",
                offset=3,
            )
        )
        for e in _judged(check.exponents)
        if growth_rows(check, e)
    ]
    return configured(alt.concat(*panels, columns=columns, spacing=8))


def _judged(exponents: Sequence[Exponent]) -> list[Exponent]:
    judged = [e for e in exponents if e.outcome is not Outcome.SHOWN]
    return sorted(judged, key=lambda e: (e.axis != "width", e.module, e.observable))


def _name(exponent: Exponent) -> str:
    return f"{exponent.module}: {exponent.observable}"
