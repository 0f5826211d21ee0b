"""What is wrong with a table of runs: pure tests on arrays, each with a reason for its threshold.

Every test returns flags and changes nothing. Thresholds are such that a sound table loses no row:
what a threshold says is derived beside it, and simulated (benchmarks/fit.py).
"""

import math
from dataclasses import dataclass

import numpy as np

from depthmup.statistics.intervals import Array, Flags, Index

APART = 8.0
"""Octaves of empty space between rates of one sweep that no grid leaves: a factor of 256."""

FEW = 0.05
"""Share of all runs that may lie beyond such a space and still be a mistake."""

FAR_ABOVE, ABOVE_SLOW = math.log(4.0), math.log(2.0)
"""A run diverged if its loss is four times its size's best and twice the worst at smaller rates.
Rates that are too small leave a network as it was, so that more than that was done by the rate."""

IMPOSSIBLE, STANDS_OUT = math.log(2.0), 4.0
"""How far below all others a loss must lie: a factor of two, and four times as far as the best run
of a size usually stands out from its third."""

CUT = 0.01
"""Steps that lack, as a fraction, from which on a run counts as cut short."""

OUTLYING = 8.0
"""Robust standard deviations beyond which a whole size is off. Of normal errors none in 1e15 is;
of Student's t with 3 degrees of freedom, averaged over a curve's points, fewer than 1e-4."""

OUTLYING_LOSS = 5.0
"""The same for best losses, which must be off by a factor between known units besides."""

FINE = 1.1
"""Octaves between rates up to which a curve shows its best loss to a few percent."""

LOSS_FACTORS = (1 / math.log(2), math.log(2), *(10.0**k for k in (1, 2, 3, -1, -2, -3)))
"""Units of loss that are mistaken for each other: bits and nats, percent, thousandths."""

NEAR_FACTOR = 0.2
"""How near the logarithm of such a factor a shift must lie: a coarse grid misses its best loss."""

RATE_SPACINGS = 3.0
"""Spacings of its grid by which a size's optimum must be off at least to be of another unit."""

RATE_JUMP, RATE_BOUND_JUMP, RATE_SCATTER = 2.5, 6.0, 0.3
"""Octaves by which a size's optimum, or else all rates tried there, must be off to be of another
unit, and the least scatter of optima about their law that is believed."""

LOSS_JUMP, LOSS_SCATTER = 0.2, 0.01
"""The same for logarithms of best losses."""


def beyond_sense(log2_rate: Array) -> Flags:
    """Runs whose rate lies alone, far beyond all others.

    Example:
        >>> beyond_sense(np.array([-9.0, -8.0, -7.0] * 20 + [3.3])).sum()
        np.int64(1)
    """
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


def impossible(size: Index, log_loss: Array) -> Flags:
    """Runs that end far below every other run of the table.

    The floor is the least of all sizes' third best runs; a size stands out from its third best by
    what is usual for the median size. Two mistakes in one size are both noticed.

    Example:
        >>> losses = np.log(np.array([2.5, 2.2, 2.4, 2.3, 2.0, 2.2, 2.1, 1.9, 3e-4]))
        >>> impossible(np.repeat([0, 1, 2], 3), losses).nonzero()[0].tolist()
        [8]
    """
    order = np.lexsort((log_loss, size))
    s, y = size[order], log_loss[order]
    starts = np.flatnonzero(np.diff(s, prepend=-1) != 0)
    counts = np.diff(np.append(starts, len(s)))
    third = y[starts + np.minimum(counts - 1, 2)]
    finite = np.isfinite(third) & np.isfinite(y[starts])
    if not finite.any():
        return np.zeros(len(size), bool)
    # A size of one or two runs may itself be the mistake, so that its "third" is none.
    enough = finite & (counts >= 3)
    third, best = (v[enough if enough.any() else finite] for v in (third, y[starts]))
    usual, floor = float(np.median(third - best)), float(third.min())
    return np.asarray(floor - log_loss > max(IMPOSSIBLE, STANDS_OUT * usual))


def far_above(size: Index, log2_rate: Array, log_loss: Array) -> Flags:
    """Finite runs that diverged all the same; only rates above their size's best one can.

    Args:
        size: number of every run's size.
        log2_rate: of every run.
        log_loss: of every run; infinite or NaN where it is known to have failed.

    Example:
        >>> rates = np.array([-3.0, -2.0, -1.0, 0.0])
        >>> far_above(np.zeros(4, int), rates, np.log([2.6, 2.4, 2.5, 1e4])).tolist()
        [False, False, False, True]
    """
    count = int(size.max(initial=0)) + 1
    finite = np.isfinite(log_loss)
    best = np.full(count, math.inf)
    np.minimum.at(best, size[finite], log_loss[finite])
    at_best = np.full(count, math.inf)
    lowest = finite & (log_loss == best[size])
    np.minimum.at(at_best, size[lowest], log2_rate[lowest])
    slow = finite & (log2_rate <= at_best[size])
    worst = np.full(count, -math.inf)
    np.maximum.at(worst, size[slow], log_loss[slow])
    above = (log_loss > best[size] + FAR_ABOVE) & (log_loss > worst[size] + ABOVE_SLOW)
    return np.asarray(finite & above & (log2_rate > at_best[size]))


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Slip:
    """A size whose values are off by a constant, in logarithms."""

    size: int
    shift: float


def slipped_rates(
    positions: Array, optima: Array, low: Array, high: Array, spacing: Array
) -> list[Slip]:
    """Sizes whose rates are octaves off the law of all others' optima: rates of another unit.

    A size without an optimum is off if all rates that were tried there are.

    Args:
        positions: log2 of the sizes, (sizes, axes).
        optima: log2 rates; NaN where there is none.
        low, high: the smallest and largest log2 rate that was tried; NaN where too few were.
        spacing: of the grids around the lowest point: an optimum is known no better.

    Example:
        >>> x, best = np.arange(6.0)[:, None], np.array([-9.0, -9.1, -9.2, 0.6, -9.4, -9.6])
        >>> slipped_rates(x, best, best - 3, best + 3, np.ones(6))[0].size
        3
    """
    law = _most(positions, optima, RATE_SCATTER)
    if law is None:
        return []
    above, below = low - law.expected, high - law.expected
    bound = np.nan_to_num(np.where(above > 0, above, np.where(below < 0, below, 0.0)))
    known = np.isfinite(optima)
    off = np.where(known, optima - law.expected, bound)
    least = np.where(known, np.maximum(RATE_JUMP, RATE_SPACINGS * spacing), RATE_BOUND_JUMP)
    jump = np.maximum(least, OUTLYING * law.scatter)
    return law.slips(off, np.abs(off) > jump)


def slipped_losses(
    positions: Array, fitted: Array, lowest: Array, inside: Flags, spacing: Array
) -> list[Slip]:
    """Sizes whose best losses are off the trend of all others by a factor between known units.

    A coarse curve's fitted minimum may lie too low, and its lowest run too high: what is taken is
    the one that is nearer to the trend.

    Args:
        positions: log2 of the sizes, (sizes, axes).
        fitted: log losses at the optima; NaN where there is none.
        lowest: of the best runs; NaN where too few are known.
        inside: whether the optimum lies inside its grid: the trend is of these sizes, or of those
            with a fine grid alone.
        spacing: of the grids, in octaves.

    Example:
        >>> x = np.arange(6.0)[:, None]
        >>> trend = np.array([1.1, 1.05, 1.0, 0.96, 0.92, 0.9])
        >>> off = trend + np.array([0, 0, 0.3665, 0, 0, 0])
        >>> [s.size for s in slipped_losses(x, off, off, np.ones(6, bool), np.ones(6))]
        [2]
    """
    fine = inside & (spacing <= FINE)
    laws = [
        _most(positions, np.where(flags, fitted, math.nan), LOSS_SCATTER, curved=curved)
        for flags in (fine, inside)
        for curved in (True, False)
    ]
    # Of the trends that can be fitted, the one that most sizes agree on best.
    law = min((law for law in laws if law is not None), key=lambda law: law.scatter, default=None)
    if law is None:
        return []
    both = np.stack([np.where(inside, fitted, lowest), lowest]) - law.expected
    least = np.where((both > 0).all(0), both.min(0), np.where((both < 0).all(0), both.max(0), 0.0))
    off = np.where(np.isfinite(least), least, 0.0)
    factor = np.abs(np.log(LOSS_FACTORS)[:, None] - off).min(0) <= NEAR_FACTOR
    return law.slips(off, factor & (np.abs(off) > max(LOSS_JUMP, OUTLYING_LOSS * law.scatter)))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Plane:
    """What most sizes say of all: expected values, and how far they scatter."""

    expected: Array
    scatter: float

    def slips(self, off: Array, flags: Flags) -> list[Slip]:
        """The sizes that are off; none if more than a third are, as there is no "most" then."""
        if flags.sum() > len(flags) / 3:
            return []
        return [Slip(size=int(i), shift=float(off[i])) for i in np.flatnonzero(flags)]


def _most(
    positions: Array, values: Array, scatter: float, *, curved: bool = False
) -> _Plane | None:
    """A plane through most sizes, by least absolute deviations: a few that are off do not bend it.

    None where fewer than three sizes beyond those that fix the plane say what is usual. ``curved``
    adds a square of the total size: losses flatten towards their floor.
    """
    known = np.isfinite(values)
    x = positions[:, np.ptp(positions[known], axis=0) > 0] if known.any() else positions
    total = x.sum(-1) - x.sum(-1).mean()
    # A bend needs sizes to spare, or it follows what is off.
    bent = [total**2] if curved and known.sum() >= 6 + x.shape[1] else []
    design = np.column_stack([np.ones(len(x)), x, *bent])
    rank = int(np.linalg.matrix_rank(design[known])) if known.any() else 0
    if known.sum() - rank < 3:
        return None
    y, inner = values[known], design[known]
    weights = np.ones(len(y))
    coefficients = np.zeros(design.shape[1])
    for _ in range(60):  # iteratively reweighted least squares; converged well before
        root = np.sqrt(weights)
        coefficients = np.linalg.lstsq(inner * root[:, None], y * root, rcond=None)[0]
        weights = 1 / np.maximum(np.abs(y - inner @ coefficients), 1e-4)
    # The plane passes through `rank` sizes: their residuals of zero say nothing about scatter.
    free = np.sort(np.abs(y - inner @ coefficients))[rank:]
    usual = max(scatter, 1.4826 * float(np.median(free)))
    return _Plane(expected=design @ coefficients, scatter=usual)
