"""What a wrong value costs at one size, with the interval that its optimum's error leaves."""

import math

import numpy as np
from scipy.special import ndtri

from depthmup.records import Estimate
from depthmup.statistics.intervals import CONFIDENCE, jackknife_error, student
from depthmup.statistics.optimum import Optima
from depthmup.statistics.regression import PRIOR_FREEDOM

NODES = 201
"""Quantiles of the optimum's error at which the valley is read; enough for two digits."""

UNIT = "nats"


def centre_error(fitted: Optima, size: int) -> float:
    """Standard error of one size's centre: seeds or points' scatter, and what the fit misses.

    Student's t of few seeds is widened to the normal's scale, so that errors of sizes add.
    """
    # The size's own: a search asks for one seed where nothing trains, which says nothing of others.
    seeds = np.flatnonzero(fitted.curves.seeds[size])
    if len(seeds) < 2:
        error, freedom = float(fitted.scatter[size]), float(PRIOR_FREEDOM)
    else:
        scatter, free = jackknife_error(fitted.centre_without[size], [seeds])
        error, freedom = float(scatter), float(free)
    widened = error * float(student(freedom)) / float(student(math.inf))
    return math.hypot(widened, float(fitted.misfit[size]))


def cost(
    fitted: Optima, size: int, octaves: float, error: float, confidence: float = CONFIDENCE
) -> Estimate:
    """Loss at one size, that far from its optimum, minus its best loss.

    The interval is that of the distance: the valley itself is taken as measured.
    """
    if not 0 <= size < len(fitted.centre):
        raise ValueError(f"Expected one of {len(fitted.centre)} sizes; got another index.")
    tail = (1 - confidence) / 2
    steps = ndtri((np.arange(NODES) + 0.5) / NODES) * (error if math.isfinite(error) else 0.0)
    level = float(np.exp(fitted.log_loss[size]))
    with np.errstate(over="ignore"):
        # The first distance is the estimate itself.
        value, *values = level * np.expm1(fitted.excess(size, octaves + np.append(0.0, steps)))
    if not math.isfinite(error):
        return Estimate(value=float(value), low=0.0, high=math.inf, unit=UNIT)
    # Infinite costs cannot be interpolated.
    low, high = np.quantile(values, [tail, 1 - tail], method="inverted_cdf")
    return Estimate(value=float(value), low=float(min(low, value)), high=float(high), unit=UNIT)
