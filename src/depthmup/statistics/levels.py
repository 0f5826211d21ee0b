"""How high the valley of every size lies, all sizes sharing one shape.

    log loss = level(size) + f(u),    u = log2 rate - the size's best,

f straight between whole octaves. f is fitted to differences within sizes, so that a size whose
losses are all off by a factor bends it no more than another; the level is then the median of what
is left. Coarse grids, grids that end at their optimum and two runs beside a divergence all know
their level by it, to a few percent, where a parabola of their own knows none. The posterior's
levels rest on its minima, which a slip moves (``statistics.slips``).
"""

import math

import numpy as np

from depthmup.posterior.intervals import Array, Index

REACH = 3.0
"""Octaves from the best rate beyond which runs are left out: cliffs, and networks that stay as they
were."""

KNOTS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
"""Where the shape may bend, octaves from the best rate."""

CLOSE = 0.01
"""Scatter of log losses that is usual between runs, within which no run is better than another."""

PASSES = 30
"""Of reweighting; coefficients move by less than 1e-3 after ten."""


def levels_of(
    log2_lrs: Array, log_losses: Array, best: Array, *, within: float = math.inf
) -> Array:
    """Log loss at the best rate of sizes that share the shape of their valley.

    NaN where no finite run is within reach. Where runs are to agree ``within`` some difference, by
    their median absolute deviation, a size needs two that do.
    """
    u = log2_lrs - best[:, None]
    with np.errstate(invalid="ignore"):
        there = np.isfinite(log_losses) & (np.abs(u) <= REACH)
    count = len(best)
    size = np.asarray(np.nonzero(there)[0], np.int64)
    level = np.full(count, math.nan)
    if not len(size):
        return level
    rest = log_losses[there] - _shape(u[there], log_losses[there], size)
    for number in np.unique(size):
        of_size = rest[size == number]
        middle = np.median(of_size)
        alone = len(of_size) < 2 and math.isfinite(within)
        if not alone and np.median(np.abs(of_size - middle)) <= within:
            level[number] = middle
    return level


def _shape(u: Array, y: Array, size: Index) -> Array:
    """f at every run, zero at the best rate: least absolute deviations, a level for each size."""
    basis = np.column_stack([u, *(np.maximum(u - knot, 0) for knot in KNOTS)])
    at_best = np.concatenate([[0.0], np.maximum(-KNOTS, 0)])
    weight = np.ones(len(y))
    for _ in range(PASSES):
        total = np.maximum(np.bincount(size, weights=weight), 1e-12)
        columns = np.column_stack([basis, y])
        means = [np.bincount(size, weights=weight * column) / total for column in columns.T]
        within = columns - np.column_stack(means)[size]
        root = np.sqrt(weight)[:, None]
        coefficients = np.linalg.lstsq(
            root * within[:, :-1], root[:, 0] * within[:, -1], rcond=1e-8
        )[0]
        weight = 1 / np.maximum(np.abs(within[:, -1] - within[:, :-1] @ coefficients), CLOSE)
    return np.asarray((basis - at_best) @ coefficients)
