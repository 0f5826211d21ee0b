"""Every curve of loss against learning rate by itself: where it is lowest, and its parabola.

Near its lowest point lies the centre of the *tapered parabola* (``statistics.parabola``), a
weighted least-squares fit of the seed-averaged log losses. From there starts the fit of the valley
that all sizes share, whose minima are the optima (``statistics.minimum``). What one curve alone
misses of its optimum is its ``misfit`` (``statistics.misfit``).
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.records import Place
from depthmup.statistics.curve import Curves
from depthmup.statistics.intervals import Array, Flags, Index, jackknife_error
from depthmup.statistics.misfit import at_index, misfit_of, rise_errors, steep_of
from depthmup.statistics.parabola import (
    BANDWIDTH,
    SPACINGS,
    centre_of,
    tricube,
    weights_of,
)

FEWEST_INSIDE, FEWEST_AT_EDGE = 3, 3
"""Sizes with an optimum inside that show the valley of all, and finite rates by which a size at an
edge then tells how far beyond it its own optimum lies."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Optima:
    """Curves one by one, each attribute an array over (..., sizes).

    Attributes:
        centre: of the tapered parabola, log2 learning rate.
        curvature: of the tapered parabola, log loss per octave squared; NaN where there is none.
        spacing: of the grid around the lowest point, octaves.
        bandwidth: of the weights, octaves.
        misfit: standard error of the centre that seeds do not show, octaves.
        steep: the part of it that a steep side adds, as each curve alone shows it, in spacings.
        lowest, first, last: indices of the lowest, first and last learning rate that was tried.
        wall: whether a neighbour of the lowest point diverged.
        failed: whether no learning rate ends below the loss of guessing.
        bend_row: weights (..., sizes, rates) of log losses in the curvature.
    """

    curves: Curves
    log_losses: Array
    centre: Array
    curvature: Array
    spacing: Array
    bandwidth: Array
    misfit: Array
    steep: Array
    lowest: Index
    first: Index
    last: Index
    wall: Flags
    failed: Flags
    bend_row: Array

    @cached_property
    def averages_without(self) -> Array:
        """Averages without each seed at the learning rates of the fit, (..., sizes, seeds, rates).

        The fitted points stay when a seed is left out, and zero where no loss is finite. A rate
        that this seed alone was trained at stays as it is, if most others are left; where fewer
        than two thirds are, nothing is left to measure.
        """
        finite = np.isfinite(self.log_losses)[..., None, :]
        without = self.curves.without_each_seed()
        # Without its points a parabola would be another fit, not the same one with fewer seeds.
        left = np.isfinite(without) & finite
        enough = 3 * left.sum(-1) >= 2 * finite.sum(-1)
        full = np.where(finite, self.log_losses[..., None, :], 0.0)
        stays = np.where(enough[..., None], full, math.nan)
        return np.where(finite, np.where(left, without, stays), 0.0)

    @cached_property
    def curvature_without(self) -> Array:
        """Curvatures without each seed, (..., sizes, seeds)."""
        return np.asarray((self.bend_row[..., None, :] * self.averages_without).sum(-1))

    @cached_property
    def curvature_scatter(self) -> Array:
        """Standard errors of the curvatures from the scatter of points about their parabolas."""
        spread = np.sqrt((self.bend_row**2).sum(-1))
        return np.asarray(spread * np.sqrt(self.point_variance)[..., None])

    @cached_property
    def point_variance(self) -> Array:
        """Variance of points about their parabolas, pooled over sizes, (...,)."""
        x, y = np.nan_to_num(self.curves.log2_lrs), self.log_losses
        finite = np.isfinite(y)
        u = x - self.centre[..., None]
        root = np.sqrt(tricube(u / self.bandwidth[..., None]) * finite)
        design = root[..., None] * np.stack([np.ones_like(u), u, u**2], axis=-1)
        values = np.where(finite, y, 0.0) * root
        values = np.where(np.isfinite(self.centre)[..., None], values, 0.0)
        design = np.where(np.isfinite(design), design, 0.0)
        fitted = np.einsum("...ki,...ij,...j->...k", design, np.linalg.pinv(design), values)
        square = ((values - fitted) ** 2).sum((-2, -1))
        freedom = (root**2).sum((-2, -1)) - 3 * root.shape[-2]
        # Weights below one count in part: half a point's worth is the least that shows a scatter.
        variance = np.where(freedom > 0.5, square / np.maximum(freedom, 0.5), 0.0)
        return np.asarray(variance)

    def seed_error(self, without: Array) -> tuple[Array, Array]:
        """Standard error and freedom of a statistic given without each seed, (..., seeds)."""
        return jackknife_error(without, self.curves.groups)

    @cached_property
    def told_at_edge(self) -> Flags:
        """Whether the sizes of one experiment lie at an edge, with rates enough to lead beyond."""
        edge = np.array([place.at_edge for place in self.places()])
        told = edge & (np.isfinite(self.log_losses).sum(-1) >= FEWEST_AT_EDGE)
        if self.curves.fewest_seeds > 1:  # nor does one that a single seed makes
            told &= np.isfinite(self.averages_without).all((-2, -1))
        return np.asarray(told)

    def reaches_edge(self, size: int, low: float, high: float) -> bool:
        """Whether an interval of one size's optimum reaches the edge at which its lowest rate lies.

        To a spacing of the grid, or beyond.
        """
        edge, spacing = float(self.centre[size]), float(self.spacing[size])
        if self._place(size) is Place.HIGH_EDGE:
            return high >= edge - spacing
        return low <= edge + spacing

    def places(self) -> tuple[Place, ...]:
        """Where each size's optimum lies, of one experiment."""
        return tuple(self._place(i) for i in range(len(self.centre)))

    def _place(self, size: int) -> Place:
        if self.failed[size]:
            return Place.FAILED
        if self.lowest[size] == self.first[size]:
            return Place.LOW_EDGE
        return Place.HIGH_EDGE if self.lowest[size] == self.last[size] else Place.INTERIOR


def optima(curves: Curves, *, chance: float = math.inf) -> Optima:
    """Fit every curve."""
    x, y = np.nan_to_num(curves.log2_lrs), curves.averages()
    tried, finite, index = ~np.isnan(y), np.isfinite(y), np.arange(y.shape[-1])
    lowest = np.where(finite, y, math.inf).argmin(-1)
    before, after = _neighbours(tried, lowest)
    here, low, high = (at_index(x, i) for i in (lowest, before, after))
    steps = np.maximum((before < lowest).astype(int) + (after > lowest), 1)
    spacing = np.where(high > low, (high - low) / steps, 1.0)
    bandwidth = np.maximum(BANDWIDTH, SPACINGS * spacing)
    centre = centre_of(x, y, here, spacing, bandwidth)
    _, bend_row = weights_of(x, finite, centre, bandwidth)
    curvature = (bend_row * np.where(finite, y, 0.0)).sum(-1)
    wall = ~(np.isfinite(at_index(y, before)) & np.isfinite(at_index(y, after))) & finite.any(-1)
    # At an end of the grid, or beside a divergence, no parabola knows both sides of the valley.
    at_end = (before == lowest) | (after == lowest)
    failed = ~(at_index(np.where(finite, y, math.inf), lowest) < math.log(chance))
    alone = wall | at_end | failed | ~(curvature > 0)
    near = np.abs(x - here[..., None]) <= bandwidth[..., None]
    error = rise_errors(curves.log_losses, y, lowest, near)
    steep = np.where(alone, 0.0, steep_of(x, y, error, lowest, bandwidth))
    # Sizes share the shape of their valley: how steep a side looks is a matter of its phase, too.
    pooled = np.sqrt((steep**2).sum(-1) / np.maximum((~alone).sum(-1), 1))
    return Optima(
        curves=curves,
        log_losses=y,
        centre=np.where(finite.any(-1), np.where(alone, here, centre), math.nan),
        curvature=np.where(alone, math.nan, curvature),
        spacing=spacing,
        bandwidth=bandwidth,
        misfit=misfit_of(
            x, y, tried, here, spacing, bandwidth, alone, np.maximum(steep, pooled[..., None])
        ),
        steep=steep,
        lowest=lowest,
        first=np.where(tried, index, len(index)).min(-1),
        last=np.where(tried, index, -1).max(-1),
        wall=wall,
        failed=failed,
        bend_row=bend_row,
    )


def _neighbours(tried: Flags, lowest: Index) -> tuple[Index, Index]:
    """Indices of the learning rates tried before and after the lowest point; itself at an end."""
    index, at = np.arange(tried.shape[-1]), lowest[..., None]
    before = np.where(tried & (index < at), index, -1).max(-1)
    after = np.where(tried & (index > at), index, len(index)).min(-1)
    return np.where(before < 0, lowest, before), np.where(after == len(index), lowest, after)
