"""How high the valleys lie at their minima, and how well the shape of the heaviest fit is known."""

from dataclasses import dataclass

import numpy as np

from depthmup.posterior.intervals import Array
from depthmup.posterior.newton import Fit, Regression
from depthmup.posterior.seeds import SeedAverages

TINY = 1e-9
"""Precision of the level of a size without runs, which nothing bounds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Levels:
    """Log losses at the minima, (fits, sizes), and covariances: of these, and of the shape.

    ``fitted`` is the part of ``covariance`` that the fit leaves; the rest is seeds' own.
    """

    level: Array
    covariance: Array
    fitted: Array
    shape_covariance: Array


def levels_of(
    problem: Regression,
    fit: Fit,
    sigma: Array,
    rho: Array,
    weight: Array,
    of_seeds: SeedAverages,
) -> Levels:
    """Of some fits: levels, minima and shape have errors together."""
    points, sizes = problem.points, problem.s.shape[0]
    inverse = points.inverse(sigma, rho, *problem.own, weight)
    residual, slope, by_shape = problem.at(fit)
    ones = points.there[..., None].astype(float)
    columns = np.concatenate([ones, slope[..., None], by_shape], -1)
    gram = np.swapaxes(columns, -1, -2) @ (inverse @ columns)
    count = 2 * sizes + by_shape.shape[-1]
    normal = np.zeros((len(sigma), count, count))
    own = np.arange(sizes)
    normal[:, sizes : 2 * sizes, sizes : 2 * sizes] = problem.law
    for one, other in ((0, 0), (0, 1), (1, 0), (1, 1)):
        normal[:, one * sizes + own, other * sizes + own] += gram[..., one, other]
    shared = slice(2 * sizes, None)
    for number in (0, 1):
        rows = slice(number * sizes, (number + 1) * sizes)
        normal[:, rows, shared] = gram[..., number, 2:]
        normal[:, shared, rows] = np.swapaxes(gram[..., number, 2:], -1, -2)
    normal[:, shared, shared] = gram[..., 2:, 2:].sum(1)
    index = np.arange(2 * sizes, count)
    normal[:, index, index] += problem.scale**-2.0
    normal[:, own, own] += TINY
    errors = np.linalg.inv(normal)
    total = inverse.sum(-1)
    level = (total * residual).sum(-1) / np.maximum(total.sum(-1), 1e-300)
    return Levels(
        level=level,
        covariance=errors[:, :sizes, :sizes] + _of_seeds(of_seeds),
        fitted=errors[:, :sizes, :sizes],
        shape_covariance=errors[:, shared, shared],
    )


def _of_seeds(of_seeds: SeedAverages) -> Array:
    """Covariance of levels by what seeds have of their own, (batch, sizes, sizes)."""
    level = of_seeds.level
    there = ~np.isnan(level)
    count = there.sum(-1)
    mean = np.where(there, level, 0.0).sum(-1, keepdims=True) / np.maximum(count, 1)[..., None]
    centred = np.where(there, level - mean, 0.0)
    freedom = np.maximum(count - 1, 0).sum(-1)
    variance = (centred**2).sum((-2, -1)) / np.maximum(freedom, 1)
    own = np.eye(level.shape[1])
    return np.asarray(variance[:, None, None] / np.maximum(count, 1)[..., None] * own, float)
