"""The optima of sizes: minima of the valley that all of a variant share, each with its interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from depthmup.posterior import Posterior, posterior
from depthmup.posterior.intervals import CONFIDENCE, Array, around, student
from depthmup.posterior.law import Size
from depthmup.posterior.level_law import Frontier
from depthmup.records import UNKNOWN, Estimate, Optimum, Place
from depthmup.statistics.optimum import Optima

LAW_SCATTER = 0.1
"""Octaves by which optima scatter about a law of sizes, for their weights in it."""

EVEN = 1.5
"""Of the best known minimum's deviation, within which others count alike in a law."""

MISSED = 0.2
"""Of what a valley rises to its neighbours, what a best loss between two rates may lie deeper."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Minima:
    """The curves of sizes one by one, and the posterior of all of their minima."""

    fitted: Optima
    posterior: Posterior

    @property
    def at(self) -> Array:
        """log2 rates, (sizes,)."""
        return self.posterior.minimum

    @property
    def log_loss(self) -> Array:
        """Log losses at the minima, (sizes,)."""
        return self.posterior.level

    def excess(self, size: int, octaves: ArrayLike) -> Array:
        """Log loss above one size's minimum, that far from it: what a wrong rate costs.

        The valley between the neighbours of the lowest point, straight lines between the other
        points, on beyond the grid's ends; infinite from the last rate before a divergence.
        """
        fitted, count = self.fitted, len(self.at)
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
        return np.maximum(np.where(near, self.posterior.rise(size, u), value), 0.0)

    def least_squares(self, design: Array, sizes: Sequence[int]) -> Array:
        """Weights of some sizes' minima in each coefficient of a design, (terms, sizes).

        Sizes known less well, as at an edge of their grid, count less.
        """
        known = self.posterior.deviation[list(sizes)]
        # What all sizes share moves no slope, and sizes known about as well count alike.
        own = np.sqrt(np.maximum(known**2 - (EVEN * known.min()) ** 2, 0.0))
        root = 1 / np.hypot(own, LAW_SCATTER)
        return np.asarray(np.linalg.pinv(design * root[:, None]) * root, float)

    def frontier(self, at: Sequence[int], doublings: Array) -> Frontier:
        """The best losses of some sizes, whose doublings count from any size."""
        return Frontier(
            found=self.posterior,
            curves=self.fitted.curves,
            spacing=self.fitted.spacing,
            at=at,
            s=doublings,
        )

    @cached_property
    def middle(self) -> Array:
        """Vertices of parabolas through a minimum and its valley an octave away, (sizes,)."""
        octave = np.array([-1.0, 1.0])
        left, right = np.array([self.posterior.rise(i, octave) for i in range(len(self.at))]).T
        return np.asarray(self.at + (left - right) / (2 * (left + right)))

    @cached_property
    def curvature(self) -> tuple[Array, Array]:
        """c of log loss = min + c u^2 at an octave, and its standard error, (sizes,)."""
        octave = np.array([-1.0, 1.0])
        found = [self.posterior.bend(i, octave) for i in range(len(self.at))]
        value, error = np.array(found).reshape(-1, 2).T
        return value, error


def doublings_of(sizes: Sequence[Size], base: Size | None = None) -> Array:
    """log2 of sizes over the base's, along the axes that vary, (sizes, axes).

    Without a base they count from the smallest value along each axis.
    """
    x = np.log2([[float(n) for n in size.values()] for size in sizes])
    start = x.min(0) if base is None else np.log2([float(base[axis]) for axis in sizes[0]])
    return np.asarray((x - start)[:, np.ptp(x, axis=0) > 0])


def minima(fitted: Optima, sizes: Sequence[Size], base: Size | None = None) -> Minima:
    """The minima of curves of some sizes."""
    return Minima(fitted=fitted, posterior=posterior(fitted.curves, doublings_of(sizes, base)))


def _rate_estimate(found: Minima, size: int, ends: Array) -> Estimate:
    """One size's best log2 learning rate, of its median and interval; at an edge open outwards."""
    fitted = found.fitted
    median, low, high = map(float, ends)
    estimate = Estimate(value=median, low=low, high=high)
    if fitted.lowest[size] not in (fitted.first[size], fitted.last[size]):
        return estimate
    # The optimum may lie between the last two rates.
    value, spacing = float(fitted.centre[size]), float(fitted.spacing[size])
    if fitted.lowest[size] == fitted.first[size]:
        return Estimate(value=value, low=-math.inf, high=value + spacing)
    return Estimate(value=value, low=value - spacing, high=math.inf)


def loss_estimate(found: Minima, size: int, confidence: float = CONFIDENCE) -> Estimate:
    """One size's best loss; the interval is that of its logarithm.

    At an edge of its grid it is the loss there.
    """
    fitted, log = found.fitted, float(found.log_loss[size])
    if (lowest := fitted.lowest[size]) in (fitted.first[size], fitted.last[size]):
        log = float(fitted.log_losses[size, lowest])
    spacing = float(fitted.spacing[size])
    # Between two rates the valley may be deeper: it misses as much of what it rises there.
    missed = MISSED * float(found.posterior.rise(size, np.array([-spacing, spacing])).mean())
    error = math.hypot(math.sqrt(float(found.posterior.level_covariance[size, size])), missed)
    freedom = max(fitted.curves.fewest_seeds - 1, 1) * len(found.at)
    half = float(student(freedom, confidence)) * error
    return around(log, half).exp()


def measured(
    found: Minima, sizes: Sequence[Size], *, confidence: float = CONFIDENCE
) -> tuple[Optimum, ...]:
    """Every size's best learning rate, loss and curvature, with intervals.

    At an edge of the grid the interval is open towards the outside.
    """
    # All at once: the bisection of each quantile takes as long for one size as for a hundred.
    mixture = found.posterior.of_sizes(np.eye(len(found.at)))
    low, middle, high = mixture.interval(confidence)
    ends = np.column_stack([middle, low, high])
    places = found.fitted.places()
    return tuple(
        _optimum(found, i, size, confidence, places[i], ends[i]) for i, size in enumerate(sizes)
    )


def failed(size: Size) -> Optimum:
    """That of a size at which nothing trains."""
    return Optimum(size=dict(size), log2_lr=UNKNOWN, loss=UNKNOWN, place=Place.FAILED)


def _optimum(
    found: Minima, i: int, size: Size, confidence: float, location: Place, ends: Array
) -> Optimum:
    if location is Place.FAILED:
        return failed(size)
    curvature, error = (float(of_size[i]) for of_size in found.curvature)
    half = float(student(math.inf, confidence)) * error
    return Optimum(
        size=dict(size),
        log2_lr=_rate_estimate(found, i, ends),
        loss=loss_estimate(found, i, confidence),
        place=location,
        curvature=around(curvature, half) if location is Place.INTERIOR else UNKNOWN,
    )
