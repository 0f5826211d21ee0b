"""The best log losses of curves, and their ratios, paired by seeds."""

import math
from collections.abc import Sequence

import numpy as np

from depthmup.records import UNKNOWN, Estimate
from depthmup.statistics import Array, Curves, around, jackknife_error, minima, optima, student

Numbers = Sequence[float] | Array


def best_log_loss(log2_lrs: Numbers, losses: Array) -> float:
    """The log loss at the optimum of one seed-averaged curve, from losses (learning rates, seeds).

    NaN where nothing is finite.

    Example:
        >>> losses = np.exp(np.array([[4.0, 4.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]))
        >>> abs(round(best_log_loss([-2, -1, 0, 1], losses), 1))
        0.0
    """
    level = float(minima(optima(Curves.of(log2_lrs, [losses]))).log_loss[0])
    return level if math.isfinite(level) else math.nan


def log_ratio_of_best(above: tuple[Numbers, Array], below: tuple[Numbers, Array]) -> Estimate:
    """log(best loss of one curve / best loss of another), paired by the seeds that they share.

    Each is (log2 learning rates, losses (learning rates, seeds)). Seeds share data, order and
    initial weights, so that leaving out one leaves it out of both: what moves both cancels.

    *Source:* Miller (1974), Biometrika 61:1-15.
    """
    fits = [minima(optima(Curves.of(rates, [losses]))) for rates, losses in (above, below)]
    levels = [float(fit.log_loss[0]) for fit in fits]
    if not all(map(math.isfinite, levels)):
        return UNKNOWN
    without = fits[0].log_loss_without[0] - fits[1].log_loss_without[0]
    error, freedom = jackknife_error(without)
    half = float(error) * float(student(freedom)) if np.isfinite(error) else math.inf
    return around(levels[0] - levels[1], half, "nats")
