"""Intervals of single claims, beside those of ``depthmup.statistics``."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from depthmup.records import Estimate
from depthmup.statistics import CONFIDENCE, Array, around, jackknife_error, mean, student


def exact(value: float) -> Estimate:
    """A computed number."""
    return Estimate(value=value, low=value, high=value)


def jackknife(
    statistic: Callable[[Array], float],
    losses: Array,
    unit: str = "",
    *,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """A statistic of losses (..., seeds), with its interval from leaving out each seed.

    Seeds are the only thing that is resampled: data, initialization and order are shared by all
    sizes and learning rates of a seed, and leaving out a whole seed respects that. Unknown where
    the statistic is; unbounded where a seed decides whether the statistic exists, and with one
    seed.

    *Source:* Tukey (1958), Annals of Mathematical Statistics 29:614; Miller (1974), Biometrika
    61:1-15.
    """
    seeds = losses.shape[-1]
    value = float(statistic(losses))
    if not math.isfinite(value):
        return Estimate(value=value, low=value, high=value, unit=unit)
    if seeds < 2:
        return around(value, math.inf, unit)
    without = np.array([statistic(np.delete(losses, s, axis=-1)) for s in range(seeds)], float)
    error, freedom = jackknife_error(without)
    t = float(student(freedom, confidence))
    return around(value, t * float(error) if math.isfinite(float(error)) else math.inf, unit)


def standard_errors(values: ArrayLike, expected: ArrayLike) -> Array:
    """How far means over runs are from what is expected, in their standard errors.

    ``values`` are (runs, ...), which scatter; ``expected`` is of one run's shape.
    """
    runs = np.asarray(values, float)
    errors = runs.std(axis=0, ddof=1) / math.sqrt(len(runs))
    deviations: Array = np.abs(runs.mean(axis=0) - np.asarray(expected)) / errors
    return deviations


def surprising(runs: int, tests: int = 1) -> float:
    """Standard errors that a mean over runs exceeds by chance in one of 20 cases, to two decimals.

    The two-sided 95% point of Student's t; for several numbers together Bonferroni's.

    *Source:* Dunn (1961), Journal of the American Statistical Association 56:52-64, for several
    numbers together.
    """
    return round(float(student(runs - 1, 1 - 0.05 / tests)), 2)


def log_slope(sizes: Sequence[float], values: Sequence[Sequence[float]] | Array) -> Estimate:
    """The exponent of values (sizes, seeds) in size: one slope per seed, with Student's interval.

    Logarithms are averaged, so what is fitted is the typical value and not the mean.

    Example:
        >>> round(log_slope([2, 4, 8], [[4.0, 4.4], [16.0, 17.6], [64.0, 70.4]]).value, 6)
        2.0

    *Source:* Student (1908), Biometrika 6:1-25, of the seeds' own slopes.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        exponents = slope_weights(np.log(np.asarray(sizes, float))) @ np.log(
            np.asarray(values, float)
        )
    return mean([float(s) for s in exponents])


def slope_weights(positions: Sequence[float] | Array) -> Array:
    """Weights w with w . y = the least-squares slope of y against positions.

    Example:
        >>> slope_weights([1.0, 2.0, 3.0]).tolist()
        [-0.5, 0.0, 0.5]
    """
    x = np.asarray(positions, float)
    x = x - x.mean()
    return np.asarray(x / (x @ x))


def share(count: int, trials: int) -> Estimate:
    """The share of independent trials that succeed, with the interval of Clopper and Pearson.

    *Source:* Clopper and Pearson (1934), Biometrika 26:404-413.
    """
    if not 0 <= count <= trials or trials < 1:
        raise ValueError(f"Expected successes among one trial or more; got {count} of {trials}.")
    tail = (1 - CONFIDENCE) / 2
    return Estimate(
        value=count / trials,
        low=float(betaincinv(count, trials - count + 1, tail)) if count else 0.0,
        high=float(betaincinv(count + 1, trials - count, 1 - tail)) if count < trials else 1.0,
    )
