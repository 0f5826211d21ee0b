"""Intervals that may be looked at after every few seeds, until one of them decides.

Seeds are added until a verdict is reached, after 2, 3, 4, 6 and 8 of them. Whoever looks five
times at a 95% interval and stops when it suits is wrong in 7 to 11% of cases. So the error of 5% is
spent evenly over the looks: every look takes intervals of 99%, all of which hold the truth in 95%.
The misfit of optima, and how sizes scatter about their law, are no matter of luck with seeds. They
are the same at every look, and stay at 95%.

Six seeds or more say themselves how their slopes scatter (the jackknife's error, Student's t).
Fewer hardly do: the t of two is 64, of four 5.8. For S of them at n sizes

    half^2 = (t_{n (S-1)} e)^2 + (2.58 * 0.03)^2 / S,
    e^2 = max(sum_i w_i^2 e_i^2, mean_i e_i^2 sum_i w_i^2),

with the slope's weights w and the jackknife errors e_i of the single optima, which are pooled. The
second term allows for slopes that seeds have of their own. The whole is never below 2.58 times the
jackknife's error of the slope. Which of the two is taken depends on the number of seeds alone, so
nothing is chosen by its result.

*Source:* spending of error over looks: Lan and DeMets (1983), Biometrika 70:659-663.
"""

import math

import numpy as np

from depthmup.statistics.drift import Drifts
from depthmup.statistics.intervals import CONFIDENCE, Array, Numbers, student
from depthmup.statistics.optimum import Optima
from depthmup.statistics.regression import Regression, line_of

LOOKS = (2, 3, 4, 6, 8)
"""Numbers of seeds after which intervals are looked at."""

SPENT = 1 - (1 - CONFIDENCE) / len(LOOKS)
"""Confidence of what seeds scatter, at each look."""

ENOUGH = 6
"""Seeds that say themselves how their slopes scatter."""

OWN_SLOPE = 0.03
"""Octaves per doubling by which the slopes of seeds may scatter beyond what their optima do.

In twelve real sweeps with all their seeds it was 0.013 at most where five sizes were measured, and
most often nothing (docs/adaptive.md). Simulated verdicts hold up to 0.08.
"""


def looked_at(positions: Numbers, fitted: Optima, *, decides: bool = True) -> Drifts:
    """The slope of optima, with an interval that may be looked at after any of ``LOOKS``.

    *Source:* spending of error over looks: Lan and DeMets (1983), Biometrika 70:659-663.
    """
    return looked_along(line_of(positions, fitted), 1, decides=decides)


def looked_along(line: Regression, term: int, *, decides: bool = True) -> Drifts:
    """As ``looked_at``, of one term of a line, such as a slope shared by several slices."""
    fitted, row = line.fitted, line.rows[term]
    value = line.value(row)
    seeds = fitted.curves.fewest_seeds
    if seeds < 2:
        return Drifts(value=value, half=line.half(row, SPENT if decides else CONFIDENCE))
    half = np.hypot(seeds_part(fitted, row, seeds, decides=decides), misfit_part(fitted, row))
    half = np.hypot(half, np.hypot(line.scatter_part(row), line.shape_part(row)))
    return Drifts(value=value, half=np.where(shallow(fitted, seeds), math.inf, half))


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


def misfit_part(fitted: Optima, row: Array) -> Array:
    """What the fits of the optima leave of the slope's half-width, (...,)."""
    spread = np.sqrt((row**2 * fitted.misfit**2).sum(-1))
    return np.asarray(float(student(math.inf)) * spread)


def seeds_part(
    fitted: Optima, row: Array, seeds: int, *, planned: int | None = None, decides: bool = True
) -> Array:
    """What seeds leave of a slope's half-width, (...,)."""
    planned = planned or seeds
    shrink = math.sqrt(seeds / planned)
    error, freedom = fitted.seed_error(np.einsum("...ns,n->...s", fitted.centre_without, row))
    single, _ = fitted.seed_error(fitted.centre_without)
    weighted, alike = (row**2 * single**2).sum(-1), (single**2).mean(-1) * (row**2).sum()
    pooled = np.sqrt(np.maximum(weighted, alike))
    if planned != seeds:
        # What few seeds say of their slopes is no forecast: the pooled error stands beside it.
        error, freedom = np.maximum(error, pooled), np.full_like(error, planned - 1)
    level = SPENT if decides else CONFIDENCE
    if planned >= ENOUGH:
        return np.asarray(student(freedom, level) * error * shrink)
    normal = float(student(math.inf, level))
    t = float(student(len(row) * (planned - 1), level))
    allowed = np.hypot(t * pooled * shrink, normal * OWN_SLOPE / math.sqrt(planned))
    return np.asarray(np.maximum(allowed, normal * error * shrink))
