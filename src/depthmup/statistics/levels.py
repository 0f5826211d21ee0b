"""How high the valley of every size lies, all sizes sharing one shape.

    log loss = level(size) + f(u),    u = log2 rate - the size's best,

f straight between whole octaves. f is fitted to differences within sizes, so that a size whose
losses are all off by a factor bends it no more than another; the level is then the median of what
is left. Coarse grids, grids that end at their optimum and two runs beside a divergence all know
their level by it, to a few percent, where a parabola of their own knows none.
"""

import math
from dataclasses import dataclass

import numpy as np

from depthmup.statistics.intervals import Array, Flags, Index

REACH = 3.0
"""Octaves from the best rate beyond which runs are left out: cliffs, and networks that stay as they
were."""

KNOTS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
"""Where the shape may bend, octaves from the best rate."""

CLOSE = 0.01
"""Scatter of log losses that is usual between runs, within which no run is better than another."""

PASSES = 30
"""Of reweighting; coefficients move by less than 1e-3 after ten."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Levels:
    """The levels of all sizes.

    Attributes:
        level: log loss at the best rate; NaN where no finite run is within reach.
        spread: median absolute deviation of what the runs of a size say of it.
        runs: of each size that say something.
    """

    level: Array
    spread: Array
    runs: Index


def levels_of(log2_lrs: Array, log_losses: Array, best: Array) -> Levels:
    """The levels of sizes that share the shape of their valley."""
    u = log2_lrs - best[:, None]
    with np.errstate(invalid="ignore"):
        there = np.isfinite(log_losses) & (np.abs(u) <= REACH)
    count = len(best)
    size = np.asarray(np.nonzero(there)[0], np.int64)
    level = np.full(count, math.nan)
    spread = np.full(count, math.nan)
    runs = np.asarray(np.bincount(size, minlength=count), np.int64)
    if not len(size):
        return Levels(level=level, spread=spread, runs=runs)
    rest = log_losses[there] - _shape(u[there], log_losses[there], size)
    for number in np.unique(size):
        of_size = rest[size == number]
        level[number] = np.median(of_size)
        spread[number] = np.median(np.abs(of_size - level[number]))
    return Levels(level=level, spread=spread, runs=runs)


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


def agreeing(levels: Levels, within: float) -> Flags:
    """Sizes of at least two runs that say the same of its level, to some difference."""
    return np.asarray((levels.runs >= 2) & (levels.spread <= within))
