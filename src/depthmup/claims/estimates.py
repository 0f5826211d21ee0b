"""Estimates made of estimates, and of values per seed."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, stdtrit

from depthmup.records import UNKNOWN, Estimate
from depthmup.sweep.optimum import Array, jackknife, vertex


def mean(values: Sequence[float], *, unit: str = "", confidence: float = 0.95) -> Estimate:
    """The mean of values of independent seeds, with Student's interval.

    Example:
        >>> found = mean([1.0, 2.0, 3.0])
        >>> found.value, round(found.high - found.value, 2)
        (2.0, 2.48)
    """
    known = np.asarray(values, float)
    if not len(known) or not np.isfinite(known).all():
        return UNKNOWN
    value, half = float(known.mean()), math.inf
    if len(known) > 1:
        error = float(known.std(ddof=1)) / math.sqrt(len(known))
        half = error * float(stdtrit(len(known) - 1, (1 + confidence) / 2))
    return Estimate(value=value, low=value - half, high=value + half, unit=unit)


def exact(value: float) -> Estimate:
    """A computed number."""
    return Estimate(value=value, low=value, high=value)


def share(count: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """The share of independent trials that succeed, with the interval of Clopper and Pearson.

    Example:
        >>> none, all_ = share(0, 6), share(6, 6)
        >>> round(none.high, 3), round(all_.low, 3)
        (0.459, 0.541)
    """
    tail = (1 - confidence) / 2
    return Estimate(
        value=count / trials,
        low=float(betaincinv(count, trials - count + 1, tail)) if count else 0.0,
        high=float(betaincinv(count + 1, trials - count, 1 - tail)) if count < trials else 1.0,
    )


def standard_errors(values: ArrayLike, expected: ArrayLike) -> Array:
    """How far means over runs are from what is expected, in their standard errors.

    ``values`` are (runs, ...), which scatter; ``expected`` is of one run's shape.

    Example:
        >>> round(float(standard_errors([1.0, 2.0, 3.0], 1.0)), 6)    # the error is 1 / sqrt(3)
        1.732051
    """
    found = np.asarray(values, float)
    errors = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    deviations: Array = np.abs(found.mean(axis=0) - np.asarray(expected)) / errors
    return deviations


def surprising(runs: int, tests: int = 1) -> float:
    """Standard errors that a mean over runs exceeds by chance in one of 20 cases, to two decimals.

    The two-sided 95% point of Student's t; for several numbers together Bonferroni's.

    Example:
        >>> surprising(24), surprising(24, tests=5)
        (2.07, 2.81)
    """
    return round(float(stdtrit(runs - 1, 1 - 0.025 / tests)), 2)


def log_slope(sizes: Sequence[float], values: Sequence[Sequence[float]]) -> Estimate:
    """The exponent of values (sizes, seeds) in size: one slope per seed, with Student's interval.

    Logarithms are averaged, so what is fitted is the typical value and not the mean.

    Example:
        >>> round(log_slope([2, 4, 8], [[4.0, 4.4], [16.0, 17.6], [64.0, 70.4]]).value, 6)
        2.0
    """
    x = np.log(np.asarray(sizes, float))
    pull = (x - x.mean()) / np.square(x - x.mean()).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = pull @ np.log(np.asarray(values, float))
    return mean([float(s) for s in slopes])


def best_log_loss(log2_lrs: Sequence[float], losses: Array) -> float:
    """The log loss at the vertex of the seed-averaged curve, from losses (learning rates, seeds).

    Example:
        >>> losses = np.exp(np.array([[4.0, 4.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]))
        >>> best_log_loss([-2, -1, 0, 1], losses)
        0.0
    """
    found = vertex(log2_lrs, np.log(losses).mean(-1)).log_loss
    return found if math.isfinite(found) else math.nan


def log_ratio_of_best(
    above: tuple[Sequence[float], Array], below: tuple[Sequence[float], Array]
) -> Estimate:
    """log(best loss of one curve / best loss of another), paired by the seeds that they share.

    Each is (log2 learning rates, losses (learning rates, seeds)). Seeds share data, order and
    initial weights, so that leaving out one leaves it out of both: what moves both cancels.
    """
    rates, count = (above[0], below[0]), len(above[1])

    def statistic(both: Array) -> float:
        return best_log_loss(rates[0], both[:count]) - best_log_loss(rates[1], both[count:])

    return jackknife(statistic, np.concatenate([above[1], below[1]]), "nats")
