"""What one small change does at a size, by runs that share their rates and seeds.

Two variants that nearly agree have nearly the same noise: runs of one seed draw the same weights
and data. Their log losses at rate x and seed s differ by

    d_s(x) = log loss_B(x, s) - log loss_A(x, s) = a_s + b_s u + q_s u^2,    u = x - x_A,

in octaves u from the minimum of A, where the loss rises by c u^2. So B's minimum lies at

    -b / 2 (c + q),    its log loss is higher by    a - b^2 / 4 (c + q),

and at a rate that both are given the difference is d(x) itself, wherever the minima are. All of
these are sums over rates, sum_x w_x d_s(x), with Student's interval over seeds. Two or three seeds
may agree by chance, so their scatter counts as at least that of all rates together.
"""

from dataclasses import dataclass

import numpy as np

from depthmup.posterior.intervals import Array, around, student
from depthmup.posterior.law import Size
from depthmup.records import UNKNOWN, Estimate
from depthmup.statistics.runs import Runs

REACH = 1.5
"""Octaves from the minimum within which the loss is taken for a parabola."""

NEAR = 0.5
"""Octaves up to which the minima may lie apart for the difference to be a parabola, too."""


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Of the second variant over the first: unknown where the runs do not tell.

    Attributes:
        change: of its minimum, octaves.
        tuned: by how much its lowest log loss is lower, nats.
    """

    change: Estimate
    tuned: Estimate


def pairs(one: Runs, whole: Runs, size: Size) -> tuple[Array, Array]:
    """The rates at which the whole trained, and the differences of log losses (rates, seeds):
    infinite where the other diverged, NaN where it was not trained.
    """
    seen = [{(x, s): y for x, s, y in runs.at_size(size)} for runs in (one, whole)]
    both = [run for run in seen[0].keys() & seen[1].keys() if 0 < seen[1][run] < np.inf]
    rates = sorted({x for x, _ in both})
    seeds = sorted({s for _, s in both})
    found = np.full((len(rates), len(seeds)), np.nan)
    for x, s in both:
        found[rates.index(x), seeds.index(s)] = np.log(seen[0][x, s] / seen[1][x, s])
    return np.array(rates), found


def _over_seeds(differences: Array, weights: Array) -> Estimate:
    """A sum over rates of differences (rates, seeds), with its interval; seeds that lack a rate
    which counts are left out.
    """
    used = weights != 0
    of_seeds = weights[used] @ differences[used]
    of_seeds = of_seeds[np.isfinite(of_seeds)]
    if len(of_seeds) < 2:
        return UNKNOWN
    there = np.where(np.isfinite(differences), differences, np.nan)
    counts = np.maximum((~np.isnan(there)).sum(1) - 1, 0)
    squares = np.nansum((there - np.nanmean(there, axis=1, keepdims=True)) ** 2)
    pooled = np.sqrt(squares / counts.sum() * (weights @ weights))
    scatter = max(float(of_seeds.std(ddof=1)), float(pooled))
    half = scatter / np.sqrt(len(of_seeds)) * student(counts.sum())
    return around(of_seeds.mean(), half)


def paired(one: Runs, whole: Runs, size: Size) -> Paired:
    """The change of the minimum and of its loss, where three rates about it are in common."""
    nothing = Paired(change=UNKNOWN, tuned=UNKNOWN)
    i = [dict(whole.sizes[j]) for j in whole.trains].index(dict(size))
    rates, differences = pairs(one, whole, size)
    u = rates - float(whole.minima.at[i])
    near = np.abs(u) <= REACH
    u, differences = u[near], differences[near]
    differences = differences[:, np.isfinite(differences).all(0)]
    if len(u) < 3 or not u[0] < 0 < u[-1] or differences.shape[1] < 2:
        return nothing
    of_q, of_b, of_a = np.linalg.pinv(np.vander(u, 3))
    steep, error = (float(v[i]) for v in whole.minima.curvature)
    steep += float((of_q @ differences).mean())
    if not steep > 3 * error > 0:
        return nothing
    slope = _over_seeds(differences, of_b)
    # What is not known of the steepness scales the change.
    moved = -slope.value / (2 * steep)
    half = np.hypot((slope.high - slope.low) / (4 * steep), 1.96 * error / steep * moved)
    change = around(moved, half)
    if not change.inside(-NEAR, NEAR):
        return nothing
    level, gained = _over_seeds(-differences, of_a), slope.value**2 / (4 * steep)
    # Where the whole's minimum lies is known to its own deviation.
    beside = 1.96 * slope.value * float(whole.minima.posterior.deviation[i])
    tuned = around(level.value + gained, np.hypot(level.high - level.value, beside))
    return Paired(change=change, tuned=tuned)


def carried(one: Runs, whole: Runs, size: Size, at: float) -> Estimate:
    """By how much the second log loss is lower where both train with one rate, nats.

    Between the nearest rates of both, which must not lie beyond it by more than they lie apart.
    """
    rates, differences = pairs(one, whole, size)
    below, above = (np.flatnonzero(side) for side in (rates <= at, rates > at))
    if not len(below) or not len(above):
        return UNKNOWN
    i, j = below[-1], above[0]
    share = (at - rates[i]) / (rates[j] - rates[i])
    nearest = differences[j if share > 0.5 else i]
    if np.isposinf(nearest[~np.isnan(nearest)]).all():
        return Estimate(value=-np.inf, low=-np.inf, high=-np.inf)  # it diverges
    weights = np.zeros(len(rates))
    weights[i], weights[j] = share - 1, -share
    used = np.abs(rates - at) <= REACH
    used[[i, j]] = True
    return _over_seeds(differences[used], weights[used])
