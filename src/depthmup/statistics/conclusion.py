"""What an issued certificate says of its target: the optimum, its excess losses and the verdict."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from depthmup.records import LEARNING_RATE, Estimate, Tuned
from depthmup.records.certificate import AxisSlope, BandPoint, Metrics
from depthmup.records.finding import verdict_of, verdict_of_all
from depthmup.statistics.certificate_laws import CertificateLaws, volume
from depthmup.statistics.design_refusals import FARTHEST
from depthmup.statistics.intervals import Array
from depthmup.statistics.law import CONFIDENCE, Law, Predicted, Size, predict


def conclude(
    laws: CertificateLaws,
    sizes: Sequence[Size],
    base: Size,
    target: Size,
    tolerance: float,
    tuned: Tuned = LEARNING_RATE,
) -> dict[str, Any]:
    """Everything that an issued certificate says."""
    # Of the place of all minima alike, powers of two sides miss a part.
    alike = float(laws.found.valley.alike)

    def optimum(size: Size) -> Predicted:
        return predict(laws.optimum, size).blurred(alike, stream=3)

    largest = max(laws.clear.tolist(), key=lambda i: volume(sizes[i]))

    def excess_at(size: Size) -> Callable[[float], Estimate]:
        """The excess loss of a learning rate, as a fraction, at a size that was not trained."""
        # log2 curvature over that of the largest size, whose valley is used.
        stretch = predict(laws.curvature, size, minus=sizes[largest])
        best = optimum(size)
        return lambda log2_lr: _excess_loss(
            stretch.draws, laws.found.excess(largest, log2_lr - best.draws)
        )

    slopes = _slopes(laws.optimum, base, target)
    at_target, handed_on = optimum(target), _handed_on(laws.optimum, base)
    best = predict(laws.loss, target).estimate()
    predicted = at_target.estimate(f"log2 {tuned.name} at the base")
    # An octave and a half beyond both rates: the curve's walls are in view on either side.
    low, high = min(predicted.low, handed_on) - 1.5, max(predicted.high, handed_on) + 1.5
    there = excess_at(target)
    return {
        "slopes": slopes,
        "predicted": predicted,
        "penalty": there(at_target.value),
        "base_regret": there(handed_on),
        "best_loss": Estimate(
            value=math.exp(best.value), low=math.exp(best.low), high=math.exp(best.high)
        ),
        "metrics": Metrics(
            fit_error=laws.optimum.fit_error,
            robustness=_slopes(laws.curvature, base, target),
            horizon_penalty=excess_at(_horizon(laws.optimum, sizes, target))(handed_on),
        ),
        "verdict": verdict_of_all(
            verdict_of(slope.estimate, -tolerance, tolerance) for slope in slopes
        ),
        "law": _law_band(laws.optimum, base, target),
        "penalty_curve": tuple(
            _point(float(k), there(float(k))) for k in np.linspace(low, high, 61)
        ),
    }


def _excess_loss(stretch: Array, above: Array) -> Estimate:
    """The fraction by which the loss exceeds the best: its median, and 5% to 95%."""
    with np.errstate(over="ignore"):
        # Few seeds draw stretches beyond any power of two: their product would be no number.
        draws = np.expm1(2.0 ** np.clip(stretch, -1000, 1000) * above)
    tail = (1 - CONFIDENCE) / 2
    # A quantile is one of the draws: between a finite and an infinite one there is nothing.
    low, value, high = np.quantile(draws, [tail, 0.5, 1 - tail], method="inverted_cdf")
    return Estimate(value=float(value), low=float(low), high=float(high), unit="of the loss")


def _horizon(law: Law, sizes: Sequence[Size], target: Size) -> Size:
    """Sixteen times the largest size measured along every axis varied, where the law reaches."""
    horizon = {
        axis: FARTHEST * max(size[axis] for size in sizes) if axis in law.axes else sizes[0][axis]
        for axis in law.base
    }
    return horizon if law.reaches(horizon) else target


def _handed_on(law: Law, base: Size) -> float:
    """The learning rate that the base would hand on: its optimum as measured, else the law's."""
    for size, value in zip(law.sizes, law.values, strict=True):
        if size == base:
            return float(value)
    return predict(law, base).value


def _slopes(law: Law, base: Size, target: Size) -> tuple[AxisSlope, ...]:
    """The law's slope along each axis; axes in step have one."""
    firsts = {axes[0]: axes for axes in law.in_step}
    others = {axis for axes in law.in_step for axis in axes[1:]}
    return tuple(
        _slope(law, firsts.get(axis, (axis,)), base, target)
        for axis in law.axes
        if axis not in others
    )


def _slope(law: Law, axes: Sequence[str], base: Size, target: Size) -> AxisSlope:
    """The mean slope from base to target along an axis, or along axes in step, of its first.

    Where the target is no larger than the base, that to the largest size, or to the smallest.

    The slope may depend on the other axes: it is the mean of that at the base's and that at the
    target's, so that the changes along all axes add up to that from the base to the target.
    """
    axis = axes[0]
    ends = (target, *(pick(law.sizes, key=lambda size: size[axis]) for pick in (max, min)))
    to = next(size for size in ends if size[axis] != base[axis])
    doublings = math.log2(to[axis] / base[axis])
    changes = []
    for others in (base, target):
        start = {**others, **{a: base[a] for a in axes}}
        end = {**others, **{a: to[a] for a in axes}}
        changes.append(predict(law, end, minus=start))
    at_base, at_target = changes
    # Their errors are those of one law, drawn with the same numbers.
    change = Predicted(
        value=(at_base.value + at_target.value) / 2, draws=(at_base.draws + at_target.draws) / 2
    ).estimate()
    low, high = sorted((change.low / doublings, change.high / doublings))
    return AxisSlope(
        axis=axis,
        estimate=Estimate(
            value=change.value / doublings, low=low, high=high, unit=f"per doubling of {axis}"
        ),
        together=tuple(axes[1:]),
    )


def _law_band(law: Law, base: Size, target: Size) -> tuple[BandPoint, ...]:
    """The law from the base to the target along the straight line of log sizes.

    ``at`` is the fraction of the way from base to target.
    """
    points = []
    for way in np.linspace(0, 1, 33):
        size = {a: base[a] * (target[a] / base[a]) ** float(way) for a in base}
        band = predict(law, size).estimate()
        points.append(_point(float(way), band))
    return tuple(points)


def _point(at: float, estimate: Estimate) -> BandPoint:
    return BandPoint(at=at, value=estimate.value, low=estimate.low, high=estimate.high)
