"""One law from curves of one or two points each: all sizes share the shape of their valley.

    log loss = level(size) + c (x - k(size))^2,    k(size) = a + sum_a b_a s_a,

x the log2 rate, s_a log2 of a size over the base's. Multiplied out, what depends on the size alone
goes into its level, and the rest is linear:

    log loss = level(size) + c x^2 + d_0 x + sum_a d_a s_a x,    a = -d_0 / 2c,   b_a = -d_a / 2c.

Least squares with tricube weights around the law's own optima, until they stay. No size needs a
curve of its own: two rates say on which side the optimum lies. Errors are those of the residuals,
by the delta method, with Student's t; what a parabola misses of the valley is among the residuals.
"""

import math
from dataclasses import dataclass

import numpy as np

from depthmup.records import UNKNOWN, Estimate
from depthmup.statistics.intervals import Array, Index, around, student

REACH = 3.0
"""Octaves that the weights reach: sparse rates lie farther from their optimum than a grid's."""

# Where the weights of runs at the taper's end keep moving, the last fit stands.
PASSES = 20
# Below it Student's factor is above 2.8 and the residual variance is hardly known.
LEAST_FREEDOM = 4.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Pooled:
    """The law's coefficients.

    Attributes:
        constant: the best log2 rate at the base.
        exponents: b_a, in the order of the axes; unknown where the runs do not determine one.
        curvature: c, log loss per octave squared.
        scatter: standard deviation of the residuals.
        freedom: weighted runs beyond the coefficients.
    """

    constant: Estimate
    exponents: tuple[Estimate, ...]
    curvature: float
    scatter: float
    freedom: float


def pooled_law(positions: Array, size: Index, log2_rate: Array, log_loss: Array) -> Pooled | None:
    """The law of optima from runs of sizes whose curves are too sparse for optima of their own."""
    if not (0 < len(log2_rate) == len(log_loss) == len(size) and size.max() < len(positions)):
        raise ValueError(
            f"Expected runs, each with a rate, a loss and one of {len(positions)} sizes; got "
            f"{len(log2_rate)} rates, {len(log_loss)} losses and {len(size)} sizes of runs."
        )
    # Counted from their mean, so that x and x^2 are not nearly parallel.
    origin = float(np.mean(log2_rate))
    x = log2_rate - origin
    design = np.column_stack([x**2, x, x[:, None] * positions[size]])
    weight = np.ones(len(x))
    fit = None
    for _ in range(PASSES):
        fit = _fit(design, size, log_loss, weight)
        if fit is None or not fit[0][0] > 0:
            return None
        slopes = fit[0]
        centre = -(slopes[1] + positions[size] @ slopes[2:]) / (2 * slopes[0])
        moved = (1 - np.minimum(np.abs(x - centre) / REACH, 1.0) ** 3) ** 3
        if np.abs(moved - weight).max() < 1e-6:
            break
        weight = moved
    assert fit is not None
    slopes, covariance, freedom, scatter, determined = fit
    if freedom < LEAST_FREEDOM:
        return None
    ratios = [_ratio(slopes, covariance, i, freedom) for i in range(1, len(slopes))]
    exponents = tuple(r if determined[2 + i] else UNKNOWN for i, r in enumerate(ratios[1:]))
    base = ratios[0]
    return Pooled(
        constant=Estimate(
            value=base.value + origin, low=base.low + origin, high=base.high + origin
        ),
        exponents=exponents,
        curvature=float(slopes[0]),
        scatter=scatter,
        freedom=freedom,
    )


def _fit(
    design: Array, size: Index, values: Array, weight: Array
) -> tuple[Array, Array, float, float, Array] | None:
    """Slopes within sizes, their covariance, freedom and scatter; which slopes are determined."""
    count = int(size.max()) + 1
    total = np.bincount(size, weights=weight, minlength=count)

    def within(column: Array) -> Array:
        mean = np.bincount(size, weights=weight * column, minlength=count)
        return np.asarray(column - (mean / np.where(total > 0, total, 1.0))[size])

    centred = np.column_stack([within(column) for column in design.T])
    y = within(values)
    gram = centred.T @ (weight[:, None] * centred)
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    inverse = np.linalg.pinv(gram / np.outer(scale, scale), rcond=1e-9) / np.outer(scale, scale)
    slopes = inverse @ (centred.T @ (weight * y))
    projector = inverse @ gram
    determined = np.abs(projector - np.eye(len(slopes))).max(1) < 1e-5
    if not determined[:2].all():
        return None
    residual = y - centred @ slopes
    # A run alone in its size fits its level: it has no weight in what is left.
    levels = float((np.bincount(size, weights=weight**2, minlength=count)[total > 0]
                    / total[total > 0]).sum())  # fmt: skip
    freedom = float(weight.sum()) - levels - int(np.linalg.matrix_rank(gram))
    variance = float((weight * residual**2).sum()) / max(freedom, 1e-9)
    middle = centred.T @ ((weight**2)[:, None] * centred)
    return slopes, variance * inverse @ middle @ inverse, freedom, math.sqrt(variance), determined


def _ratio(slopes: Array, covariance: Array, term: int, freedom: float) -> Estimate:
    """-d / 2c with its interval, to first order."""
    c, d = slopes[0], slopes[term]
    gradient = np.zeros(len(slopes))
    gradient[0], gradient[term] = d / (2 * c**2), -1 / (2 * c)
    error = math.sqrt(max(float(gradient @ covariance @ gradient), 0.0))
    return around(float(-d / (2 * c)), float(student(freedom)) * error)
