"""What a wrong value costs at one size, with the interval that its optimum's error leaves."""

import math

import numpy as np

from depthmup.records import Estimate
from depthmup.statistics.intervals import CONFIDENCE
from depthmup.statistics.minimum import Minima

NODES = 201
"""Quantiles of the optimum's error at which the valley is read; enough for two digits."""

UNIT = "loss"


def cost(
    found: Minima, size: int, octaves: float, error: float, confidence: float = CONFIDENCE
) -> Estimate:
    """Loss at one size, that far from its optimum, minus its best loss.

    The interval is that of the distance, of a standard error: the valley itself is taken as
    measured.
    """
    from scipy.special import ndtri

    if not 0 <= size < len(found.doublings):
        raise ValueError(f"Expected one of {len(found.doublings)} sizes; got another index.")
    tail = (1 - confidence) / 2
    steps = ndtri((np.arange(NODES) + 0.5) / NODES) * (error if math.isfinite(error) else 0.0)
    level = float(np.exp(found.log_loss[size]))
    with np.errstate(over="ignore"):
        # The first distance is the estimate itself.
        value, *values = level * np.expm1(found.excess(size, octaves + np.append(0.0, steps)))
    if not math.isfinite(error):
        return Estimate(value=float(value), low=0.0, high=math.inf, unit=UNIT)
    # Infinite costs cannot be interpolated.
    low, high = np.quantile(values, [tail, 1 - tail], method="inverted_cdf")
    # At its own optimum a value costs less than anywhere near; on a stray run's peak, more.
    low, high = min(low, value), max(high, value)
    return Estimate(value=float(value), low=float(low), high=float(high), unit=UNIT)
