"""The shape of a curve of loss against learning rate: its optimum, its curvature, its price."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from depthmup.records import UNKNOWN, Estimate, Place
from depthmup.records.certificate import SizeOptimum
from depthmup.sweep.law import CONFIDENCE, Array, Law, Prediction, Size, fit
from depthmup.sweep.optimum import vertex

SPAN = 1.0
"""Octaves to each side of the lowest point that a parabola is fitted to."""

CURVATURE_SCALE = 3.0
"""Of the departures of log2 curvature, over those of the optimum: a curvature is a second
difference, and far less sharp."""


def averages(losses: Array) -> Array:
    averaged: Array = np.log(losses).mean(-1)
    return averaged


@dataclass(frozen=True, kw_only=True, slots=True)
class Valley:
    """The parabola around the lowest point of a curve: log loss = log_loss + curvature (k - at)^2.

    ``linear`` are the weights of the log losses at ``points`` in the curvature.
    """

    at: float
    log_loss: float
    curvature: float
    points: tuple[int, ...]
    linear: Array


def lowest(curve: Array) -> int:
    """The index of the lowest point; of a curve without a finite one, 0."""
    return int(np.argmin(np.where(np.isfinite(curve), curve, np.inf)))


def valley(rates: Array, curve: Array, centre: int | None = None) -> Valley | None:
    """The least-squares parabola through the points within an octave of the lowest.

    At least through its two neighbours, and equally far to both sides; with a grid of whole
    octaves this is the parabola that ``optimum.vertex`` starts from. None at an edge of the grid,
    next to a learning rate that diverged, and where the parabola has no minimum among its points.

    ``centre`` replaces the lowest point: leaving out a seed must not change what is fitted.
    """
    i = lowest(curve) if centre is None else centre
    if not 0 < i < len(rates) - 1:
        return None
    x = rates - rates[i]
    reach = max(min(SPAN, -x[0], x[-1]), -x[i - 1], x[i + 1]) + 1e-9
    near = np.abs(x) <= reach
    near[i - 1 : i + 2] = True
    if not np.isfinite(curve[i - 1 : i + 2]).all():
        return None
    points = np.flatnonzero(near & np.isfinite(curve))
    solve = np.linalg.pinv(np.vander(x[points], 3, increasing=True))
    level, slope, bent = solve @ curve[points]
    if not bent > 0 or abs(slope) > 2 * bent * reach:
        return None
    off = -slope / (2 * bent)
    return Valley(
        at=float(rates[i] + off),
        log_loss=float(level - bent * off**2),
        curvature=float(bent),
        points=tuple(int(p) for p in points),
        linear=solve[2],
    )


def place_of(rates: Array, curve: Array, chance: float) -> Place:
    """Where the lowest point of a curve lies."""
    i = lowest(curve)
    if not curve[i] < math.log(chance):
        return Place.FAILED
    if i == 0:
        return Place.LOW_EDGE
    return Place.HIGH_EDGE if i == len(rates) - 1 else Place.INTERIOR


def measured_optimum(size: Size, rates: Array, losses: Array, chance: float) -> SizeOptimum:
    """One size's optimum with 90% intervals over seeds, open outwards at an edge of the grid."""
    curve = averages(losses)
    place, i, seeds = place_of(rates, curve, chance), lowest(curve), losses.shape[-1]
    found = valley(rates, curve)
    if place is Place.FAILED or found is None:
        at = Estimate(value=float(rates[i]), low=-math.inf, high=math.inf)
        if place is Place.LOW_EDGE:
            at = replace(at, high=at.value)
        elif place is Place.HIGH_EDGE:
            at = replace(at, low=at.value)
        loss = Estimate(value=math.exp(curve[i]), low=0.0, high=math.inf)
        failed = place is Place.FAILED
        return SizeOptimum(
            width=size[0],
            depth=size[1],
            log2_lr=UNKNOWN if failed else at,
            curvature=UNKNOWN,
            loss=UNKNOWN if failed else loss,
            place=place,
        )
    curves = [averages(np.delete(losses, s, axis=-1)) for s in range(seeds * (seeds > 1))]
    without = [valley(rates, each, i) for each in curves]

    def over_seeds(value: float, each: list[float]) -> Estimate:
        half = math.inf
        if without and None not in without:
            half = students_t(seeds - 1, CONFIDENCE) * jackknife_error(np.array(each))
        return Estimate(value=value, low=value - half, high=value + half)

    def of_valley(read: Callable[[Valley], float]) -> Estimate:
        return over_seeds(read(found), [read(v) for v in without if v is not None])

    return SizeOptimum(
        width=size[0],
        depth=size[1],
        log2_lr=of_valley(lambda v: v.at),
        curvature=of_valley(lambda v: v.curvature),
        loss=over_seeds(best_loss(rates, curve), [best_loss(rates, each) for each in curves]),
        place=place,
    )


def best_loss(rates: Array, curve: Array) -> float:
    """The loss at the optimum as reports have it: a valley's level may lie below any loss."""
    return math.exp(vertex(rates.tolist(), curve).log_loss)


def students_t(freedom: int, confidence: float) -> float:
    return float(stdtrit(freedom, (1 + confidence) / 2))


def jackknife_error(without: Array) -> float:
    """The jackknife's standard error."""
    seeds = len(without)
    return math.sqrt((seeds - 1) / seeds * float(np.sum((without - without.mean()) ** 2)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Laws:
    """The laws of the optimum, of log2 curvature and of the log of the best loss."""

    place: Law
    curvature: Law
    loss: Law

    @staticmethod
    def of(rates: Array, losses: Array, sizes: Sequence[Size], base: Size) -> "Laws":
        centres = [lowest(curve) for curve in averages(losses)]

        def read(some: Array, what: Callable[[Valley], float]) -> Array:
            found = [
                valley(rates, curve, i) for curve, i in zip(averages(some), centres, strict=True)
            ]
            return np.array([math.nan if v is None else what(v) for v in found])

        def places(some: Array) -> Array:
            return read(some, lambda v: v.at)

        def curvatures(some: Array) -> Array:
            return read(some, lambda v: math.log2(v.curvature))

        def best(some: Array) -> Array:
            return np.log([best_loss(rates, curve) for curve in averages(some)])

        return Laws(
            place=fit(places, losses, sizes, base),
            curvature=fit(curvatures, losses, sizes, base, scale=CURVATURE_SCALE, stream=1),
            loss=fit(best, losses, sizes, base, stream=2),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What a learning rate costs at a size that was not trained."""

    rates: Array
    curve: Array
    stretch: Prediction  # of log2 curvature, over that of the curve's size
    place: Prediction

    def of(self, log2_lr: float) -> Estimate:
        """The fraction by which the loss exceeds the best: its median, and 5% to 95%."""
        above = excess(self.rates, self.curve, log2_lr - self.place.draws)
        with np.errstate(over="ignore"):
            draws = np.expm1(2.0**self.stretch.draws * above)
        tail = (1 - CONFIDENCE) / 2
        low, value, high = np.quantile(draws, [tail, 0.5, 1 - tail], method="inverted_cdf")
        return Estimate(value=float(value), low=float(low), high=float(high), unit="of the loss")


def excess(rates: Array, curve: Array, octaves: Array) -> Array:
    """Log loss above the curve's minimum, that far from its optimum.

    The parabola among its points, straight lines between the others, on beyond the grid's ends;
    infinite from the last rate before a divergence.
    """
    found = valley(rates, curve)
    if found is None:
        raise ValueError("Expected a curve with its optimum inside the grid; got one without.")
    x, u = rates - found.at, np.asarray(octaves, float)
    finite = np.append(np.isfinite(curve), False)
    last = found.points[-1] + int(np.argmin(finite[found.points[-1] :])) - 1
    inner = np.flatnonzero(np.isfinite(curve[: last + 1]))
    inner_x, inner_y = x[inner], curve[inner] - found.log_loss
    left = (inner_y[1] - inner_y[0]) / (inner_x[1] - inner_x[0])
    right = (inner_y[-1] - inner_y[-2]) / (inner_x[-1] - inner_x[-2])
    value = np.interp(u, inner_x, inner_y)
    value = np.where(u < inner_x[0], inner_y[0] + left * (u - inner_x[0]), value)
    beyond = inner_y[-1] + right * (u - inner_x[-1]) if last == len(rates) - 1 else np.inf
    value = np.where(u > inner_x[-1], beyond, value)
    near = (u >= x[found.points[0]]) & (u <= x[found.points[-1]])
    result: Array = np.maximum(np.where(near, found.curvature * u**2, value), 0.0)
    return result
