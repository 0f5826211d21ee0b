"""Every scale of noise and misfit at a fit: how likely it is, and what it says of the minima.

Around a fit the problem is linear, and the shape is integrated out:

    log p(runs | k) = constant + b'k - k' Lambda k / 2.

*Source:* Laplace's method: MacKay (1992), Neural Computation 4:415-447.
"""

from dataclasses import dataclass

import numpy as np

from depthmup.posterior.intervals import Array
from depthmup.posterior.newton import Fit, Regression
from depthmup.posterior.priors import DIVERGED_WIDTH, MISFITS, NOISE, NOISE_SPREAD


@dataclass(frozen=True, kw_only=True, eq=False)
class Scales:
    """Noise sigma of nodes and the log of their prior, (fits, nodes); misfit rho, (nodes,)."""

    sigma: Array
    rho: Array
    prior: Array

    @staticmethod
    def grid(noises: Array) -> "Scales":
        """Every misfit with every noise of a fit, (fits, noises)."""
        sigma = np.repeat(noises, len(MISFITS), axis=-1)
        rho, weight = np.tile(np.array(MISFITS).T, noises.shape[-1])
        prior = np.log(weight) - 0.5 * ((np.log(sigma) - NOISE) / NOISE_SPREAD) ** 2
        return Scales(sigma=sigma, rho=rho, prior=prior)

    @staticmethod
    def known(sigma: Array, rho: Array) -> "Scales":
        """Of one fit whose scales are what they are."""
        return Scales(sigma=sigma[:, None], rho=rho, prior=np.zeros((1, 1)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Nodes:
    """Constants, b and Lambda, (fits, nodes, ...)."""

    constant: Array
    linear: Array
    precision: Array

    def evidence(self, covariance: Array) -> Array:
        """log p(runs), where minima have a covariance about the origin, (fits, nodes)."""
        root = np.linalg.cholesky(covariance)
        inner = np.swapaxes(root, -1, -2) @ self.precision @ root + np.eye(root.shape[-1])
        right = self.linear @ root
        solved = np.linalg.solve(inner, right[..., None])[..., 0]
        _, logs = np.linalg.slogdet(inner)
        return np.asarray(self.constant - 0.5 * logs + 0.5 * (right * solved).sum(-1))


def nodes_of(
    problem: Regression,
    fit: Fit,
    weight: Array,
    scales: Scales,
    replicates: tuple[Array, Array] | None = None,
) -> Nodes:
    """Evidence and information of every scale, linear about the fits.

    ``weight`` is that of points; ``replicates`` are squares of the noise and their freedom.
    """
    points = problem.points
    residual, slope, by_shape = problem.at(fit)
    ones = points.there[..., None].astype(float)
    jacobian = np.concatenate([slope[..., None], by_shape, residual[..., None], ones], -1)
    off = problem.off(fit)
    push, felt = problem.pushed(fit.k)
    diagonal = np.arange(len(problem.s))
    missing = (~points.there).sum(-1)
    first, again = problem.alike
    few, own = points.part(first), (problem.own[0][first], problem.own[1][first])
    parts, order = [], []
    for rho in np.unique(scales.rho):
        spectrum = few.spectrum(np.full(len(first), rho), *own, weight[first])
        values, turned, logs = (part[again][:, None] for part in spectrum)
        columns = turned @ jacobian[:, None]
        # Every noise at once, (fits, noises, ...): a call each would take several times as long.
        same = np.flatnonzero(scales.rho == rho)
        s = scales.sigma[:, same]
        variance, log_s = s[..., None, None] ** 2 + values, np.log(s)
        gram = np.swapaxes(columns, -1, -2) @ (columns / variance[..., None])
        level = np.maximum(gram[..., -1, -1], 1e-300)
        determinant = np.log(variance).sum(-1) - 2 * missing[:, None] * log_s[..., None] + logs
        some = np.asarray(points.there.any(-1))[:, None]
        determinant = np.where(some, determinant + np.log(level), 0.0)
        # Every size's level is integrated out, ...
        by_level = gram[..., :-1, -1]
        gram = (
            gram[..., :-1, :-1]
            - by_level[..., :, None] * by_level[..., None, :] / level[..., None, None]
        )
        # ... and the shape that all of them share.
        shape_part = gram[..., 1:-1, 1:-1].sum(2)
        index = np.arange(shape_part.shape[-1])
        shape_part[..., index, index] += problem.scale[:, None] ** -2.0
        cross = gram[..., 0, 1:-1]
        gradient = gram[..., 1:-1, -1].sum(2) - (off / problem.scale)[:, None]
        root = np.linalg.cholesky(shape_part)
        both = np.concatenate([cross, gradient[:, :, None]], 2)
        halves = np.linalg.solve(root, np.swapaxes(both, -1, -2))
        product = np.swapaxes(halves, -1, -2) @ halves
        precision = -product[..., :-1, :-1]
        precision[..., diagonal, diagonal] += gram[..., 0, 0] + felt[:, None]
        pull = gram[..., 0, -1] - push[:, None] - product[..., :-1, -1]
        of_fit = (off**2).sum(-1) + (push**2).sum(-1) * DIVERGED_WIDTH**2
        at_fit = scales.prior[:, same] - 0.5 * (
            gram[..., -1, -1].sum(-1)
            + determinant.sum(-1)
            + of_fit[:, None]
            - product[..., -1, -1]
            + 2 * np.log(np.einsum("bnpp->bnp", root)).sum(-1)
            + 2 * np.log(problem.scale).sum(-1)[:, None]
        )
        if replicates is not None:
            square, freedom = (part[:, None] for part in replicates)
            at_fit = at_fit - freedom * log_s - square / (2 * s**2)
        # Moved from the fit to the origin of k.
        linear = pull + np.einsum("bnij,bj->bni", precision, fit.k)
        quadratic = np.einsum("bi,bnij,bj->bn", fit.k, precision, fit.k)
        constant = at_fit - (pull * fit.k[:, None]).sum(-1) - 0.5 * quadratic
        parts.append((constant, linear, precision))
        order.append(same)
    back = np.argsort(np.concatenate(order))
    constant, linear, precision = (
        np.concatenate(part, 1)[:, back] for part in zip(*parts, strict=True)
    )
    return Nodes(constant=constant, linear=linear, precision=precision)
