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

CURVATURE_SCALE = 0.3
"""Prior scale of the departures of log2 curvature from its law: a curvature is a second
difference, and far less sharp than an optimum."""


def averages(losses: Array) -> Array:
    averaged: Array = np.log(losses).mean(-1)
    return averaged


def curvature(rates: Array, log_losses: Array) -> float | None:
    """c in log loss = min + c u^2 around the optimum, from the parabola that gives the optimum."""
    if vertex(list(rates), log_losses).place is not Place.INTERIOR:
        return None
    i = int(np.argmin(np.where(np.isfinite(log_losses), log_losses, np.inf)))
    x, y = rates[i - 1 : i + 2], log_losses[i - 1 : i + 2]
    if not np.isfinite(y).all():
        return None
    slopes = np.diff(y) / np.diff(x)
    found = float((slopes[1] - slopes[0]) / (x[2] - x[0]))
    return found if found > 0 else None


def measured_optimum(size: Size, rates: Array, losses: Array, chance: float) -> SizeOptimum:
    """One size's optimum with 90% intervals over seeds."""
    found = vertex(list(rates), averages(losses))
    place = found.place if found.log_loss < math.log(chance) else Place.FAILED

    def over_seeds(read: Callable[[Array], float | None]) -> Estimate:
        value = read(averages(losses))
        seeds = losses.shape[-1]
        if value is None or not math.isfinite(value):
            return UNKNOWN
        if seeds < 2:
            return Estimate(value=value, low=-math.inf, high=math.inf)
        each = [read(averages(np.delete(losses, s, axis=-1))) for s in range(seeds)]
        without = np.array([math.nan if e is None else e for e in each])
        if not np.isfinite(without).all():
            return Estimate(value=value, low=-math.inf, high=math.inf)
        half = students_t(seeds - 1, CONFIDENCE) * jackknife_error(without)
        return Estimate(value=value, low=value - half, high=value + half)

    def where() -> Estimate:
        """Open towards the outside at an edge of the grid."""
        around = over_seeds(lambda curve: vertex(list(rates), curve).at)
        if place is Place.LOW_EDGE:
            return replace(around, low=-math.inf, high=around.value)
        if place is Place.HIGH_EDGE:
            return replace(around, low=around.value, high=math.inf)
        return around

    def loss(curve: Array) -> float:
        return math.exp(vertex(list(rates), curve).log_loss)

    return SizeOptimum(
        width=size[0],
        depth=size[1],
        log2_lr=where() if place is not Place.FAILED else UNKNOWN,
        curvature=over_seeds(lambda curve: curvature(rates, curve)),
        loss=over_seeds(loss) if place is not Place.FAILED else UNKNOWN,
        place=place,
    )


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
        def places(some: Array) -> Array:
            return np.array([vertex(list(rates), c).at for c in averages(some)])

        def curvatures(some: Array) -> Array:
            return np.array([math.log2(curvature(rates, c) or math.nan) for c in averages(some)])

        def best(some: Array) -> Array:
            return np.array([vertex(list(rates), c).log_loss for c in averages(some)])

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

    The parabola between its three points, straight lines between the others, on beyond the grid's
    ends; infinite from the first rate that diverged.
    """
    found = vertex(list(rates), curve)
    x, u = rates - found.at, np.asarray(octaves, float)
    finite = np.isfinite(curve)
    i = int(np.argmin(np.where(finite, curve, np.inf)))
    last = i + int(np.argmin(np.append(finite[i:], False))) - 1  # the last before a divergence
    first = i - int(np.argmin(np.append(finite[i::-1], False))) + 1
    inner_x, inner_y = x[first : last + 1], curve[first : last + 1] - found.log_loss
    value = np.interp(u, inner_x, inner_y)
    left = (inner_y[1] - inner_y[0]) / (inner_x[1] - inner_x[0])
    right = (inner_y[-1] - inner_y[-2]) / (inner_x[-1] - inner_x[-2])
    value = np.where(u < inner_x[0], inner_y[0] + left * (u - inner_x[0]), value)
    beyond = inner_y[-1] + right * (u - inner_x[-1]) if last == len(rates) - 1 else np.inf
    value = np.where(u > inner_x[-1], beyond, value)
    bent = curvature(rates, curve)
    near = (u >= x[i - 1]) & (u <= x[i + 1])
    result: Array = np.maximum(np.where(near & bool(bent), (bent or 0.0) * u**2, value), 0.0)
    return result
