"""The optima of sizes: minima of the valley that all of a variant share, each with its interval.

An interval has what noise and seeds leave of the minimum, what data leave open of the valleys'
shape (``statistics.valley``), and what powers of two sides miss of the place of all minima alike.
Without doublings all sizes have valleys of one shape.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from depthmup.records import UNKNOWN, Estimate, Optimum, Place
from depthmup.statistics.intervals import CONFIDENCE, Array, around, student
from depthmup.statistics.law import Size
from depthmup.statistics.optimum import Optima
from depthmup.statistics.regression import PRIOR_FREEDOM, Regression
from depthmup.statistics.valley_errors import Valley
from depthmup.statistics.valley_fit import MISSED


@dataclass(frozen=True, kw_only=True, eq=False)
class Minima:
    """The minima of curves whose sizes lie at ``doublings``, (sizes, axes)."""

    fitted: Optima
    doublings: Array

    @cached_property
    def _of_sizes(self) -> Regression:
        """Of no law: any combination of the minima, with its error."""
        level = np.ones((len(self.doublings), 1))
        return Regression(fitted=self.fitted, design=level, doublings=self.doublings)

    @property
    def valley(self) -> Valley:
        return self._of_sizes.valley

    @property
    def at(self) -> Array:
        """log2 rates, (..., sizes)."""
        return self.valley.minimum

    @property
    def log_loss(self) -> Array:
        """Log losses at the minima, (..., sizes); infinite where nothing is finite."""
        return self.valley.level

    @property
    def log_loss_without(self) -> Array:
        """The same without each seed, (..., sizes, seeds)."""
        return self.valley.level_without

    def half(self, weights: Array, confidence: float = CONFIDENCE) -> Array:
        """Half-width of the interval of ``weights . minima``, (...,)."""
        line = self._of_sizes
        return np.hypot(line.seeds_part(weights, confidence), line.shape_part(weights, confidence))

    def error(self, *sizes: int) -> float:
        """Standard error of one size's minimum, or of its distance from another's.

        Student's t of few seeds is widened to the normal's scale, so that errors add.
        """
        weights = np.zeros(len(self.doublings))
        for sign, size in zip((1.0, -1.0), sizes, strict=False):
            weights[size] += sign
        return float(self.half(weights)) / float(student(math.inf))

    def excess(self, size: int, octaves: ArrayLike) -> Array:
        """Log loss above one size's minimum, that far from it: what a wrong rate costs.

        The valley between the neighbours of the lowest point, straight lines between the other
        points, on beyond the grid's ends; infinite from the last rate before a divergence.

        Example:
            >>> from depthmup.statistics import Curves, optima
            >>> rates = np.arange(-3.0, 4.0)
            >>> found = minima(optima(Curves.of(rates, [np.exp(0.1 * rates**2)[:, None]])))
            >>> found.excess(0, [0.0, 2.0, 4.0]).round(1).tolist()
            [0.0, 0.4, 1.4]
        """
        fitted, count = self.fitted, len(self.doublings)
        if not -count <= size < count:
            raise ValueError(f"Expected one of {count} sizes; got another index.")
        y, level = fitted.log_losses[size], float(self.log_loss[size])
        tried = np.flatnonzero(~np.isnan(y))
        x, y = fitted.curves.log2_lrs[size][tried] - float(self.at[size]), y[tried]
        i = int(np.searchsorted(tried, fitted.lowest[size]))
        if not 0 < i < len(tried) - 1:
            raise ValueError("Expected a curve with its optimum inside the grid; got one without.")
        diverged = np.flatnonzero(~np.isfinite(y[i:]))
        last = i + int(diverged[0]) - 1 if len(diverged) else len(y) - 1
        inner = np.flatnonzero(np.isfinite(y[: last + 1]))
        inner_x, inner_y = x[inner], np.maximum(y[inner] - level, 0.0)
        u = np.asarray(octaves, float)
        if len(inner) < 2:
            return np.where(u == 0, 0.0, math.inf)
        start = (inner_y[1] - inner_y[0]) / (inner_x[1] - inner_x[0])
        end = (inner_y[-1] - inner_y[-2]) / (inner_x[-1] - inner_x[-2])
        value = np.interp(u, inner_x, inner_y)
        value = np.where(u < inner_x[0], inner_y[0] + start * (u - inner_x[0]), value)
        beyond = inner_y[-1] + end * (u - inner_x[-1]) if last == len(y) - 1 else math.inf
        value = np.where(u > inner_x[-1], beyond, value)
        near = (u >= min(x[i - 1], 0.0)) & (u <= max(x[i + 1], 0.0))
        return np.maximum(np.where(near, self.valley.rise(size, u), value), 0.0)


def doublings_of(sizes: Sequence[Size]) -> Array:
    """log2 of sizes over the first one's, along the axes that vary, (sizes, axes)."""
    x = np.log2([[float(n) for n in size.values()] for size in sizes])
    return np.asarray((x - x[0])[:, np.ptp(x, axis=0) > 0])


def minima(fitted: Optima, sizes: Sequence[Size] | None = None) -> Minima:
    """The minima of curves of some sizes; of sizes that are not named, valleys keep their shape."""
    if sizes is None:
        return Minima(fitted=fitted, doublings=np.zeros((fitted.centre.shape[-1], 0)))
    return Minima(fitted=fitted, doublings=doublings_of(sizes))


def rate_estimate(found: Minima, size: int, confidence: float = CONFIDENCE) -> Estimate:
    """One size's best log2 learning rate; at an edge of its grid open outwards."""
    fitted = found.fitted
    if fitted.lowest[size] in (fitted.first[size], fitted.last[size]):
        value, low_edge = float(fitted.centre[size]), fitted.lowest[size] == fitted.first[size]
        return Estimate(
            value=value,
            low=-math.inf if low_edge else value,
            high=value if low_edge else math.inf,
        )
    weights = np.eye(len(found.doublings))[size]
    return around(float(found.at[size]), found.half(weights, confidence))


def loss_estimate(found: Minima, size: int, confidence: float = CONFIDENCE) -> Estimate:
    """One size's best loss; the interval is that of its logarithm.

    At an edge of its grid it is the loss there. With one seed the interval is from the scatter of
    points: a level scatters by no more than its points do.
    """
    fitted, log = found.fitted, float(found.log_loss[size])
    without = found.log_loss_without[size]
    if (lowest := fitted.lowest[size]) in (fitted.first[size], fitted.last[size]):
        log, without = (
            float(fitted.log_losses[size, lowest]),
            fitted.averages_without[size, :, lowest],
        )
    if fitted.curves.fewest_seeds < 2:
        valley, spacing = found.valley, float(fitted.spacing[size])
        # Between two rates the valley may be deeper: it misses as much of what it rises there.
        missed = MISSED * float(valley.rise(size, np.array([-spacing, spacing])).mean())
        scatter = math.sqrt(float(valley.variance))
        half = math.hypot(
            float(student(valley.freedom, confidence)) * scatter,
            float(student(math.inf, confidence)) * missed,
        )
    else:
        error, freedom = fitted.seed_error(without)
        half = float(student(freedom, confidence) * error)
    with np.errstate(over="ignore"):
        low, value, high = (float(np.exp(v)) for v in (log - half, log, log + half))
    return Estimate(value=value, low=low, high=high)


def measured(
    found: Minima, sizes: Sequence[Size], *, confidence: float = CONFIDENCE
) -> tuple[Optimum, ...]:
    """Every size's best learning rate, loss and curvature, with intervals.

    At an edge of the grid the interval is open towards the outside. With one seed, the interval of
    the loss is from the scatter of points.
    """
    return tuple(_optimum(found, i, size, confidence) for i, size in enumerate(sizes))


def failed(size: Size) -> Optimum:
    """That of a size at which nothing trains."""
    return Optimum(size=dict(size), log2_lr=UNKNOWN, loss=UNKNOWN, place=Place.FAILED)


def _optimum(found: Minima, i: int, size: Size, confidence: float) -> Optimum:
    fitted = found.fitted
    location = fitted.places()[i]
    if location is Place.FAILED or not math.isfinite(fitted.centre[i]):
        return failed(size)
    error, freedom = fitted.curvature_scatter[i], np.asarray(float(PRIOR_FREEDOM))
    if fitted.curves.fewest_seeds > 1:
        error, freedom = fitted.seed_error(fitted.curvature_without[i])
    return Optimum(
        size=dict(size),
        log2_lr=rate_estimate(found, i, confidence),
        loss=loss_estimate(found, i, confidence),
        place=location,
        curvature=around(fitted.curvature[i], student(freedom, confidence) * error),
    )
