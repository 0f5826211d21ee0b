"""The one optimum of a curve of loss against learning rate, and how uncertain it is.

The optimum is near the centre of the *tapered parabola* (``statistics.parabola``), a weighted
least-squares fit of the seed-averaged log losses. Valleys whose two sides differ have their minimum
beside that centre, by nearly the same distance, the *asymmetry*, at all sizes of a scheme
(``statistics.asymmetry``). Centre plus asymmetry is the optimum. A drift does not see the
asymmetry; the learning rate that is handed out does. What seeds cannot show of the centre's error
is its ``misfit`` (``statistics.misfit``).
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from depthmup.records import Place
from depthmup.statistics.asymmetry import Sides, sides_of
from depthmup.statistics.curve import Curves
from depthmup.statistics.intervals import Array, Flags, Index, jackknife_error
from depthmup.statistics.misfit import at_index, misfit_of, rise_errors, steep_of
from depthmup.statistics.parabola import (
    BANDWIDTH,
    SPACINGS,
    centre_of,
    tricube,
    vertex,
    weights_of,
)

FEWEST_INSIDE, FEWEST_AT_EDGE = 3, 3
"""Sizes with an optimum inside that show the valley of all, and finite rates by which a size at an
edge then tells how far beyond it its own optimum lies."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Optima:
    """The optima of curves, each attribute an array over (..., sizes).

    Attributes:
        centre: of the tapered parabola, log2 learning rate.
        curvature: of the tapered parabola, log loss per octave squared; NaN where there is none.
        spacing: of the grid around the lowest point, octaves.
        bandwidth: of the weights, octaves.
        misfit: standard error of the centre that seeds do not show, octaves.
        steep: the part of it that a steep side adds, as each curve alone shows it, in spacings.
        lowest, first, last: indices of the lowest, first and last learning rate that was tried.
        before, after: indices of the lowest point's neighbours.
        wall: whether one of them diverged.
        failed: whether no learning rate ends below the loss of guessing.
        slope_row, bend_row: weights (..., sizes, rates) of log losses in slope and curvature.
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
    before: Index
    after: Index
    wall: Flags
    failed: Flags
    slope_row: Array
    bend_row: Array

    @cached_property
    def sides(self) -> Sides:
        """The two sides of every valley, and its minimum."""
        return sides_of(
            log2_lrs=self.curves.log2_lrs,
            log_losses=self.log_losses,
            centre=self.centre,
            bandwidth=self.bandwidth,
            spacing=self.spacing,
            neighbours=(self.before, self.after),
            lowest=self.lowest,
            alone=np.isnan(self.curvature),
        )

    @property
    def at(self) -> Array:
        """The optima: log2 learning rates."""
        return np.asarray(self.centre + self.sides.asymmetry[..., None])

    @property
    def log_loss(self) -> Array:
        """Log losses at the optima; infinite where nothing is finite."""
        return self.sides.level

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
    def centre_without(self) -> Array:
        """Centres without each seed, (..., sizes, seeds)."""
        slopes = (self.slope_row[..., None, :] * self.averages_without).sum(-1)
        shift = vertex(slopes, self.curvature_without, np.maximum(self.spacing, 1.0)[..., None])
        alone = np.isnan(self.curvature)[..., None]
        return np.asarray(self.centre[..., None] + np.where(alone, 0.0, shift))

    @cached_property
    def log_loss_without(self) -> Array:
        """Log losses at the optima without each seed, (..., sizes, seeds)."""
        return np.asarray((self.sides.row[..., None, :] * self.averages_without).sum(-1))

    @cached_property
    def scatter(self) -> Array:
        """Standard errors of the centres from the scatter of points about their parabolas.

        To first order a centre moves by -slope / (2 curvature). The points' variance is pooled
        over sizes; what the parabola misses of the valley is in it, which makes it no smaller.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.sqrt((self.slope_row**2).sum(-1)) / (2 * self.curvature)
        # Where there is no parabola the centre is a point of the grid, whose error is the misfit.
        gain = np.where(np.isfinite(gain), gain, 0.0)
        return np.asarray(gain * np.sqrt(self.point_variance)[..., None])

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

    def excess(
        self,
        size: int,
        octaves: ArrayLike,
        *,
        log_losses: Array | None = None,
        level: float | None = None,
    ) -> Array:
        """Log loss above one size's minimum, that far from its optimum: what a wrong rate costs.

        The valley's two sides between the neighbours of the lowest point, straight lines between
        the other points, on beyond the grid's ends; infinite from the last rate before a
        divergence.

        Example:
            >>> rates = np.arange(-3.0, 4.0)
            >>> fitted = optima(Curves.of(rates, [np.exp(0.1 * rates**2)[:, None]]))
            >>> fitted.excess(0, [0.0, 0.5, 2.0]).round(3).tolist()
            [0.0, 0.025, 0.4]
        """
        count = len(self.centre)
        if not -count <= size < count:
            raise ValueError(f"Expected one of {count} sizes; got another index.")
        y = self.log_losses[size] if log_losses is None else log_losses
        level = float(self.sides.level[size] if level is None else level)
        tried = np.flatnonzero(~np.isnan(y))
        x, y = self.curves.log2_lrs[size][tried] - float(self.at[size]), y[tried]
        i = int(np.searchsorted(tried, self.lowest[size]))
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
        left, right = self.sides.left[size], self.sides.right[size]
        if math.isfinite(left):
            near = (u >= min(x[i - 1], 0.0)) & (u <= max(x[i + 1], 0.0))
            rise = np.where(u < 0, left, right) * np.abs(u) ** self.sides.power[size]
            value = np.where(near, rise, value)
        return np.asarray(np.maximum(value, 0.0), float)

    @cached_property
    def told_at_edge(self) -> Flags:
        """Whether the sizes of one experiment lie at an edge, with rates enough to lead beyond."""
        edge = np.array([place.at_edge for place in self.places()])
        return np.asarray(edge & (np.isfinite(self.log_losses).sum(-1) >= FEWEST_AT_EDGE))

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
    slope_row, bend_row = weights_of(x, finite, centre, bandwidth)
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
        before=before,
        after=after,
        wall=wall,
        failed=failed,
        slope_row=slope_row,
        bend_row=bend_row,
    )


def _neighbours(tried: Flags, lowest: Index) -> tuple[Index, Index]:
    """Indices of the learning rates tried before and after the lowest point; itself at an end."""
    index, at = np.arange(tried.shape[-1]), lowest[..., None]
    before = np.where(tried & (index < at), index, -1).max(-1)
    after = np.where(tried & (index > at), index, len(index)).min(-1)
    return np.where(before < 0, lowest, before), np.where(after == len(index), lowest, after)
