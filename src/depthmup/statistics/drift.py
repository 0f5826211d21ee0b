"""How the optimum moves with size, what that costs, and the verdict.

The drift is the least-squares slope of the best log2 learning rate against log2 size: 0 means
transfer. Its interval, from several seeds or from one, is that of ``statistics.regression``.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from depthmup.records import (
    LEARNING_RATE,
    UNKNOWN,
    Axis,
    Estimate,
    Optimum,
    Place,
    Tuned,
    Verdict,
)
from depthmup.records.finding import change, change_span
from depthmup.records.study import sizes_along
from depthmup.statistics.curve import Curves
from depthmup.statistics.intervals import CONFIDENCE, Array, Numbers, around, student
from depthmup.statistics.optimum import Optima, optima
from depthmup.statistics.regression import PRIOR_FREEDOM, line_of

TOLERANCE = 0.15
"""Octaves per doubling of size within which an optimum counts as staying where it is."""

EXCESS_UNIT = "nats of training loss"

LARGEST_TOLERANCE = 100.0
"""Octaves per doubling, which no optimum moves; as a factor it must be a number."""


def check_tolerance(tolerance: float) -> None:
    """Refuse a tolerance that no drift can be compared with."""
    if not (isinstance(tolerance, int | float) and 0 < tolerance <= LARGEST_TOLERANCE):
        raise ValueError(
            "Expected a positive tolerance in octaves per doubling, at most "
            f"{LARGEST_TOLERANCE:g}; got {tolerance}."
        )


def drift_unit(axis: Axis, tuned: Tuned = LEARNING_RATE) -> str:
    """The unit of a drift.

    Example:
        >>> drift_unit("depth")
        'octaves of learning rate per doubling of depth'
    """
    return f"{tuned.octaves} per doubling of {axis}"


def drifts(positions: Numbers, fitted: Optima) -> tuple[Array, Array]:
    """Least-squares slopes of optima against positions, and half-widths of their 95% intervals."""
    line = line_of(positions, fitted)
    return line.value(line.rows[1]), line.half(line.rows[1])


def drift(
    sizes: Sequence[float],
    log2_lrs: Sequence[Numbers] | Numbers,
    losses: Sequence[Array] | Array,
    *,
    axis: Axis = "depth",
) -> Estimate:
    """How the optimum moves along an axis, in octaves per doubling: 0 means transfer."""
    unit = drift_unit(axis)
    if len(sizes) < 2:
        return replace(UNKNOWN, unit=unit)
    fitted = optima(Curves.of(log2_lrs, losses))
    return around(*drifts(np.log2(np.asarray(sizes, float)), fitted), unit)


def measured(
    fitted: Optima,
    sizes: Sequence[Mapping[str, float]],
    *,
    confidence: float = CONFIDENCE,
) -> tuple[Optimum, ...]:
    """Every size's best learning rate, loss and curvature, with intervals.

    At an edge of the grid the interval is open towards the outside. With one seed, the interval of
    the loss is from the scatter of points.
    """
    return tuple(_optimum(fitted, i, size, confidence) for i, size in enumerate(sizes))


def _optimum(fitted: Optima, i: int, size: Mapping[str, float], confidence: float) -> Optimum:
    location = fitted.places()[i]
    if location is Place.FAILED or not math.isfinite(fitted.centre[i]):
        return Optimum(size=dict(size), log2_lr=UNKNOWN, loss=UNKNOWN, place=Place.FAILED)
    loss = loss_estimate(fitted, i, confidence)
    error, freedom = fitted.curvature_scatter[i], np.asarray(float(PRIOR_FREEDOM))
    if fitted.curves.fewest_seeds < 2:
        # The level of one curve scatters by no more than its points do.
        half = float(student(4, confidence)) * math.sqrt(float(fitted.point_variance))
        if half > 0:  # else no curve has points to spare, and nothing is known
            low, high = (loss.value * math.exp(sign * half) for sign in (-1, 1))
            loss = Estimate(value=loss.value, low=low, high=high)
    else:
        error, freedom = fitted.seed_error(fitted.curvature_without[i])
    return Optimum(
        size=dict(size),
        log2_lr=rate_estimate(fitted, i, confidence),
        loss=loss,
        place=location,
        curvature=around(fitted.curvature[i], student(freedom, confidence) * error),
    )


def rate_estimate(fitted: Optima, size: int, confidence: float = CONFIDENCE) -> Estimate:
    """One size's best log2 learning rate: seeds, what the fit misses, and the asymmetry."""
    value = float(fitted.at[size])
    if fitted.lowest[size] in (fitted.first[size], fitted.last[size]):
        low_edge = fitted.lowest[size] == fitted.first[size]
        return Estimate(
            value=value,
            low=-math.inf if low_edge else value,
            high=value if low_edge else math.inf,
        )
    sides = fitted.sides
    # ``scatter`` is that of one more size about the mean; this size is one of those averaged.
    own = sides.scatter / math.sqrt(2)
    systematic = math.hypot(fitted.misfit[size], own, sides.asymmetry_error)
    if fitted.curves.fewest_seeds < 2:
        error = math.hypot(systematic, fitted.scatter[size])
        return around(value, float(student(PRIOR_FREEDOM, confidence)) * error)
    scatter, freedom = fitted.seed_error(fitted.centre_without[size])
    half = math.hypot(
        float(student(freedom, confidence) * scatter),
        float(student(math.inf, confidence)) * systematic,
    )
    return around(value, half)


def loss_estimate(fitted: Optima, size: int, confidence: float) -> Estimate:
    """One size's best loss; the interval is that of its logarithm."""
    error, freedom = fitted.seed_error(fitted.log_loss_without[size])
    half = float(student(freedom, confidence) * error)
    log = float(fitted.log_loss[size])
    with np.errstate(over="ignore"):
        low, value, high = (float(np.exp(v)) for v in (log - half, log, log + half))
    return Estimate(value=value, low=low, high=high)


def excess_loss(fitted: Optima, base: int, target: int) -> Estimate:
    """Loss at a size with another's best learning rate, minus its own best loss."""

    def of(gap: float, log_losses: Array, level: float) -> float:
        """Excess loss in nats, from the target's averages: all seeds', or those without one."""
        above = fitted.excess(target, gap, log_losses=log_losses, level=level)
        return float(np.exp(level) * np.expm1(above))

    gap = float(fitted.centre[base] - fitted.centre[target])
    value = of(gap, fitted.log_losses[target], float(fitted.log_loss[target]))
    if not math.isfinite(value):
        return Estimate(value=value, low=value, high=value, unit=EXCESS_UNIT)
    if np.isnan(fitted.averages_without[target]).any():  # a seed that stands almost alone
        return around(value, math.inf, EXCESS_UNIT)
    gaps = fitted.centre_without[base] - fitted.centre_without[target]
    tried = np.where(np.isfinite(fitted.log_losses[target]), 0.0, fitted.log_losses[target])
    without = np.array(
        [
            of(float(gaps[s]), averages + tried, float(level))
            for s, (averages, level) in enumerate(
                zip(fitted.averages_without[target], fitted.log_loss_without[target], strict=True)
            )
        ]
    )
    error, freedom = fitted.seed_error(without)
    half = float(error) * float(student(freedom)) if math.isfinite(float(error)) else math.inf
    return around(value, half, EXCESS_UNIT)


def judge(
    optima: Sequence[Optimum],
    drift: Estimate,
    *,
    seeds: int,
    tolerance: float = TOLERANCE,
    axis: Axis = "depth",
    tuned: Tuned = LEARNING_RATE,
    bounds: Collection[int] = (),
) -> tuple[Verdict, str]:
    """Whether the optimum transfers along an axis, in one word and a sentence or two.

    Transfers: the whole interval of the drift is inside +-tolerance, and every size trains.
    Drifts: it is all outside. Undecided: anything else. An optimum at an edge of its grid is a
    bound: where the drift does not put it there, nothing is decided.

    *Source:* an interval inside a margin shows equivalence: Schuirmann (1987), Journal of
    Pharmacokinetics and Biopharmaceutics 15:657-680.
    """
    numbered = list(enumerate(optima))

    def at(*places: Place, bound: bool = False) -> str:
        return _listed(
            o.size[axis] for i, o in numbered if o.place in places and (i in bounds) is bound
        )

    failed = at(Place.FAILED)
    span = change_span(drift.low, drift.high)
    allowed = change_span(-tolerance, tolerance)
    fails = f" At {axis} {failed} no {tuned.name} trains." if failed else ""
    source = "" if seeds > 1 else " One seed: the interval is from the scatter of sizes."
    low, high = at(Place.LOW_EDGE), at(Place.HIGH_EDGE)
    if low or high:
        sides = [f"downwards ({axis} {low})"] * bool(low)
        sides += [f"upwards ({axis} {high})"] * bool(high)
        return Verdict.UNDECIDED, (
            f"The best {tuned.name} is at the edge of the grid: extend it {' and '.join(sides)}."
            + fails
        )
    if not drift.known:
        return (
            Verdict.UNDECIDED,
            f"Fewer than two {sizes_along(axis)} have an optimum to compare." + fails,
        )
    if edges := at(Place.LOW_EDGE, Place.HIGH_EDGE, bound=True):
        source += f" At {axis} {edges} it lies at an edge of the grid: a bound, which agrees."
    if math.isinf(drift.high - drift.low):
        return Verdict.UNDECIDED, (
            f"The change of {change(drift.value)} per doubling of {axis} has no bounds: "
            f"seeds scatter more than {tuned.the} matters around some optimum. Use more seeds, a "
            f"longer window, or a wider spacing of {tuned.plural}.{fails}"
        )
    if drift.outside(-tolerance, tolerance):
        return Verdict.DRIFTS, (
            f"The optimum moves by {change(drift.value)} per doubling of {axis}, "
            f"95% interval {span}, outside {allowed}.{source}{fails}"
        )
    if drift.inside(-tolerance, tolerance) and not failed:
        # A bound shows less than an optimum: what transfers is what was measured.
        known = [o.size[axis] for o in optima if o.place is Place.INTERIOR]
        the = f"Up to {axis} {max(known):.10g} the" if known else "The"
        return Verdict.TRANSFERS, (
            f"{the} optimum moves by {change(drift.value)} per doubling of {axis}, "
            f"95% interval {span}, inside {allowed}.{source}"
        )
    if failed:
        return Verdict.UNDECIDED, (
            f"Where it trains, the optimum moves by {change(drift.value)} per doubling of "
            f"{axis}, 95% interval {span}.{source}{fails}"
        )
    return Verdict.UNDECIDED, (
        f"The interval {span} per doubling of {axis} is neither inside nor outside {allowed}."
        f"{source}"
    )


def _listed(values: Iterable[float]) -> str:
    """Different values of an axis, increasing."""
    return ", ".join(f"{value:.10g}" for value in sorted(set(values)))


def change_of_shape(
    trend: Estimate, drift: Estimate, middle: float, *, tolerance: float, axis: Axis
) -> str:
    """A sentence where the middle of the valley drifts otherwise than its minimum, else nothing.

    Said where valleys certainly grow more or less lopsided with size, by enough to matter: a third
    of the tolerance per doubling. ``trend`` is that of the distance from centre to minimum, as
    ``asymmetry_trend`` measures it, ``drift`` that of the minima, ``middle`` that of the centres.
    """
    certain = trend.known and trend.outside(0.0, 0.0)
    if not certain or not drift.known or abs(trend.value) < tolerance / 3:
        return ""
    return (
        f" The valley changes its shape with {axis}. The drift is that of its lowest point; its "
        f"middle moves by {change(middle)} per doubling."
    )
