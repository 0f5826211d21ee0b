"""The charts of a certificate: the law up to the target, and excess loss against learning rate."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from depthmup.records import Certificate, Optimum
from depthmup.records.sizes import size_name
from depthmup.records.text import MUTED
from depthmup.reports.axes import Axis, plain, size_axis
from depthmup.reports.chart import (
    DASHED,
    EDGE_SHAPES,
    GREY,
    Chart,
    Layer,
    against_size,
    known,
    powers,
)
from depthmup.reports.page import Plot
from depthmup.reports.study_rows import Row
from depthmup.reports.theme import BLUE, INK

CAP = 4.0
"""The chart of excess loss ends at this many times the largest value of interest, since near
divergence it grows without bound and would squash the rest."""


def _law(certificate: Certificate) -> Plot:
    """The best value against size, the fitted law and its 90% band, to the target."""
    varied, _ = _varied(certificate)
    axis = varied[0]
    if len(varied) > 1:
        axis = f"size: geometric mean of {' and '.join(varied)}, over the base's"
    target = _position(certificate, certificate.target)
    name, unit = certificate.tuned.name, certificate.rate_unit
    points = _optima(certificate)
    band = [{"x": _along(certificate, p.at), **powers(p, unit=unit)} for p in certificate.law]
    drawn = [row[end] for row in (*points, *band) for end in ("value", "band_low", "band_high")]
    held = [math.log2(v) for v in drawn if known(v) and v > 0] or [
        math.log2(unit) - 1,
        math.log2(unit) + 1,
    ]
    air = max(0.25, 0.08 * (max(held) - min(held)))
    predicted = certificate.predicted
    aims = [{"x": target, **powers(predicted, unit=unit)}] if predicted.known else []
    tips = [
        ("size", "size", ""),
        ("best", f"best {name}", ".3~g"),
        ("measured", "its log2", ".3f"),
        ("place", "place", ""),
    ]
    lead = f"Dots: the best {name} of each size, with its 90% interval over seeds."
    if any(row["mark"] in EDGE_SHAPES for row in points):
        lead += " Triangles: on the edge of the grid."
    if certificate.issued:
        lead += (
            " Dashed: the fitted law, with its 90% band, which grows with the distance. Diamond: "
            "its prediction."
        )
    chart = Chart(
        layers=against_size(points, by="scheme", tips=tips, lines=(), bands=band, aims=aims),
        x=size_axis(axis, [*(_position(certificate, o.size) for o in certificate.optima), target]),
        y=plain(min(held) - air, max(held) + air, f"best {name}"),
        colours={certificate.scheme: BLUE},
        shapes={certificate.scheme: "circle", **EDGE_SHAPES},
        description=f"Best {name} against size with the fitted law, up to the target",
    )
    return Plot(title="The law, up to the target", lead=lead, chart=chart)


def _penalty(certificate: Certificate) -> Plot:
    """The predicted excess loss of each learning rate at the target, with its 90% band."""
    rows, top = _excess_rows(certificate)
    name, expected = certificate.tuned.name, certificate.value
    log2 = [math.log2(row["x"]) for row in rows]
    marks = _rates(certificate)
    best = [{"low": expected.low, "high": expected.high}]
    grey = {"color": MUTED}
    curve: dict[str, Any] = {"x": "x", "rows": rows}
    chart = Chart(
        layers=[
            Layer(mark="rect", rows=best, x="low", x2="high",
                  look={"color": BLUE, "opacity": 0.12}),
            Layer(mark="area", **curve, y="low", y2="high",
                  look={**GREY, "clip": True}),
            Layer(mark="line", **curve, y="value",
                  look={"color": INK, "strokeWidth": 2, "clip": True},
                  tips=[("x", name, ".3~g"), ("log2", "its log2", ".2f"),
                        ("excess", "loss above the best", ".2~p")]),
            Layer(mark="rule", rows=marks, x="x", look=DASHED),
            # Lines that are near each other have their words on their outer sides.
            Layer(mark="text", rows=marks, x="x", text="text", where="datum.outside === 'right'",
                  look={"align": "left", "dx": 5, "y": 10, **grey}),
            Layer(mark="text", rows=marks, x="x", text="text", where="datum.outside === 'left'",
                  look={"align": "right", "dx": -5, "y": 10, **grey}),
        ],
        x=plain(min(log2), max(log2), f"{name} at the base", grid=False),
        y=Axis(title="loss above the best", low=0, high=top, format=".2~p"),
        description=f"Predicted loss above the best at the target against {name}",
    )  # fmt: skip
    return Plot(
        title=f"The cost of {certificate.tuned.one} at the target",
        lead=(
            "The loss above the best at the target, as predicted, with its 90% band. Blue: where "
            f"the best {name} is expected."
        ),
        chart=chart,
    )


CERTIFICATE_CHARTS: dict[str, Callable[[Certificate], Plot]] = {"law": _law, "penalty": _penalty}
"""Both charts by the names of their figures."""


def _optima(certificate: Certificate) -> list[Row]:
    """Measured optima, moved along the law to their positions."""
    unit = certificate.rate_unit
    return [
        {
            "x": _position(certificate, o.size),
            **powers(o.log2_lr, unit=unit, moved=_moved(certificate, o)),
            "best": unit * 2.0**o.log2_lr.value,
            "measured": o.log2_lr.value,
            "scheme": certificate.scheme,
            "mark": o.place.value if o.place.value in EDGE_SHAPES else certificate.scheme,
            "size": size_name(o.size),
            "place": o.place.value,
        }
        for o in certificate.optima
        if o.log2_lr.known
    ]


def _excess_rows(certificate: Certificate) -> tuple[list[Row], float]:
    """The predicted excess loss with its band, cut off where the axis ends, and that end."""
    matters = [certificate.base_regret.value, certificate.penalty.high, 0.01]
    top = CAP * max(v for v in matters if math.isfinite(v))
    rows: list[Row] = [
        {
            "x": certificate.rate_unit * 2.0**p.at,
            "log2": p.at,
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
    predicted, unit = certificate.predicted.value, certificate.rate_unit
    marks: list[Row] = [{"x": unit * 2.0**predicted, "text": "predicted", "outside": "right"}]
    base = (o.log2_lr for o in certificate.optima if o.size == certificate.base and o.log2_lr.known)
    at_base = next(base, None)
    if at_base is not None and abs(at_base.value - predicted) > 1e-9:
        below, x = at_base.value < predicted, unit * 2.0**at_base.value
        marks.append({"x": x, "text": "base", "outside": "left" if below else "right"})
        marks[0]["outside"] = "right" if below else "left"
    return marks


def _position(certificate: Certificate, size: Mapping[str, float]) -> float:
    """Where a size stands on the axis: with one axis varied its value along that.

    With several, the geometric mean of their ratios to the base, along the way to the target.
    """
    varied, base = _varied(certificate)
    logs = [math.log2(size[axis] / certificate.base[axis]) for axis in varied]
    result: float = base * 2.0 ** (sum(logs) / len(logs))
    return result


def _along(certificate: Certificate, at: float) -> float:
    """The position of a fraction of the way from base to target."""
    base = _varied(certificate)[1]
    result: float = base * (_position(certificate, certificate.target) / base) ** at
    return result


def _moved(certificate: Certificate, optimum: Optimum) -> float:
    """The shift of an optimum along the law to its position; nothing where one axis varies."""
    (varied, unit), base, target = _varied(certificate), certificate.base, certificate.target
    if len(varied) == 1 or not certificate.law:
        return 0.0
    whole = math.log2(_position(certificate, target) / unit)
    part = math.log2(_position(certificate, optimum.size) / unit) / whole if whole else 0.0
    return sum(
        s.estimate.value
        * (
            part * math.log2(target[s.axis] / base[s.axis])
            - math.log2(optimum.size[s.axis] / base[s.axis])
        )
        for s in certificate.slopes
    )


def _varied(certificate: Certificate) -> tuple[list[str], float]:
    """The axes along which sizes were measured, and the base's position."""
    axes = list(certificate.base)
    varied = [a for a in axes if len({o.size[a] for o in certificate.optima}) > 1] or axes[-1:]
    return varied, float(certificate.base[varied[0]]) if len(varied) == 1 else 1.0
