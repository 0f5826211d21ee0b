"""What a wrong value costs at one size, with the interval that its optimum's error leaves."""

import math

import numpy as np

from depthmup.posterior.intervals import CONFIDENCE, Array
from depthmup.records import Estimate
from depthmup.statistics.minimum import Minima

NODES = 201
"""Quantiles of the distance at which the valley is read; enough for two digits."""

UNIT = "loss"


def cost(
    found: Minima, size: int, row: Array, octaves: float = 0.0, confidence: float = CONFIDENCE
) -> Estimate:
    """Loss at one size that far from its optimum, minus its best loss.

    The distance is ``row . minima + octaves``, with all that is not known of it; the valley itself
    is taken as measured.
    """
    if not 0 <= size < len(found.at):
        raise ValueError(f"Expected one of {len(found.at)} sizes; got another index.")
    tail = (1 - confidence) / 2
    away = found.posterior.of_sizes(np.asarray(row, float)[None])
    steps = away.quantiles((np.arange(NODES) + 0.5) / NODES) + octaves
    level = float(np.exp(found.log_loss[size]))
    middle = float(away.quantile(0.5)[0]) + octaves
    with np.errstate(over="ignore"):
        # The first distance is the estimate itself.
        value, *values = level * np.expm1(found.excess(size, np.append(middle, steps)))
    # Infinite costs cannot be interpolated.
    low, high = np.quantile(values, [tail, 1 - tail], method="inverted_cdf")
    # At its own optimum a value costs less than anywhere near; on a stray run's peak, more.
    low, high = min(low, value), max(high, value)
    if not math.isfinite(value):
        high = math.inf
    return Estimate(value=float(value), low=float(low), high=float(high), unit=UNIT)
