"""Minima and shape that fit all runs best: damped Gauss-Newton, every size's level eliminated.

*Source:* Levenberg (1944), Quarterly of Applied Mathematics 2:164-168.
"""

from dataclasses import dataclass

import numpy as np

from depthmup.posterior.errors import CurvePoints
from depthmup.posterior.intervals import Array, Index
from depthmup.posterior.priors import DIVERGED, DIVERGED_WIDTH
from depthmup.posterior.valley import rise

LARGEST_STEP, SETTLED = 1.0, 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """Minima from the origin, (fits, sizes), and the shape's vector, (fits, parameters)."""

    k: Array
    shape: Array

    def part(self, index: Index) -> "Fit":
        return Fit(k=self.k[index], shape=self.shape[index])


@dataclass(frozen=True, kw_only=True, eq=False)
class Regression:
    """One batch of fits.

    Attributes:
        points: curves, (fits, sizes, rates).
        s: doublings of the sizes, (sizes, axes).
        mean, scale: the shape's prior, (fits, parameters).
        own: deviations of a size's own turn and steepness, (fits,) each.
        law: inverse covariance of the minima, (sizes, sizes).
        wall: the first rate that diverges, (fits, sizes).
        alike: the first fit of every group with the same errors, and every fit's group.
    """

    points: CurvePoints
    s: Array
    mean: Array
    scale: Array
    own: tuple[Array, Array]
    law: Array
    wall: Array
    alike: tuple[Index, Index]

    def at(self, fit: Fit) -> tuple[Array, Array, Array]:
        """Residuals, and their derivatives by minima and by shape, less their sign."""
        there = self.points.there
        high = rise(self.points.x - fit.k[..., None], fit.shape, self.s)
        return (
            np.where(there, self.points.y - high.height, 0.0),
            np.where(there, -high.slope, 0.0),
            np.where(there[..., None], high.by_shape, 0.0),
        )

    def off(self, fit: Fit) -> Array:
        """The shape from its mean, in deviations."""
        return np.asarray((fit.shape - self.mean) / self.scale)

    def pushed(self, k: Array) -> tuple[Array, Array]:
        """What divergences say of minima: a force downwards, and its precision, (fits, sizes)."""
        over = k - self.wall + DIVERGED
        felt = np.where(over > 0, DIVERGED_WIDTH**-2.0, 0.0)
        return np.where(over > 0, over, 0.0) / DIVERGED_WIDTH**2, felt


def newton(problem: Regression, fit: Fit, inverse: Array, steps: int) -> Fit:
    """Levenberg's damped steps, each fit with its own damping; ``inverse`` is the errors'."""
    sizes = problem.s.shape[0]

    def look(at: Fit) -> tuple[Array, list[Array]]:
        """The objective, and what the next step needs."""
        residual, slope, by_shape = problem.at(at)
        value = np.einsum("bir,birq,biq->b", residual, inverse, residual)
        value = value + (problem.off(at) ** 2).sum(-1)
        value = value + np.einsum("bi,ij,bj->b", at.k, problem.law, at.k)
        push, _ = problem.pushed(at.k)
        return value + (push**2).sum(-1) * DIVERGED_WIDTH**2, [residual, slope, by_shape]

    value, seen = look(fit)
    damping = np.full(len(value), 1e-2)
    every = np.arange(sizes + fit.shape.shape[-1])
    of_sizes, of_shape = every[:sizes], every[sizes:]
    for _ in range(steps):
        residual, slope, by_shape = seen
        weighted = inverse @ by_shape
        along = (inverse @ slope[..., None])[..., 0]
        push, felt = problem.pushed(fit.k)
        normal = np.zeros((len(value), len(every), len(every)))
        normal[:, :sizes, :sizes] = problem.law
        normal[:, of_sizes, of_sizes] += (slope * along).sum(-1) + felt
        cross = np.einsum("bir,birp->bip", slope, weighted)
        normal[:, :sizes, sizes:] = cross
        normal[:, sizes:, :sizes] = np.swapaxes(cross, 1, 2)
        normal[:, sizes:, sizes:] = (np.swapaxes(by_shape, -1, -2) @ weighted).sum(1)
        normal[:, of_shape, of_shape] += problem.scale**-2.0
        by_k = (along * residual).sum(-1) - fit.k @ problem.law - push
        of_prior = problem.off(fit) / problem.scale
        by_parameter = np.einsum("birp,bir->bp", weighted, residual) - of_prior
        gradient = np.concatenate([by_k, by_parameter], -1)
        normal[:, every, every] *= 1 + damping[:, None]
        step = np.linalg.solve(normal, gradient[..., None])[..., 0]
        step = np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        tried = Fit(k=fit.k + step[:, :sizes], shape=fit.shape + step[:, sizes:])
        new, new_seen = look(tried)
        better = (new <= value) & np.isfinite(new)
        fit = Fit(
            k=np.where(better[:, None], tried.k, fit.k),
            shape=np.where(better[:, None], tried.shape, fit.shape),
        )
        value = np.where(better, new, value)
        for old, now in zip(seen, new_seen, strict=True):
            old[better] = now[better]
        damping = np.where(better, np.maximum(damping / 5, 1e-6), np.minimum(damping * 8, 1e6))
        if better.all() and np.abs(step).max() < SETTLED:
            break
    return fit
