"""Where the best learning rate is, how it moves with depth, and how sure that is.

Losses come as arrays (depths, learning rates, seeds), infinite where a run diverged.

The optimum of a size is the vertex of the parabola through the three points around the lowest
point of the curve of seed-averaged log losses. A learning rate at which any seed diverged is none
that one would choose, and is left out. The bias of the parabola on a lopsided curve is the same at
all sizes to leading order, so it leaves the drift alone. The loss there is the parabola's, but
where a wall on one side makes it dive, not below what a convex curve can be.

Every interval is a jackknife over seeds with Student's t. Seeds are the only thing that is drawn
anew: data, initialization and order are shared by all depths and learning rates of a seed, and
leaving out a whole seed respects that, whatever the correlations within it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from depthmup.records import UNKNOWN, Axis, Estimate, Optimum, Place, Verdict

Array = NDArray[np.float64]
CONFIDENCE = 0.95
TOLERANCE = 0.15
"""Octaves per doubling of depth within which an optimum counts as staying where it is."""

DRIFT_UNIT = "octaves of learning rate per doubling of {axis}"
REGRET_UNIT = "nats of training loss"


@dataclass(frozen=True, kw_only=True, slots=True)
class Vertex:
    """The lowest point of one curve."""

    at: float
    log_loss: float
    place: Place


def vertex(log2_lrs: Sequence[float], log_losses: Array) -> Vertex:
    """The minimum of a curve by the parabola through its lowest point and its neighbours.

    A neighbour that diverged bounds the minimum as a wall does: the lowest point itself is then
    the best that is known.

    Example:
        >>> found = vertex([-2, -1, 0, 1], np.array([4.0, 1.0, 0.0, 1.0]))
        >>> found.at, found.place.value
        (0.0, 'interior')
    """
    finite = np.flatnonzero(np.isfinite(log_losses))
    if not len(finite):
        return Vertex(at=math.nan, log_loss=math.inf, place=Place.FAILED)
    i = int(finite[np.argmin(log_losses[finite])])
    here = Vertex(at=float(log2_lrs[i]), log_loss=float(log_losses[i]), place=Place.INTERIOR)
    if i == 0:
        return Vertex(at=here.at, log_loss=here.log_loss, place=Place.LOW_EDGE)
    if i == len(log2_lrs) - 1:
        return Vertex(at=here.at, log_loss=here.log_loss, place=Place.HIGH_EDGE)
    bottom = _Bottom.of(log2_lrs, log_losses, i)
    if bottom is None:
        return here
    return Vertex(at=bottom.vertex, log_loss=bottom(bottom.vertex), place=Place.INTERIOR)


def log_loss_at(log2_lrs: Sequence[float], log_losses: Array, at: float) -> float:
    """The curve's value between its points: the vertex's parabola near it, else linear.

    Infinite where a neighbouring point diverged.
    """
    x = np.asarray(log2_lrs, float)
    center = int(np.argmin(np.where(np.isfinite(log_losses), log_losses, np.inf)))
    if 0 < center < len(x) - 1 and x[center - 1] <= at <= x[center + 1]:
        bottom = _Bottom.of(log2_lrs, log_losses, center)
        if bottom is not None:
            return bottom(at)
    i = int(np.clip(np.searchsorted(x, at), 1, len(x) - 1))
    value = float(np.interp(at, x[i - 1 : i + 1], log_losses[i - 1 : i + 1]))
    return value if math.isfinite(value) else math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bottom:
    """The parabola through a curve's lowest point and its neighbours, with a floor.

    A wall on one side makes the parabola dive on the other, below everything that was measured. But
    a convex curve falls towards its lowest point no steeper than it did before: it lies above the
    line through the two points on the way down, continued. The floor is where the parabola comes
    out of that line again. Where the way down became steeper, and so is not convex, it is the
    lowest point itself. The vertex's place stands: it scatters less between seeds.
    """

    vertex: float
    level: float
    curvature: float
    floor: float

    @staticmethod
    def of(log2_lrs: Sequence[float], log_losses: Array, i: int) -> "_Bottom | None":
        """The curve around its ``i``-th point, the lowest; none where it is flat or ends."""
        x, y = np.asarray(log2_lrs, float), np.asarray(log_losses, float)
        with np.errstate(invalid="ignore"):
            slopes = np.diff(y) / np.diff(x)
        left, right = slopes[i - 1], slopes[i]
        curvature = (right - left) / (x[i + 1] - x[i - 1])
        if not (math.isfinite(left) and math.isfinite(right) and curvature > 0):
            return None
        vertex = out = (x[i - 1] + x[i]) / 2 - left / (2 * curvature)
        if vertex < x[i] and i > 1 and math.isfinite(slopes[i - 2]):
            out = max(vertex, x[i] + min(slopes[i - 2] - left, 0.0) / curvature)
        elif vertex > x[i] and i + 1 < len(slopes) and math.isfinite(slopes[i + 1]):
            out = min(vertex, x[i] + max(slopes[i + 1] - right, 0.0) / curvature)
        level = y[i] - curvature * (x[i] - vertex) ** 2
        return _Bottom(
            vertex=float(vertex),
            level=float(level),
            curvature=float(curvature),
            floor=float(level + curvature * (out - vertex) ** 2),
        )

    def __call__(self, at: float) -> float:
        """The curve's value: the parabola's, or the floor."""
        return max(self.level + self.curvature * (at - self.vertex) ** 2, self.floor)


def jackknife(statistic: Callable[[Array], float], losses: Array, unit: str = "") -> Estimate:
    """A statistic of losses (..., seeds), with its interval from leaving out each seed.

    Unknown where the statistic is; the interval is unbounded where a seed decides whether the
    statistic exists, or where there is one seed only.
    """
    seeds = losses.shape[-1]
    value = statistic(losses)
    if not math.isfinite(value):
        return Estimate(value=value, low=value, high=value, unit=unit)
    if seeds < 2:
        return Estimate(value=value, low=-math.inf, high=math.inf, unit=unit)
    without = np.array([statistic(np.delete(losses, seed, axis=-1)) for seed in range(seeds)])
    if not np.isfinite(without).all():
        return Estimate(value=value, low=-math.inf, high=math.inf, unit=unit)
    error = math.sqrt((seeds - 1) / seeds * np.sum((without - without.mean()) ** 2))
    half = float(stdtrit(seeds - 1, (1 + CONFIDENCE) / 2)) * error
    return Estimate(value=value, low=value - half, high=value + half, unit=unit)


def _average(losses: Array) -> Array:
    """Log losses averaged over seeds; infinite where any seed diverged."""
    with np.errstate(divide="ignore"):
        averaged: Array = np.log(losses).mean(-1)
    return averaged


def optimum(
    depth: int,
    log2_lrs: Sequence[float],
    losses: Array,
    *,
    chance: float,
    width: int | None = None,
) -> Optimum:
    """The best learning rate of one size, from losses (learning rates, seeds).

    A size has failed when no learning rate ends below ``chance``, the loss of guessing. At an edge
    of the grid the interval is open towards the outside.
    """
    found = vertex(log2_lrs, _average(losses))
    if not found.log_loss < math.log(chance):
        return Optimum(depth=depth, width=width, log2_lr=UNKNOWN, loss=UNKNOWN, place=Place.FAILED)
    at = jackknife(lambda some: vertex(log2_lrs, _average(some)).at, losses)
    if found.place is Place.LOW_EDGE:
        at = Estimate(value=at.value, low=-math.inf, high=at.value)
    elif found.place is Place.HIGH_EDGE:
        at = Estimate(value=at.value, low=at.value, high=math.inf)
    return Optimum(
        depth=depth,
        width=width,
        log2_lr=at,
        loss=jackknife(lambda some: math.exp(vertex(log2_lrs, _average(some)).log_loss), losses),
        place=found.place,
    )


def drift(
    sizes: Sequence[int], log2_lrs: Sequence[float], losses: Array, *, axis: Axis = "depth"
) -> Estimate:
    """The least-squares slope of the optimum against the log2 of sizes: 0 means transfer.

    Losses are (sizes, learning rates, seeds), of sizes whose optimum is inside the grid.
    """
    unit = DRIFT_UNIT.format(axis=axis)
    if len(sizes) < 2:
        return Estimate(value=math.nan, low=math.nan, high=math.nan, unit=unit)
    x = np.log2(np.asarray(sizes, float))
    x = x - x.mean()

    def slope(some: Array) -> float:
        best = [vertex(log2_lrs, _average(of_depth)).at for of_depth in some]
        return float(x @ np.asarray(best) / (x @ x))

    return jackknife(slope, losses, unit)


def regret(log2_lrs: Sequence[float], at_base: Array, at_target: Array) -> Estimate:
    """Loss at the target with the base's best learning rate, minus the best loss at the target.

    Infinite if the target diverges there. Arrays are (learning rates, seeds).
    """

    def excess(both: Array) -> float:
        base, target = _average(both[0]), _average(both[1])
        transferred = log_loss_at(log2_lrs, target, vertex(log2_lrs, base).at)
        return math.exp(transferred) - math.exp(vertex(log2_lrs, target).log_loss)

    return jackknife(excess, np.stack([at_base, at_target]), REGRET_UNIT)


def judge(
    optima: Sequence[Optimum],
    drift: Estimate,
    *,
    seeds: int,
    tolerance: float = TOLERANCE,
    axis: Axis = "depth",
) -> tuple[Verdict, str]:
    """Whether the optimum transfers along an axis, in one word and one sentence.

    Transfers: the whole interval of the drift is inside +-tolerance, and every size trains.
    Drifts: it is all outside. Undecided: anything else.
    """

    def at(*places: Place) -> list[int]:
        return [getattr(o, axis) for o in optima if o.place in places]

    failed = at(Place.FAILED)
    span = f"[{_signed(drift.low)}, {_signed(drift.high)}]"
    fails = f" At {axis} {', '.join(map(str, failed))} no learning rate trains." if failed else ""
    if at(Place.LOW_EDGE, Place.HIGH_EDGE):
        low, high = at(Place.LOW_EDGE), at(Place.HIGH_EDGE)
        sides = [f"downwards ({axis} {', '.join(map(str, low))})"] * bool(low)
        sides += [f"upwards ({axis} {', '.join(map(str, high))})"] * bool(high)
        return Verdict.UNDECIDED, (
            f"The best learning rate is at the edge of the grid: extend it {' and '.join(sides)}."
            + fails
        )
    if not drift.known:
        return Verdict.UNDECIDED, f"Fewer than two {axis}s have an optimum to compare." + fails
    if seeds < 2:
        return Verdict.UNDECIDED, "One seed gives no interval: use two or more." + fails
    if drift.outside(-tolerance, tolerance):
        way = "down" if drift.value < 0 else "up"
        return Verdict.DRIFTS, (
            f"The optimum moves {way} by {abs(drift.value):.2f} octaves per doubling of {axis}, "
            f"95% interval {span}, outside ±{tolerance:g}.{fails}"
        )
    if drift.inside(-tolerance, tolerance) and not failed:
        return Verdict.TRANSFERS, (
            f"The optimum moves by {_signed(drift.value)} octaves per doubling of {axis}, "
            f"95% interval {span}, inside ±{tolerance:g}."
        )
    if failed:
        return Verdict.UNDECIDED, (
            f"Where it trains, the optimum moves by {_signed(drift.value)} octaves per doubling of "
            f"{axis}, 95% interval {span}.{fails}"
        )
    return Verdict.UNDECIDED, (
        f"The interval {span} octaves per doubling of {axis} is neither inside nor outside "
        f"±{tolerance:g}: use more seeds or more {axis}s."
    )


def _signed(value: float) -> str:
    """Two decimals with a sign, as print sets it.

    Example:
        >>> _signed(-0.031), _signed(0.2), _signed(-0.001)
        ('−0.03', '+0.20', '0.00')
    """
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text[1:] == "0.00" else text
