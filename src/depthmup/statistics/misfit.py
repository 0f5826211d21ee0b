"""What the fit of an optimum misses, and seeds cannot show: a standard error in octaves.

- ``0.08 spacing`` for a valley that is no parabola, seen through a grid;
- ``0.7 spacing`` times how much farther (in bandwidths, at most 1) the curve is known on one side
  of its lowest point than on the other: a fit that sees more of one side is drawn to it;
- ``0.25 spacing`` for each doubling beyond four by which one neighbour of the lowest point rises
  above all that the curve rises on the other side: a wall, which the fit sees by chance of phase;
- ``spacing / sqrt 2`` where a neighbour of the lowest point diverged: the optimum lies somewhere
  between them, and is then taken to be the lowest point itself.

The first three add in quadrature, up to the last. The numbers were set on simulated valleys and
hold on measured ones (docs/statistics.md).
"""

import math

import numpy as np

from depthmup.statistics.intervals import Array, Flags, Index

FIT, ONE_SIDED, WALL = 0.08, 0.7, math.sqrt(0.5)
"""What the fit misses, in spacings: everywhere, where one side is cut off, beside a divergence."""

STEEP, GENTLE = 0.25, 4.0
"""What it misses beside a wall: spacings per doubling of how much steeper than the other side."""


def at_index(values: Array, index: Index) -> Array:
    """The entry of every row, (..., rates), at an index of its own, (...,)."""
    return np.asarray(np.take_along_axis(values, index[..., None], axis=-1)[..., 0])


def steepness_of(x: Array, y: Array, lowest: Index, bandwidth: Array) -> Array:
    """How much higher a neighbour of the lowest point rises than all of the other side.

    Of parabolas 1 at most, of valleys with sides of slopes a and b at most b / a. A side with fewer
    than two points does not say how it rises, and 0 is returned for its counterpart.

    Args:
        x: log2 learning rates, (..., rates).
        y: log losses there; infinite where a run diverged, NaN where there is none.
        lowest: index of the lowest point of every curve.
        bandwidth: octaves that a parabola's weights reach.
    """
    u, finite = x - at_index(x, lowest)[..., None], np.isfinite(y)
    low = np.where(finite.any(-1), at_index(np.where(finite, y, 0.0), lowest), 0.0)
    rise = np.where(finite, y, 0.0) - low[..., None]
    near = finite & (np.abs(u) <= bandwidth[..., None] + 1e-9)
    steepness = np.zeros(lowest.shape)
    for side in (-1, 1):
        here, other = near & (side * u > 0), near & (side * u < 0)
        distance = np.where(here, np.abs(u), math.inf)
        neighbour = np.where(here.any(-1), at_index(rise, distance.argmin(-1)), 0.0)
        top = np.where(other, rise, 0.0).max(-1)
        known = (other.sum(-1) >= 2) & (top > 0)
        steepness = np.maximum(steepness, np.where(known, neighbour / np.where(known, top, 1), 0))
    return steepness


def misfit_of(
    x: Array,
    y: Array,
    tried: Flags,
    at: Array,
    spacing: Array,
    bandwidth: Array,
    alone: Flags,
    steepness: Array,
) -> Array:
    """The standard error that the fit itself has; see the module's docstring.

    Args:
        x: log2 learning rates, (..., rates).
        y: log losses there.
        tried: where there is a learning rate.
        at: log2 learning rate of the lowest point.
        spacing: octaves between learning rates around it.
        bandwidth: octaves that the parabola's weights reach.
        alone: where there is no parabola, and the lowest point is all that is known.
        steepness: of the neighbours beside the other side (``steepness_of``).

    Returns:
        Octaves, one for each curve.
    """
    here, unknown = at[..., None], tried & ~np.isfinite(y)
    # The first learning rate on each side that says nothing: it diverged, or the grid has ended.
    low = np.where(unknown & (x < here), x, -math.inf).max(-1)
    high = np.where(unknown & (x > here), x, math.inf).min(-1)
    low = np.maximum(low, np.where(tried, x, math.inf).min(-1) - spacing)
    high = np.minimum(high, np.where(tried, x, -math.inf).max(-1) + spacing)
    reach_low, reach_high = (np.minimum(d / bandwidth, 1.0) for d in (at - low, high - at))
    one_sided = np.hypot(FIT, ONE_SIDED * np.abs(reach_low - reach_high))
    steep = STEEP * np.log2(np.maximum(steepness / GENTLE, 1.0))
    return np.asarray(spacing * np.where(alone, WALL, np.minimum(np.hypot(one_sided, steep), WALL)))
