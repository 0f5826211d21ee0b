"""Intervals that may be looked at after every few seeds, until one of them decides.

Seeds are added until a verdict is reached, after 2, 3, 4, 6 and 8 of them. Whoever looks five
times at a 95% interval and stops when it suits is wrong in 7 to 11% of cases. So the error of 5% is
spent evenly over the looks: every look takes intervals of 99%, all of which hold the truth in 95%.
The misfit of optima, and how sizes scatter about their law, are no matter of luck with seeds. They
are the same at every look, and stay at 95%.

What few seeds show of their scatter is moderated as in every interval (``statistics.regression``).

*Source:* spending of error over looks: Lan and DeMets (1983), Biometrika 70:659-663.
"""

import math

import numpy as np

from depthmup.statistics.intervals import CONFIDENCE, Array, Numbers, student
from depthmup.statistics.optimum import Optima
from depthmup.statistics.regression import Regression, line_of

LOOKS = (2, 3, 4, 6, 8)
"""Numbers of seeds after which intervals are looked at."""

SPENT = 1 - (1 - CONFIDENCE) / len(LOOKS)
"""Confidence of what seeds scatter, at each look."""


def looked_at(positions: Numbers, fitted: Optima, *, decides: bool = True) -> tuple[Array, Array]:
    """Slopes of optima, and half-widths that may be looked at after any of ``LOOKS``.

    *Source:* spending of error over looks: Lan and DeMets (1983), Biometrika 70:659-663.
    """
    return looked_along(line_of(positions, fitted), 1, decides=decides)


def looked_along(line: Regression, term: int, *, decides: bool = True) -> tuple[Array, Array]:
    """As ``looked_at``, of one term of a line, such as a slope shared by several slices."""
    fitted, row = line.fitted, line.rows[term]
    value = line.value(row)
    seeds = fitted.curves.fewest_seeds
    if seeds < 2:
        return value, line.half(row, SPENT if decides else CONFIDENCE)
    half = line.half(row, of_seeds=SPENT if decides else CONFIDENCE)
    return value, np.where(shallow(fitted, seeds), math.inf, half)


def shallow(fitted: Optima, seeds: int, *, planned: int | None = None) -> Array:
    """Whether seeds scatter more than the rate matters around the optimum of some size, (...,).

    The lowest of a few points on a flat curve is wherever noise puts it, and their scatter about it
    says nothing of where it might have been.
    """
    planned = planned or seeds
    error, _ = fitted.seed_error(fitted.curvature_without)
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.where(np.isfinite(fitted.curvature), error / fitted.curvature, 0.0)
    pooled = np.sqrt((relative**2).mean(-1) * seeds / planned)
    return np.asarray(float(student(relative.shape[-1] * (planned - 1), SPENT)) * pooled >= 1)
