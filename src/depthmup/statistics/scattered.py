"""Runs of random designs, each of a size of its own, gathered into cells with curves.

The law of all runs (``statistics.pooled``, with a surface of levels) moves each run from its own
size to the centre of its cell: its log2 rate by the law of optima, its log loss by the levels. A
cell's centre is the middle of its runs along every axis, so what the law has wrong moves some to
the left and others to the right. The cells are for charts and costs; exponents are the law's.
"""

import math

import numpy as np

from depthmup.posterior.intervals import Array, Index
from depthmup.posterior.priors import FAR_ABOVE
from depthmup.statistics.pooled import Pooled, pooled_law, second_degree

RUNS = 60
"""Of a cell: fewer scatter too much for a curve."""

STEP = 0.5
"""Octaves between the rates of a cell: runs nearer to one than to the next are its repetitions."""

MOST_CELLS = 6
"""Along one axis."""

PASSES = 20


def is_scattered(size: Index, log2_rate: Array) -> bool:
    """Whether most sizes have a single run, and most runs a rate of their own.

    Of a grid of rates that is not so: there a column of other numbers was named as an axis.
    """
    runs = np.bincount(size)
    return bool((runs == 1).mean() > 0.5 and len(np.unique(log2_rate)) > len(size) / 2)


def gather(
    values: Array, log2_rate: Array, log_loss: Array
) -> tuple[Pooled, Array, Index, Array, Array] | None:
    """Cells of runs whose sizes are ``values``, (runs, axes); None where these show no valley.

    The law of all runs along the axes that vary, from the smallest cell; the sizes of cells; and of
    every run its cell, its log2 rate, moved to the cell's size and the nearest rate there, and its
    log loss, moved likewise: infinite where it diverged.
    """
    cells, sizes = _cells(values)
    # An axis whose values all fall into one part of it shows no law.
    varied = np.ptp(sizes, axis=0) > 0
    centres = np.log2(sizes)
    positions = (np.log2(values) - centres.min(0))[:, varied]
    beyond = _beyond(positions, log_loss)
    kept = np.isfinite(beyond)
    if not kept.any():
        return None
    law = pooled_law(
        positions[kept],
        np.arange(int(kept.sum())),
        log2_rate[kept],
        log_loss[kept],
        surface=True,
        near=_near(positions[kept], log2_rate[kept], beyond[kept]),
    )
    if law is None or not law.constant.known:
        return None
    slopes = np.array([e.value if e.known else 0.0 for e in law.exponents])
    moved = log2_rate - (np.log2(values) - centres[cells])[:, varied] @ slopes
    best = law.constant.value + (centres - centres.min(0))[cells][:, varied] @ slopes
    rate = best + STEP * np.round((moved - best) / STEP)
    count = np.maximum(np.bincount(cells[kept], minlength=len(sizes)), 1)
    level = np.bincount(cells[kept], weights=law.levels, minlength=len(sizes)) / count
    loss = np.full(len(values), math.inf)
    valley = law.curvature * ((rate - best) ** 2 - (moved - best) ** 2)
    loss[kept] = log_loss[kept] - law.levels + (level[cells] + valley)[kept]
    return law, sizes, cells, rate, loss


def _cells(values: Array) -> tuple[Index, Array]:
    """Every run's cell, and the cells' sizes: to three digits, or as they are where all are one."""
    varied = int((np.ptp(values, axis=0) > 0).sum())
    count = int(np.clip((len(values) / RUNS) ** (1 / max(varied, 1)), 2, MOST_CELLS))
    middles = np.empty_like(values)
    for a, column in enumerate(np.log2(values).T):
        edges = np.unique(np.quantile(column, np.arange(1, count) / count))
        part = np.searchsorted(edges, column, side="right")
        for number in np.unique(part):
            of_part = values[part == number, a]
            alike = np.ptp(of_part) == 0
            middle = of_part[0] if alike else float(f"{2.0 ** column[part == number].mean():.3g}")
            middles[part == number, a] = middle
    sizes, cells = np.unique(middles, axis=0, return_inverse=True)
    return np.asarray(cells.reshape(-1), np.int64), sizes


def _beyond(positions: Array, log_loss: Array) -> Array:
    """Log losses less the usual ones at their sizes; infinite where they are four times these."""
    terms = second_degree(positions - positions.mean(0))
    kept, beyond = np.isfinite(log_loss), log_loss
    for _ in range(PASSES):
        level = np.linalg.lstsq(terms[kept], log_loss[kept], rcond=1e-9)[0]
        beyond = log_loss - terms @ level
        now = beyond <= FAR_ABOVE
        if (now == kept).all() or not now.any():
            break
        kept = now
    return np.where(kept, beyond, math.inf)


def _near(positions: Array, log2_rate: Array, beyond: Array) -> Array:
    """Where the best rates may be: a line through those of the best quarter of all runs."""
    terms = np.column_stack([np.ones(len(positions)), positions])
    best = beyond <= np.quantile(beyond, 0.25)
    line = np.linalg.lstsq(terms[best], log2_rate[best], rcond=1e-9)[0]
    return np.asarray(terms @ line)
