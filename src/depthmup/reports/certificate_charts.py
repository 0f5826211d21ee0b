"""The charts of a certificate: the law up to the target, and excess loss against learning rate."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from depthmup.records import Certificate, Optimum
from depthmup.records.certificate import size_name
from depthmup.reports.chart_layers import WINDOW, Width, data, known, tip_title
from depthmup.reports.study_rows import Row
from depthmup.reports.theme import BAND, INK, MUTED, configured

BLUE = "#0072b2"
CAP = 4.0
"""The chart of excess loss ends at this many times the largest value of interest, since near
divergence it grows without bound and would squash the rest."""


_BESIDE: Mapping[str, Mapping[str, Any]] = {
    "right": {"align": "left", "dx": 5},
    "left": {"align": "right", "dx": -5},
}
"""How words stand on a side of a line."""


def law_chart(certificate: Certificate, *, width: Width = 560, height: int = 320) -> Any:
    """The best log2 learning rate against size, the fitted law and its 90% band, to the target.

    Args:
        certificate: an issued one.
        width: in pixels, or "container".
        height: in pixels.
    """
    import altair as alt

    axis, positions, target = _positions(certificate)
    points, band, domain = _law_rows(certificate, positions)
    ticks = sorted({*positions, target})
    x = alt.X(
        "x:Q",
        title=axis,
        scale=alt.Scale(type="log", base=2, domain=[ticks[0] / 1.12, ticks[-1] * 1.12], nice=False),
        axis=alt.Axis(values=ticks, format=".3~g", grid=False),
    )
    y = alt.Y(
        "value:Q",
        title=tip_title(f"best log2 {certificate.tuned.name}"),
        scale=alt.Scale(domain=domain, nice=False, zero=False),
        axis=alt.Axis(format="~g"),
    )
    y_low = alt.Y("low:Q", title=tip_title(f"best log2 {certificate.tuned.name}"))
    law, dots = alt.Chart(data(band)), alt.Chart(data(points))
    predicted = []
    if certificate.predicted.known:
        p = certificate.predicted
        predicted = [{"x": target, "value": p.value, "low": p.low, "high": p.high}]
    aim = alt.Chart(data(predicted))
    what = tip_title(f"log2 {certificate.tuned.name}")
    tips = [
        alt.Tooltip("size:N"),
        alt.Tooltip("measured:Q", title=f"best {what}", format=".3f"),
        alt.Tooltip("place:N"),
    ]
    return configured(
        alt.layer(
            law.mark_area(color=BAND, opacity=0.75).encode(x=x, y=y_low, y2="high:Q"),
            law.mark_line(color=MUTED, strokeDash=[5, 4], strokeWidth=1.4).encode(x=x, y=y),
            dots.mark_rule(color=BLUE, strokeWidth=1.6).encode(x=x, y=y_low, y2="high:Q"),
            dots.mark_point(color=BLUE, filled=True, size=70, opacity=1).encode(
                x=x, y=y, tooltip=tips
            ),
            aim.mark_rule(color=INK, strokeWidth=2).encode(x=x, y=y_low, y2="high:Q"),
            aim.mark_point(
                shape="diamond", size=130, fill="white", stroke=INK, strokeWidth=2, opacity=1
            ).encode(x=x, y=y),
        )
        .add_params(alt.param(name=WINDOW, value=0))
        .properties(
            width=width,
            height=height,
            description=(
                f"Best {certificate.tuned.name} against size with the fitted law, up to the target"
            ),
            title=alt.TitleParams(
                text="The law, and what it predicts at the target",
                subtitle=["Dots: measured. Diamond: predicted. Grey: 90% band of the law."],
            ),
        )
    )  # fmt: skip


def excess_loss_chart(certificate: Certificate, *, width: Width = 560, height: int = 320) -> Any:
    """The predicted excess loss of each learning rate at the target, with its 90% band.

    Args:
        certificate: an issued one.
        width: in pixels, or "container".
        height: in pixels.
    """
    import altair as alt

    rows, top = _excess_rows(certificate)
    p, at_base = certificate.predicted, tip_title(f"log2 {certificate.tuned.name} at the base")
    what = tip_title(f"log2 {certificate.tuned.name}")
    ends = [row["x"] for row in rows]
    x = alt.X(
        "x:Q",
        title=at_base,
        scale=alt.Scale(domain=[min(ends), max(ends)], nice=False, zero=False),
        axis=alt.Axis(format="~g", grid=False),
    )
    y = alt.Y(
        "value:Q",
        title="loss above the best",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(format=".2~p"),
    )
    curve = alt.Chart(data(rows))
    lines = alt.Chart(data(_rates(certificate)))
    at_top = {"y": alt.value(10)}
    return configured(
        alt.layer(
            alt.Chart(data([{"low": p.low, "high": p.high}]))
            .mark_rect(color=BLUE, opacity=0.12)
            .encode(x=alt.X("low:Q", title=at_base), x2="high:Q"),
            curve.mark_area(color=BAND, opacity=0.75, clip=True).encode(
                x=x, y=alt.Y("low:Q", title="loss above the best"), y2="high:Q"
            ),
            curve.mark_line(color=INK, strokeWidth=2, clip=True).encode(
                x=x,
                y=y,
                tooltip=[
                    alt.Tooltip("x:Q", title=what, format=".2f"),
                    alt.Tooltip("excess:Q", title="loss above the best", format=".2~p"),
                ],
            ),
            lines.mark_rule(color=MUTED, strokeDash=[5, 4], strokeWidth=1.2).encode(x=x),
            # Lines that are near each other have their words on their outer sides.
            *(
                lines.transform_filter(alt.datum.outside == side)
                .mark_text(**beside, fontSize=12, color=MUTED)
                .encode(x=x, text="text:N", **at_top)
                for side, beside in _BESIDE.items()
            ),
        )
        .add_params(alt.param(name=WINDOW, value=0))
        .properties(
            width=width,
            height=height,
            description=(
                f"Predicted loss above the best at the target against {certificate.tuned.name}"
            ),
            title=alt.TitleParams(
                text=f"What {certificate.tuned.one} costs at the target",
                subtitle=[
                    "Grey: 90% band. Blue: interval of the predicted best "
                    f"{certificate.tuned.name}."
                ],
            ),
        )
    )  # fmt: skip


def _law_rows(
    certificate: Certificate, positions: Sequence[float]
) -> tuple[list[Row], list[Row], list[float]]:
    """Measured optima, the fitted law with its band, and what the vertical axis has to hold."""
    points: list[Row] = [
        {
            "x": x,
            "value": o.log2_lr.value + (moved := _moved(certificate, o, x)),
            "low": _drawn(o.log2_lr.low, o.log2_lr.value) + moved,
            "high": _drawn(o.log2_lr.high, o.log2_lr.value) + moved,
            "measured": o.log2_lr.value,
            "size": size_name(o.size),
            "place": o.place.value,
        }
        for o, x in zip(certificate.optima, positions, strict=True)
        if o.log2_lr.known
    ]
    band: list[Row] = [
        {"x": _along(certificate, p.at), "value": p.value, "low": p.low, "high": p.high}
        for p in certificate.law
    ]
    values = [v for row in (*points, *band) for v in (row["value"], row["low"], row["high"])]
    values = [v for v in values if known(v)]
    low, high = (min(values), max(values)) if values else (-1.0, 1.0)
    air = max(0.25, 0.08 * (high - low))
    return points, band, [low - air, high + air]


def _excess_rows(certificate: Certificate) -> tuple[list[Row], float]:
    """The predicted excess loss with its band, cut off where the axis ends, and that end."""
    matters = [certificate.base_regret.value, certificate.penalty.high, 0.01]
    top = CAP * max(v for v in matters if math.isfinite(v))
    rows: list[Row] = [
        {
            "x": p.at,
            "value": min(p.value, top),
            "low": min(p.low, top),
            "high": min(p.high, top),
            "excess": p.value,
        }
        for p in certificate.penalty_curve
    ]
    return rows, top


def _rates(certificate: Certificate) -> list[Row]:
    """The rates to mark: the predicted one, and the base's own where it is another."""
    predicted = certificate.predicted.value
    marks: list[Row] = [{"x": predicted, "text": "predicted", "outside": "right"}]
    base = (o.log2_lr for o in certificate.optima if o.size == certificate.base and o.log2_lr.known)
    at_base = next(base, None)
    if at_base is not None and abs(at_base.value - predicted) > 1e-9:
        below = at_base.value < predicted
        marks.append({"x": at_base.value, "text": "base", "outside": "left" if below else "right"})
        marks[0]["outside"] = "right" if below else "left"
    return marks


def _positions(certificate: Certificate) -> tuple[str, list[float], float]:
    """The axis' title, the position of every size on it, and the target's.

    With one axis varied that axis; with several, the geometric mean of their ratios to the base,
    along the way to the target.
    """
    varied, target = _varied(certificate), certificate.target
    if len(varied) == 1:
        axis = varied[0]
        return axis, [float(o.size[axis]) for o in certificate.optima], float(target[axis])
    return (
        f"size: geometric mean of {' and '.join(varied)}, over the base's",
        [_growth(certificate, o.size) for o in certificate.optima],
        _growth(certificate, target),
    )


def _growth(certificate: Certificate, size: Mapping[str, float]) -> float:
    """The geometric mean of a size's ratios to the base along the axes varied."""
    varied = _varied(certificate)
    logs = [math.log2(size[axis] / certificate.base[axis]) for axis in varied]
    result: float = 2.0 ** (sum(logs) / len(logs))
    return result


def _along(certificate: Certificate, at: float) -> float:
    """The position of a fraction of the way from base to target."""
    varied, base, target = _varied(certificate), certificate.base, certificate.target
    if len(varied) == 1:
        axis = varied[0]
        return float(base[axis] * (target[axis] / base[axis]) ** at)
    result: float = _growth(certificate, target) ** at
    return result


def _moved(certificate: Certificate, optimum: Optimum, position: float) -> float:
    """What takes an optimum along the law to the same position on the way to the target.

    Nothing where one axis varies.
    """
    varied, base, target = _varied(certificate), certificate.base, certificate.target
    if len(varied) == 1 or not certificate.law:
        return 0.0
    whole = math.log2(_growth(certificate, target))
    part = math.log2(position) / whole if whole else 0.0
    return sum(
        s.estimate.value
        * (
            part * math.log2(target[s.axis] / base[s.axis])
            - math.log2(optimum.size[s.axis] / base[s.axis])
        )
        for s in certificate.slopes
    )


def _varied(certificate: Certificate) -> list[str]:
    axes = list(certificate.base)
    varied = [a for a in axes if len({o.size[a] for o in certificate.optima}) > 1]
    return varied or axes[-1:]


def _drawn(end: float, value: float) -> float:
    """An interval's end where there is one, else the value itself."""
    return end if math.isfinite(end) else value
