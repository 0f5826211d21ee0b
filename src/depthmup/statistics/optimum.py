"""The one optimum of a curve of loss against learning rate, and how uncertain it is.

The optimum is the centre of a *tapered parabola*: least squares on the seed-averaged log losses
with tricube weights of two octaves around the parabola's own vertex, centred anew until it stays.
(A parabola through the few points around the lowest one jumps as the grid passes a kink of the
curve: its drifts err by 0.1 octaves or more where this one errs by 0.01, and it scatters more.)

Lopsided valleys have their minimum beside that centre, by nearly the same distance, the *lean*, at
all sizes of a scheme (``statistics.lean``). Centre plus lean is the optimum. A drift does not see
the lean; the learning rate that is handed out does.

What seeds cannot show is what the fit misses, ``misfit``, a standard error in octaves:

- ``0.08 spacing`` for a valley that is no parabola, seen through a grid;
- ``0.7 spacing`` times how much farther (in bandwidths, at most 1) the curve is known on one side
  of its lowest point than on the other: a fit that sees more of one side leans to it;
- ``0.25 spacing`` for each doubling beyond four by which one neighbour of the lowest point rises
  above all that the curve rises on the other side: a wall, which the fit sees by chance of phase;
- ``spacing / sqrt 2`` where a neighbour of the lowest point diverged: the optimum lies somewhere
  between them, and is then taken to be the lowest point itself.

The numbers were set on simulated valleys and hold on measured ones (docs/statistics.md).

*Source:* local regression with tricube weights: Cleveland (1979), Journal of the American
Statistical Association 74:829-836. The rest is this package's own.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from depthmup.records import Place
from depthmup.statistics.curve import Curves
from depthmup.statistics.intervals import Array, Flags, Index, jackknife_error
from depthmup.statistics.lean import Sides, excess, sides_of

BANDWIDTH, SPACINGS = 2.0, 2.5
"""The weights reach this many octaves, or this many spacings of the grid if that is more."""

FIT, LOPSIDED, WALL = 0.08, 0.7, math.sqrt(0.5)
"""What the fit misses, in spacings: everywhere, where one side is cut off, beside a divergence."""

STEEP, GENTLE = 0.25, 4.0
"""What it misses beside a wall: spacings per doubling of how much steeper than the other side."""

PASSES = 12
"""The centre moves by less than 1e-3 octaves after six."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Optima:
    """The optima of curves, each attribute an array over (..., sizes).

    Attributes:
        centre: of the tapered parabola, log2 learning rate.
        curvature: of the tapered parabola, log loss per octave squared; NaN where there is none.
        spacing: of the grid around the lowest point, octaves.
        bandwidth: of the weights, octaves.
        misfit: standard error of the centre that seeds do not show, octaves.
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
        return np.asarray(self.centre + self.sides.lean[..., None])

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
        shift = _vertex(slopes, self.curvature_without, np.maximum(self.spacing, 1.0)[..., None])
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
        root = np.sqrt(_tricube(u / self.bandwidth[..., None]) * finite)
        design = root[..., None] * np.stack([np.ones_like(u), u, u**2], axis=-1)
        values = np.where(finite, y, 0.0) * root
        values = np.where(np.isfinite(self.centre)[..., None], values, 0.0)
        design = np.where(np.isfinite(design), design, 0.0)
        fitted = np.einsum("...ki,...ij,...j->...k", design, np.linalg.pinv(design), values)
        square = ((values - fitted) ** 2).sum((-2, -1))
        freedom = (root**2).sum((-2, -1)) - 3 * root.shape[-2]
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

        Args:
            size: which curve, of one experiment.
            octaves: log2 learning rate minus the optimum's.
            log_losses, level: other seeds' averages at the same learning rates, and their minimum.

        Raises:
            ValueError: the optimum is not inside the grid.

        Example:
            >>> rates = np.arange(-3.0, 4.0)
            >>> fitted = optima(Curves.of(rates, [np.exp(0.1 * rates**2)[:, None]]))
            >>> fitted.excess(0, [0.0, 0.5, 2.0]).round(3).tolist()
            [0.0, 0.025, 0.4]
        """
        sides = self.sides
        return excess(
            log2_lrs=self.curves.log2_lrs[size],
            log_losses=self.log_losses[size] if log_losses is None else log_losses,
            lowest=int(self.lowest[size]),
            optimum=float(self.at[size]),
            sides=(
                float(sides.level[size] if level is None else level),
                float(sides.power[size]),
                float(sides.left[size]),
                float(sides.right[size]),
            ),
            octaves=octaves,
        )

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
    """Fit every curve.

    Args:
        curves: of one scheme; leading axes are independent experiments.
        chance: the loss of guessing; a size fails where no learning rate ends below it.

    Returns:
        The optima. Where nothing is finite, numbers are NaN.

    Example:
        >>> rates = np.arange(-5.0, 2.0)
        >>> losses = [np.exp(0.1 * (rates - best) ** 2)[:, None] for best in (-2.3, -2.0)]
        >>> optima(Curves.of(rates, losses)).at.round(2).tolist()
        [-2.3, -2.0]
    """
    x, y = np.nan_to_num(curves.log2_lrs), curves.averages()
    tried, finite, index = ~np.isnan(y), np.isfinite(y), np.arange(y.shape[-1])
    lowest = np.where(finite, y, math.inf).argmin(-1)
    before, after = _neighbours(tried, lowest)
    here, low, high = (_take(x, i) for i in (lowest, before, after))
    steps = np.maximum((before < lowest).astype(int) + (after > lowest), 1)
    spacing = np.where(high > low, (high - low) / steps, 1.0)
    bandwidth = np.maximum(BANDWIDTH, SPACINGS * spacing)
    centre = _centre(x, y, here, spacing, bandwidth)
    slope_row, bend_row = _rows(x, finite, centre, bandwidth)
    curvature = (bend_row * np.where(finite, y, 0.0)).sum(-1)
    wall = ~(np.isfinite(_take(y, before)) & np.isfinite(_take(y, after))) & finite.any(-1)
    at_end = (before == lowest) | (after == lowest)
    failed = ~(_take(np.where(finite, y, math.inf), lowest) < math.log(chance))
    alone = wall | at_end | failed | ~(curvature > 0)
    return Optima(
        curves=curves,
        log_losses=y,
        centre=np.where(finite.any(-1), np.where(alone, here, centre), math.nan),
        curvature=np.where(alone, math.nan, curvature),
        spacing=spacing,
        bandwidth=bandwidth,
        misfit=_misfit(
            x, y, tried, here, spacing, bandwidth, alone, _steepness(x, y, lowest, bandwidth)
        ),
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


def _take(values: Array, index: Index) -> Array:
    return np.asarray(np.take_along_axis(values, index[..., None], axis=-1)[..., 0])


def _neighbours(tried: Flags, lowest: Index) -> tuple[Index, Index]:
    """Indices of the learning rates tried before and after the lowest point; itself at an end."""
    index, at = np.arange(tried.shape[-1]), lowest[..., None]
    before = np.where(tried & (index < at), index, -1).max(-1)
    after = np.where(tried & (index > at), index, len(index)).min(-1)
    return np.where(before < 0, lowest, before), np.where(after == len(index), lowest, after)


def _tricube(distance: Array) -> Array:
    return np.asarray((1 - np.minimum(np.abs(distance), 1.0) ** 3) ** 3)


def _rows(x: Array, finite: Flags, centre: Array, bandwidth: Array) -> tuple[Array, Array]:
    """Weights of log losses in the tapered parabola's slope and bend at a centre, (..., rates).

    With u from the centre, slope and bend solve the weighted normal equations of 1, u and u^2.
    """
    u = x - centre[..., None]
    weight = _tricube(u / bandwidth[..., None]) * finite
    s0, s1, s2, s3, s4 = ((weight * u**k).sum(-1) for k in range(5))
    determinant = s0 * (s2 * s4 - s3**2) - s1 * (s1 * s4 - s2 * s3) + s2 * (s1 * s3 - s2**2)
    # Fewer than three points fix no parabola: its bend is then zero, not above.
    scale = np.where(determinant > 1e-9 * bandwidth**6, determinant, math.inf)[..., None]
    c10, c11, c12 = s2 * s3 - s1 * s4, s0 * s4 - s2**2, s1 * s2 - s0 * s3
    c20, c22 = s1 * s3 - s2**2, s0 * s2 - s1**2
    slope = weight * (c10[..., None] + c11[..., None] * u + c12[..., None] * u**2) / scale
    bend = weight * (c20[..., None] + c12[..., None] * u + c22[..., None] * u**2) / scale
    return slope, bend


def _vertex(slope: Array, bend: Array, reach: Array) -> Array:
    """Where slope u + bend u^2 is lowest within a reach; at an end where it does not bend up."""
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = np.where(bend > 0, -slope / (2 * bend), -np.sign(slope) * reach)
    return np.asarray(np.clip(vertex, -reach, reach))


def _centre(x: Array, y: Array, start: Array, spacing: Array, bandwidth: Array) -> Array:
    """The fixed point: weights centred where their own parabola has its vertex."""
    finite = np.isfinite(y)
    values = np.where(finite, y, 0.0)
    # Half an octave at most in one pass, so that no pass leaves the points behind.
    reach, step = np.maximum(spacing, 1.0), np.full(start.shape, 0.5)
    centre = start
    for _ in range(PASSES):
        slope, bend = _rows(x, finite, centre, bandwidth)
        shift = _vertex((slope * values).sum(-1), (bend * values).sum(-1), step)
        moved = np.clip(centre + shift, start - reach, start + reach)
        if np.all(np.abs(moved - centre) < 1e-6):
            return np.asarray(moved)
        centre = moved
    return centre


def _steepness(x: Array, y: Array, lowest: Index, bandwidth: Array) -> Array:
    """How much higher a neighbour of the lowest point rises than all of the other side.

    Of parabolas 1 at most, of valleys with sides of slopes a and b at most b / a. A side with fewer
    than two points does not say how it rises, and 0 is returned for its counterpart.
    """
    u, finite = x - _take(x, lowest)[..., None], np.isfinite(y)
    low = np.where(finite.any(-1), _take(np.where(finite, y, 0.0), lowest), 0.0)
    rise = np.where(finite, y, 0.0) - low[..., None]
    near = finite & (np.abs(u) <= bandwidth[..., None] + 1e-9)
    steepness = np.zeros(lowest.shape)
    for side in (-1, 1):
        here, other = near & (side * u > 0), near & (side * u < 0)
        distance = np.where(here, np.abs(u), math.inf)
        neighbour = np.where(here.any(-1), _take(rise, distance.argmin(-1)), 0.0)
        top = np.where(other, rise, 0.0).max(-1)
        known = (other.sum(-1) >= 2) & (top > 0)
        steepness = np.maximum(steepness, np.where(known, neighbour / np.where(known, top, 1), 0))
    return steepness


def _misfit(
    x: Array,
    y: Array,
    tried: Flags,
    at: Array,
    spacing: Array,
    bandwidth: Array,
    alone: Flags,
    steepness: Array,
) -> Array:
    """The standard error that the fit itself has; see the module's docstring."""
    here, unknown = at[..., None], tried & ~np.isfinite(y)
    # The first learning rate on each side that says nothing: it diverged, or the grid has ended.
    low = np.where(unknown & (x < here), x, -math.inf).max(-1)
    high = np.where(unknown & (x > here), x, math.inf).min(-1)
    low = np.maximum(low, np.where(tried, x, math.inf).min(-1) - spacing)
    high = np.minimum(high, np.where(tried, x, -math.inf).max(-1) + spacing)
    reach_low, reach_high = (np.minimum(d / bandwidth, 1.0) for d in (at - low, high - at))
    one_sided = np.hypot(FIT, LOPSIDED * np.abs(reach_low - reach_high))
    steep = STEEP * np.log2(np.maximum(steepness / GENTLE, 1.0))
    return np.asarray(spacing * np.where(alone, WALL, np.minimum(np.hypot(one_sided, steep), WALL)))
