"""Charts of a fit: every curve with its optimum, optima against each axis, residuals, the span."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from depthmup.records import Fit, GroupFit, Place
from depthmup.records.fit import Exponent
from depthmup.reports.axes import loss_axis
from depthmup.reports.chart import CROSS, data, tip_title
from depthmup.reports.study_rows import Row
from depthmup.reports.theme import BAND, INK, MUTED, configured, palette, ramp

MOST_PANELS = 12
"""Slices of one axis that are drawn; the frames have all."""

MOST_RULES = 7

Width = int | str


def curve_panels(fit: Fit, group: GroupFit, measured: Exponent, *, width: Width) -> list[Any]:
    """One panel for each slice of an axis: loss against rate, one line for each size.

    Args:
        fit: the whole result.
        group: of its runs.
        measured: the exponent along the axis.
        width: of a panel.
    """
    slices = measured.slices[:MOST_PANELS]
    losses = [p.loss for p in group.points if math.isfinite(p.loss)]
    best = [o.loss.value for o in group.optima if o.loss.known]
    # Rates that are too small leave a network as it was: their losses say how far to reach.
    slow: dict[int, float] = {}
    for point in group.points:
        slow.setdefault(point.size, point.loss)
    finite = [loss for loss in slow.values() if math.isfinite(loss)]
    axis = loss_axis(losses, must_show=best, reach=1.5 * median(finite) if finite else math.inf)
    return [_curves(fit, group, measured.axis, members, axis, width) for members in slices]


def _curves(
    fit: Fit, group: GroupFit, axis: str, members: Sequence[int], losses: Any, width: Width
) -> Any:
    import altair as alt

    values = [group.optima[i].size[axis] for i in members]
    names = [f"{value:g}" for value in values]
    scale = alt.Scale(domain=names, range=ramp(len(names)))
    of = dict(zip(members, names, strict=True))
    top = losses.at(1.04)
    points = [
        {
            "size": of[p.size],
            "rate": p.log2_rate,
            "loss": p.loss if p.loss <= losses.high else None,
            "gone": top if not p.loss <= losses.high else None,
            "runs": p.runs,
        }
        for p in group.points
        if p.size in of
    ]
    optima = [
        {
            "size": of[i],
            "rate": group.optima[i].log2_lr.value,
            "loss": losses.clamp(group.optima[i].loss.value),
            **_ends(group.optima[i].log2_lr.low, group.optima[i].log2_lr.high, points),
        }
        for i in members
        if group.optima[i].place is Place.INTERIOR
    ]
    x = alt.X(
        "rate:Q", title=f"log2 {fit.tuned}", scale=alt.Scale(zero=False, nice=False, padding=8)
    )
    y = alt.Y(
        "loss:Q",
        title="loss",
        scale=alt.Scale(type="log", domain=[losses.low, losses.at(1.08)], nice=False),
        axis=alt.Axis(values=_ticks(losses), format="~g"),
    )
    colour = alt.Color("size:N", scale=scale, sort=names, title=axis, legend=_below(4))
    tips = ["size:N", alt.Tooltip("rate:Q", format=".3f"), alt.Tooltip("loss:Q", format=".4~g")]
    base = alt.Chart(data(points)).encode(x=x, color=colour)
    best = alt.Chart(data(optima)).encode(color=colour)
    layers = [
        base.mark_line(strokeWidth=1.5, clip=True).encode(y=y),
        base.mark_point(filled=True, size=18, opacity=1, clip=True).encode(
            y=y, tooltip=[*tips, "runs:Q"]
        ),
        base.mark_point(shape=CROSS, size=30, clip=True).encode(y=alt.Y("gone:Q"), tooltip=tips),
        best.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y),
        best.mark_point(shape="diamond", filled=True, size=90, opacity=1).encode(
            x=x, y=y, tooltip=tips
        ),
    ]
    others = {a: v for a, v in group.optima[members[0]].size.items() if a != axis}
    fixed = ", ".join(f"{a} {v:g}" for a, v in others.items()) or "all sizes"
    return alt.layer(*layers).properties(width=width, height=260, title=fixed)


def optimum_panel(fit: Fit, group: GroupFit, measured: Exponent, *, width: Width) -> Any:
    """Optima against one axis: points of every slice, the fitted law, published rules dashed.

    Args:
        fit: the whole result.
        group: of its runs.
        measured: the exponent along the axis.
        width: of the panel.
    """
    import altair as alt

    axis = measured.axis
    slices = measured.slices[:MOST_PANELS]
    points, laws = _slice_rows(group, measured, slices)
    rules = _rule_lines(group, measured, slices[0]) if slices else []
    names = [_held(group, axis, members) for members in slices]
    x = alt.X(
        "x:Q", title=axis, scale=alt.Scale(type="log", base=2, nice=False, padding=12),
        axis=alt.Axis(values=sorted({p["x"] for p in points}), format="~s"),
    )  # fmt: skip
    y = alt.Y("rate:Q", title=f"best log2 {fit.tuned}", scale=alt.Scale(zero=False))
    shown = alt.Color(
        "slice:N",
        scale=alt.Scale(domain=names, range=ramp(max(len(names), 1))),
        title="at",
        legend=_below(2) if len(names) > 1 else None,
    )
    kinds = sorted({r["law"] for r in rules})
    dashed = alt.Color(
        "law:N",
        scale=alt.Scale(domain=kinds, range=palette(len(kinds))),
        title="published rules",
        legend=_below(1),
    )
    tips = ["slice:N", alt.Tooltip("x:Q", title=axis), alt.Tooltip("rate:Q", format=".3f")]
    layers = [
        alt.Chart(data(laws)).mark_line(strokeWidth=2).encode(x=x, y=y, color=shown),
        alt.Chart(data(points))
        .mark_rule()
        .encode(x=x, y=alt.Y("low:Q", title=f"best log2 {fit.tuned}"), y2="high:Q", color=shown),
        alt.Chart(data(points))
        .mark_point(filled=True, size=60, opacity=1)
        .encode(x=x, y=y, color=shown, tooltip=tips),
    ]
    solid = alt.layer(*layers)
    if not rules:
        return solid.properties(width=width, height=300)
    lines = (
        alt.Chart(data(rules))
        .mark_line(strokeDash=[5, 4], strokeWidth=1.5)
        .encode(x=x, y=y, color=dashed, tooltip=["law:N"])
    )
    both = alt.layer(lines, solid).resolve_scale(color="independent")
    return both.properties(width=width, height=300)


def _slice_rows(
    group: GroupFit, measured: Exponent, slices: Sequence[Sequence[int]]
) -> tuple[list[Row], list[Row]]:
    """The optima of every slice, and the fitted law through their middle."""
    axis = measured.axis
    points: list[Row] = []
    laws: list[Row] = []
    for number, members in enumerate(slices):
        name = _held(group, axis, members)
        rates = [group.optima[i].log2_lr for i in members]
        xs = [math.log2(group.optima[i].size[axis]) for i in members]
        points += [
            {
                "slice": name,
                "x": 2.0**x,
                "rate": r.value,
                "low": r.low if math.isfinite(r.low) else r.value,
                "high": r.high if math.isfinite(r.high) else r.value,
            }
            for x, r in zip(xs, rates, strict=True)
        ]
        middle = sum(xs) / len(xs)
        level = sum(r.value for r in rates) / len(rates)
        laws += [
            {
                "slice": name,
                "law": "fitted",
                "x": 2.0**x,
                "rate": level + measured.exponent.value * (x - middle),
                "order": number,
            }
            for x in (min(xs), max(xs))
        ]
    return points, laws


def _rule_lines(
    group: GroupFit, measured: Exponent, members: Sequence[int]
) -> list[dict[str, Any]]:
    """Each published exponent from a slice's first size; rules of one exponent are one line."""
    by_exponent: dict[float, list[str]] = {}
    for judged in group.judgements:
        if judged.axis == measured.axis:
            by_exponent.setdefault(judged.exponent, []).append(judged.rule)
    first = group.optima[members[0]]
    start, end = (math.log2(group.optima[i].size[measured.axis]) for i in (members[0], members[-1]))
    lines = []
    for exponent, names in sorted(by_exponent.items())[:MOST_RULES]:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        label = f"{exponent:+.3g}".replace("-", "−") + f" {names[0]}{more}"
        for x in (start, end):
            rate = first.log2_lr.value + exponent * (x - start)
            lines.append({"law": label, "x": 2.0**x, "rate": rate})
    return lines


def residual_chart(fit: Fit, group: GroupFit, *, width: Width) -> Any:
    """Optima less the joint law, against each axis.

    Args:
        fit: the whole result.
        group: of its runs.
        width: of a panel.
    """
    import altair as alt

    joint = group.joint
    assert joint is not None
    rows = [
        {
            "axis": axis,
            "x": math.log2(group.optima[size].size[axis]),
            "residual": residual,
            "size": ", ".join(f"{a} {v:g}" for a, v in group.optima[size].size.items()),
        }
        for size, residual in zip(joint.used, joint.residuals, strict=True)
        for axis in group.optima[size].size
        if axis in {slope.axis for slope in joint.exponents}
    ]
    axes = list(dict.fromkeys(str(row["axis"]) for row in rows))
    colour = alt.Color(
        "axis:N",
        scale=alt.Scale(domain=axes, range=palette(len(axes))),
        legend=_below(4) if len(axes) > 1 else None,
    )
    band = alt.Chart(data([{"low": -0.1, "high": 0.1}])).mark_rect(color=BAND, opacity=0.6)
    zero = alt.Chart(data([{"zero": 0.0}])).mark_rule(color=MUTED)
    y = alt.Y("residual:Q", title=tip_title(f"octaves of {fit.tuned}"))
    points = (
        alt.Chart(data(rows))
        .mark_point(filled=True, size=50, opacity=0.85)
        .encode(
            x=alt.X("x:Q", title="log2 of the axis", scale=alt.Scale(zero=False, padding=12)),
            y=y,
            color=colour,
            tooltip=["size:N", alt.Tooltip("residual:Q", format="+.3f")],
        )
    )
    layers = [band.encode(y=alt.Y("low:Q"), y2="high:Q"), zero.encode(y=alt.Y("zero:Q")), points]
    return alt.layer(*layers).properties(width=width, height=240)


def span_chart(fit: Fit, group: GroupFit, *, width: Width) -> Any:
    """Rates at the target: this table's prediction with its interval, and the published rules'.

    Args:
        fit: the whole result.
        group: of its runs.
        width: of the chart.
    """
    import altair as alt

    rows = [{"name": r.rule, "rate": r.rate, "low": r.rate, "high": r.rate, "own": False}
            for r in sorted(group.at_target, key=lambda r: r.rate)]  # fmt: skip
    certificate = group.prediction
    if certificate is not None and certificate.issued:
        lr = certificate.value
        own = {"name": "this table", "rate": lr.value, "low": lr.low, "high": lr.high, "own": True}
        rows = [own, *rows]
    names = [str(row["name"]) for row in rows]
    colour = alt.condition("datum.own", alt.value("#d55e00"), alt.value(INK))
    y = alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=200))
    x = alt.X("rate:Q", title=fit.tuned, scale=alt.Scale(type="log"), axis=alt.Axis(format="~e"))
    base = alt.Chart(data(rows)).encode(y=y, color=colour)
    tips = ["name:N", alt.Tooltip("rate:Q", format=".3~g")]
    return alt.layer(
        base.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q", title=fit.tuned), x2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(x=x, tooltip=tips),
    ).properties(width=width, height=max(60, 24 * len(rows)))


def paper_chart(fit: Fit, group: GroupFit) -> Any:
    """Optima against every axis side by side, for a paper."""
    import altair as alt

    panels = [
        optimum_panel(fit, group, measured, width=300).properties(
            title=f"exponent {measured.exponent.value:+.2f} "
            f"[{measured.exponent.low:+.2f}, {measured.exponent.high:+.2f}]".replace("-", "−")
        )
        for measured in group.exponents
        if measured.slices
    ]
    if not panels:
        raise ValueError("Expected an axis along which optima can be compared; there is none.")
    return configured(alt.concat(*panels, columns=2).resolve_scale(color="independent"))


def _below(columns: int) -> Any:
    """A legend that takes no width from its chart."""
    import altair as alt

    return alt.Legend(orient="bottom", columns=columns, labelLimit=300, symbolLimit=60)


def _ticks(losses: Any) -> list[float]:
    """The axis' own ticks, or more where these are too few."""
    if len(losses.ticks) > 2:
        return list(losses.ticks)
    marks = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    return [
        m * 10.0**k for k in range(-8, 9) for m in marks if losses.low <= m * 10.0**k <= losses.high
    ]


def _held(group: GroupFit, axis: str, members: Sequence[int]) -> str:
    others = {a: v for a, v in group.optima[members[0]].size.items() if a != axis}
    return ", ".join(f"{a} {v:g}" for a, v in others.items()) or "all sizes"


def _ends(low: float, high: float, points: Sequence[dict[str, Any]]) -> dict[str, float]:
    """An interval as far as the grid goes."""
    rates = [p["rate"] for p in points]
    first, last = min(rates), max(rates)
    return {"low": min(max(low, first), last), "high": max(min(high, last), first)}
