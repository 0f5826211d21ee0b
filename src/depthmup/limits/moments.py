"""Moments of an activation of many correlated Gaussian entries at once, as matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from depthmup.limits.gaussian import Activation
from depthmup.limits.losses import Array

TOLERANCE = 1e-9
"""Of interpolated expectations, relative to the largest."""

EQUAL = 1e-6
"""Variances that differ by no more, relative, count as equal; moments then err by as little."""

# Doubled, as a quadrature at every point costs far more than the interpolation.
DEGREES = (16, 32, 64, 128)


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Of z ~ N(0, S): ``covariance`` Cov(phi, phi') and ``slope`` E phi' phi', both (N, N).

    ``mean`` (N,) is E phi.
    """

    covariance: Array
    slope: Array
    mean: Array


def moments(phi: Activation, covariance: Array) -> Moments:
    """The moments of all pairs of entries; ``covariance`` is S (N, N).

    Where phi is known by quadrature and all variances are equal, to the rounding of data in single
    precision, the moments are functions of one correlation, which are interpolated: a hundred
    inputs then cost a few dozen quadratures.
    """
    variance, short = np.diag(covariance), None
    if phi.sampled and np.ptp(variance) <= EQUAL * variance.max():
        size = float(variance.mean())
        short = _interpolated(phi, covariance / size, size)
    if not phi.sampled:
        pair = phi.pair(variance[:, None], covariance, variance[None, :])
        out = np.stack([pair.k0, pair.v1])
    elif short is not None:
        out = short
    else:
        # Every pair once: a quadrature each is all the cost, and both moments are symmetric.
        upper = np.triu_indices(len(covariance), 1)
        pair = phi.pair(variance[upper[0]], covariance[upper], variance[upper[1]])
        out = np.zeros((2, *covariance.shape))
        out[:, upper[0], upper[1]] = pair.k0, pair.v1
        out += out.transpose(0, 2, 1)
    # An entry with itself: quadrature of a pair would take the root of a rounding error.
    single, own = phi.single(variance), np.arange(len(covariance))
    out[:, own, own] = single.variance, single.v1
    return Moments(covariance=out[0], slope=out[1], mean=single.mean)


def _interpolated(phi: Activation, correlation: Array, variance: float) -> Array | None:
    """Cov(phi, phi') and E phi' phi' at equal variances, by Chebyshev polynomials in rho.

    As power series in rho their coefficients are squares of Hermite coefficients, so both are
    smooth up to rho = 1; a polynomial is good when its last coefficients are below ``TOLERANCE``.
    None where no degree is enough: a steep phi at a large variance is nearly a step.
    """

    def at(rho: Array) -> Array:
        a = np.full_like(rho, variance)
        pair = phi.pair(a, variance * rho, a)
        return np.stack([pair.k0, pair.v1], axis=-1)

    # Rounding can put a correlation above 1, where Chebyshev polynomials grow fast.
    rho = np.clip(correlation, -1.0, 1.0)
    for degree in DEGREES:
        coefficients = _coefficients(at, degree)
        # The last two, as every other coefficient of an odd or even function is zero.
        if np.abs(coefficients[-2:]).max() <= TOLERANCE * np.abs(coefficients).max():
            return np.asarray(np.polynomial.chebyshev.chebval(rho, coefficients), dtype=np.float64)
    return None


def _coefficients(at: Callable[[Array], Array], degree: int) -> Array:
    """Chebyshev coefficients (degree + 1, 2) from values at the points of the first kind."""
    points = np.polynomial.chebyshev.chebpts1(degree + 1)
    vander = np.polynomial.chebyshev.chebvander(points, degree)
    weights: Array = np.full(degree + 1, 2.0 / (degree + 1))
    # On these points T_0^2 sums to degree + 1, the square of every other T_k to half of that.
    weights[0] /= 2
    return weights[:, None] * np.asarray(vander.T @ at(points), dtype=np.float64)
