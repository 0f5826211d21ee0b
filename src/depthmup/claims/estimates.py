"""Estimates made of estimates, and of values per seed."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from depthmup.records import UNKNOWN, Estimate


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


def log_ratio(above: Estimate, below: Estimate) -> Estimate:
    """log(above / below); the interval takes the two as independent, which is conservative where
    they share seeds.

    Example:
        >>> one = Estimate(value=1.0, low=1.0, high=1.0)
        >>> round(log_ratio(Estimate(value=2.0, low=2.0, high=2.0), one).value, 3)
        0.693
    """
    if not (above.known and below.known and above.value > 0 and below.value > 0):
        return UNKNOWN
    value = math.log(above.value / below.value)
    half = [(e.high - e.low) / 2 / e.value for e in (above, below)]
    reach = math.hypot(*half)
    return Estimate(value=value, low=value - reach, high=value + reach, unit="nats")


def exact(value: float, *, error: float = 0.0, unit: str = "") -> Estimate:
    """A computed number, known up to a numerical error."""
    return Estimate(value=value, low=value - error, high=value + error, unit=unit)
