"""Single runs of a table that cannot be: pure tests on arrays, each threshold with its reason.

Every test returns flags and changes nothing. Thresholds are such that a sound table loses no row:
what a threshold says is derived beside it, and simulated (benchmarks/fit.py).
"""

import math

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.statistics.trend import trend_of

APART = 8.0
"""Octaves of empty space between rates of one sweep that no grid leaves: a factor of 256."""

FEW = 0.05
"""Share of all runs that may lie beyond such a space and still be a mistake."""

IMPOSSIBLE, STANDS_OUT = math.log(2.0), 4.0
"""How far below all others a loss must lie: a factor of two, and four times as far as the best run
of a size usually stands out from its third."""

TELLING = 5
"""Runs of a size from which on its third best is not one of its worst."""

CUT = 0.01
"""Steps that lack, as a fraction, from which on a run counts as cut short."""


def beyond_sense(log2_rate: Array) -> Flags:
    """Runs whose rate lies alone, far beyond all others."""
    beyond = np.zeros(len(log2_rate), bool)
    if len(log2_rate) < 2:
        return beyond
    order = np.argsort(log2_rate, kind="stable")
    gaps = np.flatnonzero(np.diff(log2_rate[order]) > APART)
    total = len(log2_rate)
    for gap in gaps:
        below, above = gap + 1, total - gap - 1
        if above <= FEW * total:
            beyond[order[gap + 1 :]] = True
            break
        if below <= FEW * total:
            beyond[order[: gap + 1]] = True
    return beyond


def impossible(size: Index, log_loss: Array, positions: Array | None = None) -> Flags:
    """Runs that end far below every other run of the table, and below what their size promises.

    The floor is the least of all sizes' third best runs, so that two mistakes in one size are both
    noticed; a size stands out from its third best by what is usual for the median size. Losses may
    fall by factors from size to size: below the floor, a run must also be a factor of two below
    the trend of third best runs over sizes.
    """
    order = np.lexsort((log_loss, size))
    s, y = size[order], log_loss[order]
    starts = np.flatnonzero(np.diff(s, prepend=-1) != 0)
    counts = np.diff(np.append(starts, len(s)))
    third, best = y[starts + np.minimum(counts - 1, 2)], y[starts]
    finite = np.isfinite(third) & np.isfinite(best)
    if not finite.any():
        return np.zeros(len(size), bool)
    # A size of one or two runs may itself be the mistake, so that its "third" is none; the third
    # of three is their worst, which says little of how far a best run stands out.
    known = finite & (counts >= 3) if (finite & (counts >= 3)).any() else finite
    telling = known & (counts >= TELLING)
    telling = telling if telling.sum() >= 3 else known
    usual, floor = float(np.median(third[telling] - best[telling])), float(third[known].min())
    far = floor - log_loss > max(IMPOSSIBLE, STANDS_OUT * usual)
    if positions is None:
        return np.asarray(far)
    at = s[starts]
    promised = trend_of(
        positions[at], np.where(known, third, np.nan), least=IMPOSSIBLE, curved=True
    )
    if promised is None:
        return np.asarray(far)
    expected = np.zeros(int(size.max()) + 1)
    expected[at] = promised.expected
    return np.asarray(far & (expected[size] - log_loss > IMPOSSIBLE))


def usual_steps(size: Index, steps: Array) -> Array:
    """The number of steps that most runs of each run's size took; the larger one of a tie.

    Example:
        >>> usual_steps(np.zeros(4, int), np.array([500.0, 500.0, 120.0, 500.0])).tolist()
        [500.0, 500.0, 500.0, 500.0]
    """
    pairs, runs = np.unique(np.stack([size, steps]), axis=1, return_counts=True)
    order = np.lexsort((pairs[1], runs, pairs[0]))
    usual = np.zeros(int(size.max(initial=0)) + 1)
    usual[pairs[0][order].astype(np.int64)] = pairs[1][order]  # the last of a size wins
    return np.asarray(usual[size])
