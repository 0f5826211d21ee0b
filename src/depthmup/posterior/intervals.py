"""Intervals, each once: Student's, the jackknife's, Clopper and Pearson's, and Holm's many tests.

Everything here takes plain numbers and knows nothing of where they come from.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from depthmup.posterior.distributions import student_above, student_half_width
from depthmup.records import UNKNOWN, Estimate

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = Sequence[float] | Array | Index
_Key = TypeVar("_Key", bound=Hashable)

CONFIDENCE = 0.95
"""Of every interval that is not a prediction; predictions of certificates hold 90%."""


def together(count: int, confidence: float = CONFIDENCE) -> float:
    """The confidence of each of several intervals, for all of them to hold at once.

    Example:
        >>> round(together(5), 12)
        0.99

    *Source:* Bonferroni's inequality.
    """
    return 1 - (1 - confidence) / count


def student(freedom: ArrayLike, confidence: float = CONFIDENCE) -> Array:
    """Half-width of Student's two-sided interval in standard errors.

    *Source:* Student (1908), Biometrika 6:1-25.
    """
    # An infinite freedom is none from which steps can go.
    return student_half_width(np.minimum(np.asarray(freedom, float), 1e9), confidence)


def around(value: float | Array, half: float | Array, unit: str = "") -> Estimate:
    """The interval ``value +- half``, of one experiment."""
    value, half = float(value), float(half)
    return Estimate(value=value, low=value - half, high=value + half, unit=unit)


def mean(values: Sequence[float], *, unit: str = "", confidence: float = CONFIDENCE) -> Estimate:
    """The mean of values of independent seeds, with Student's interval.

    *Source:* Student (1908), Biometrika 6:1-25.
    """
    numbers = np.asarray(values, float)
    if not len(numbers) or not np.isfinite(numbers).all():
        return UNKNOWN
    half = math.inf
    if len(numbers) > 1:
        error = float(numbers.std(ddof=1)) / math.sqrt(len(numbers))
        half = error * float(student(len(numbers) - 1, confidence))
    return around(float(numbers.mean()), half, unit)


def geometric_mean(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """The geometric mean of positive values, with Student's interval of the logarithm.

    *Source:* Student (1908), Biometrika 6:1-25.
    """
    numbers = np.asarray(values, float)
    if not len(numbers) or not (np.isfinite(numbers) & (numbers > 0)).all():
        return UNKNOWN
    low, value, high = geometric_means(numbers, confidence=confidence)
    return Estimate(value=float(value), low=float(low), high=float(high))


def geometric_means(values: Array, *, confidence: float = CONFIDENCE) -> tuple[Array, Array, Array]:
    """The same of the finite values along the last axis: lower ends, means, and upper ends."""
    finite = np.isfinite(values)
    count = finite.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        logs = np.log(np.where(finite, values, 1.0))
        middle = logs.sum(-1) / count
        apart = np.where(finite, logs - middle[..., None], 0.0)
        error = np.sqrt((apart**2).sum(-1) / (count - 1) / count)
        t = student(np.maximum(count - 1, 1), confidence)
        half = np.where(count > 1, error * t, math.inf)
        return np.exp(middle - half), np.exp(middle), np.exp(middle + half)


def jackknife_error(without: Array, groups: Sequence[Index] | None = None) -> tuple[Array, Array]:
    """Standard error and degrees of freedom from leaving out one seed at a time.

    Seeds of one group were trained at the same sizes and are exchangeable. A group g of m_g seeds
    contributes V_g = (m_g - 1) / m_g * sum (t_s - mean t)^2; the freedom of their sum is
    Satterthwaite's, (sum V_g)^2 / sum (V_g^2 / (m_g - 1)). A seed without a fellow shows no scatter
    of its own; it is taken to contribute what the others do on average.

    *Source:* Miller (1974), Biometrika 61:1-15, for groups that are left out one by one;
    Satterthwaite (1946), Biometrics Bulletin 2:110-114, for the degrees of freedom of a sum.
    """
    seeds = without.shape[-1]
    total = np.zeros(without.shape[:-1])
    spread = np.zeros(without.shape[:-1])
    fellows, smallest = 0, seeds
    for group in [np.arange(seeds)] if groups is None else groups:
        count = len(group)
        if count < 2:
            continue
        fellows += count
        smallest = min(smallest, count - 1)
        values = without[..., group]
        with np.errstate(invalid="ignore"):
            deviation = values - values.mean(-1, keepdims=True)
            part = (count - 1) / count * np.sum(deviation**2, axis=-1)
        total += part
        spread += part**2 / (count - 1)
    if not fellows:
        return np.full(total.shape, math.inf), np.ones(total.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = np.where(spread > 0, total**2 / np.where(spread > 0, spread, 1.0), smallest)
    total = total * (seeds if groups is None else sum(map(len, groups))) / fellows
    error = np.where(np.isfinite(total), np.sqrt(np.where(np.isfinite(total), total, 0)), math.inf)
    return error, np.where(np.isfinite(freedom), freedom, 1.0)


def p_beyond(excess: float, error: float, freedom: float) -> float:
    """One-sided p-value of Student's test that a quantity exceeds a margin by this much.

    Example:
        >>> p_beyond(0.0, 1.0, 5), p_beyond(1.0, 0.0, 5)
        (0.5, 0.0)
    """
    if error == 0:
        return 1.0 if excess <= 0 else 0.0
    return student_above(excess / error, min(freedom, 1e9))


def holm(p_values: Mapping[_Key, float], *, level: float = 1 - CONFIDENCE) -> set[_Key]:
    """The hypotheses that Holm's procedure rejects: at most ``level`` chance of any wrong one.

    Sorted p-values are compared with level/m, level/(m-1), ... until one is not below. Holds under
    any dependence between the tests, which here share networks.

    Args:
        p_values: one for each hypothesis.
        level: chance of any wrong rejection.

    Returns:
        The names of those that are rejected.

    Example:
        >>> sorted(holm({"a": 0.001, "b": 0.03, "c": 0.04}))
        ['a']

    *Source:* Holm (1979), Scandinavian Journal of Statistics 6:65-70.
    """
    rejected: set[_Key] = set()
    remaining = len(p_values)
    for key, p in sorted(p_values.items(), key=lambda item: item[1]):
        if p > level / remaining:
            break
        rejected.add(key)
        remaining -= 1
    return rejected
