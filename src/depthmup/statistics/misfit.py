"""What the fit of an optimum misses, and seeds cannot show: a standard error in octaves.

- ``0.08 spacing`` for a valley that is no parabola, seen through a grid; ``0.04 spacing`` where the
  grid goes on to the bandwidth on both sides (seven shapes at every phase: 0.02 to 0.03 there, 0.06
  to 0.08 of brackets);
- ``0.7 spacing`` times how much farther (in bandwidths, at most 1) the curve is known on one side
  of its lowest point than on the other: a fit that sees more of one side is drawn to it;
- ``0.25 spacing`` for each doubling beyond four by which one neighbour of the lowest point rises
  above all that the curve rises on the other side: a wall, which the fit sees by chance of phase;
- ``spacing / sqrt 2`` where a neighbour of the lowest point diverged: the optimum lies somewhere
  between them, and is then taken to be the lowest point itself.

The first three add in quadrature, up to the last. The numbers were set on simulated valleys and
hold on measured ones (docs/studies/statistics.md).
"""

import math

import numpy as np

from depthmup.statistics.intervals import Array, Flags, Index

FIT, WHOLE, ONE_SIDED, WALL = 0.08, 0.04, 0.7, math.sqrt(0.5)
"""What the fit misses, in spacings: everywhere, where both sides are known, where one is cut off,
and beside a divergence."""

STEEP, GENTLE = 0.25, 4.0
"""What it misses beside a wall: spacings per doubling of how much steeper than the other side."""

LIKELY = 16
"""Number of equally likely values of a normal variable, over which squares are averaged."""

TINY = 1e-300
"""In the place of a rise that is none."""


def at_index(values: Array, index: Index) -> Array:
    """The entry of every row, (..., rates), at an index of its own, (...,)."""
    return np.asarray(np.take_along_axis(values, index[..., None], axis=-1)[..., 0])


def steep_of(x: Array, y: Array, error: Array, lowest: Index, bandwidth: Array) -> Array:
    """What a fit misses beside a side that rises far more steeply than the other, in spacings.

    The steepness is how much higher a neighbour of the lowest point rises than all of the other
    side: of parabolas 1 at most, of valleys with sides of slopes a and b at most b / a, where the
    other side has two points or more. Where it has one, a parabola's may be any number, and so may
    that of a valley with one flat side: three points cannot tell them apart, and the larger error
    is taken. Squares are averaged over what seeds leave open of the other side's rise.
    """
    from scipy.special import ndtri

    normal = ndtri((np.arange(LIKELY) + 0.5) / LIKELY)
    u, finite = x - at_index(x, lowest)[..., None], np.isfinite(y)
    low = np.where(finite.any(-1), at_index(np.where(finite, y, 0.0), lowest), 0.0)
    rise = np.where(finite, y, 0.0) - low[..., None]
    near = finite & (np.abs(u) <= bandwidth[..., None] + 1e-9)
    steep = np.zeros(lowest.shape)
    for side in (-1, 1):
        here, other = near & (side * u > 0), near & (side * u < 0)
        distance = np.where(here, np.abs(u), math.inf)
        neighbour = np.where(here.any(-1), at_index(rise, distance.argmin(-1)), 0.0)
        highest = np.where(other, rise, -math.inf).argmax(-1)
        top, uncertain = at_index(rise, highest), at_index(error, highest)
        tops = np.maximum(top[..., None] + normal * uncertain[..., None], TINY)
        ratio = neighbour[..., None] / tops / GENTLE
        of_tops = np.minimum(STEEP * np.log2(np.maximum(ratio, 1.0)), WALL)
        rms = np.sqrt((of_tops**2).mean(-1))
        steep = np.maximum(steep, np.where(here.any(-1) & other.any(-1), rms, 0.0))
    return steep


def rise_errors(log_losses: Array, y: Array, lowest: Index, near: Flags) -> Array:
    """Standard errors of how far points rise above the lowest one, as seeds scatter, (..., rates).

    A variance is that of the differences from the lowest point: of all points of a curve or of all
    curves of an experiment, whichever is larger. Zero with one seed.
    """
    index = np.broadcast_to(lowest[..., None, None], (*lowest.shape, 1, log_losses.shape[-1]))
    with np.errstate(invalid="ignore"):
        rise = log_losses - np.take_along_axis(log_losses, index, -2)
    away = np.arange(y.shape[-1]) != lowest[..., None]
    there = np.isfinite(rise) & (near & np.isfinite(y) & away)[..., None]
    count = there.sum(-1)
    rise = np.where(there, rise, 0.0)
    mean = rise.sum(-1, keepdims=True) / np.maximum(count, 1)[..., None]
    square = (np.where(there, rise - mean, 0.0) ** 2).sum((-2, -1))
    freedom = np.maximum(count - 1, 0).sum(-1)
    own = square / np.maximum(freedom, 1)
    pooled = square.sum(-1, keepdims=True) / np.maximum(freedom.sum(-1, keepdims=True), 1)
    variance = np.maximum(own, pooled)[..., None] / np.maximum(count, 1)
    return np.asarray(np.sqrt(variance))


def misfit_of(
    x: Array,
    y: Array,
    tried: Flags,
    at: Array,
    spacing: Array,
    bandwidth: Array,
    alone: Flags,
    steep: Array,
) -> Array:
    """The standard error that the fit itself has; see the module's docstring."""
    here, unknown = at[..., None], tried & ~np.isfinite(y)
    # The first learning rate on each side that says nothing: it diverged, or the grid has ended.
    low = np.where(unknown & (x < here), x, -math.inf).max(-1)
    high = np.where(unknown & (x > here), x, math.inf).min(-1)
    low = np.maximum(low, np.where(tried, x, math.inf).min(-1) - spacing)
    high = np.minimum(high, np.where(tried, x, -math.inf).max(-1) + spacing)
    reach_low, reach_high = (np.minimum(d / bandwidth, 1.0) for d in (at - low, high - at))
    fit = np.where(np.minimum(reach_low, reach_high) < 1, FIT, WHOLE)
    one_sided = np.hypot(fit, ONE_SIDED * np.abs(reach_low - reach_high))
    return np.asarray(spacing * np.where(alone, WALL, np.minimum(np.hypot(one_sided, steep), WALL)))
