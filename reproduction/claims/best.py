"""The best log losses of curves, and their ratios, paired by seeds."""

import math
from collections.abc import Sequence

import numpy as np

from depthmup.records import UNKNOWN, Estimate
from depthmup.statistics import (
    Array,
    Curves,
    around,
    jackknife_error,
    loss_estimate,
    minima,
    optima,
    student,
)

Numbers = Sequence[float] | Array


def best_log_loss(log2_lrs: Numbers, losses: Array) -> float:
    """The log loss at the optimum of one seed-averaged curve, from losses (learning rates, seeds).

    At an edge of the grid that of its last rate. NaN where nothing is finite.

    Example:
        >>> losses = np.exp(np.array([[4.0, 4.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]))
        >>> abs(round(best_log_loss([-2, -1, 0, 1], losses), 1))
        0.0
    """
    fitted = optima(Curves.of(log2_lrs, [losses]))
    if fitted.failed[0]:
        return math.nan
    return math.log(loss_estimate(minima(fitted, [{"depth": 1.0}]), 0).value)


def log_ratio_of_best(above: tuple[Numbers, Array], below: tuple[Numbers, Array]) -> Estimate:
    """log(best loss of one curve / best loss of another), paired by the seeds that they share.

    Each is (log2 learning rates, losses (learning rates, seeds)). Seeds share data, order and
    initial weights, so that leaving out one leaves it out of both: what moves both cancels.

    *Source:* Miller (1974), Biometrika 61:1-15.
    """
    seeds = list(range(above[1].shape[1]))

    def ratio(some: list[int]) -> float:
        one, other = (best_log_loss(rates, losses[:, some]) for rates, losses in (above, below))
        return one - other

    value = ratio(seeds)
    if not math.isfinite(value):
        return UNKNOWN
    half = math.inf
    if len(seeds) > 1:
        without = [ratio([s for s in seeds if s != out]) for out in seeds]
        error, freedom = jackknife_error(np.array(without))
        half = float(error) * float(student(freedom)) if np.isfinite(error) else math.inf
    return around(value, half, "nats")
