"""Functions of depth p in [0, 1] by their values at Chebyshev points of one or more panels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.polynomial import chebyshev as series

from depthmup.limits.step import Array


@dataclass(frozen=True)
class Rule:
    """Chebyshev-Lobatto points of [0, 1] and what is linear in a function's values there.

    ``points`` (n+1,) ascending; ``integral[i] @ f`` is the integral of f's interpolant from 0 to
    ``points[i]``; ``derivative[i] @ f`` its slope there; ``coefficients @ f`` its Chebyshev
    coefficients. All exact for polynomials of degree n.
    """

    points: Float[Array, " points"]
    integral: Float[Array, "points points"]
    derivative: Float[Array, "points points"]
    coefficients: Float[Array, "points points"]

    def evaluate(self, values: Array, at: Array) -> Array:
        """Interpolate ``values`` (n+1, ...) to the points ``at`` (k,); the result is (k, ...)."""
        basis = series.chebvander(2.0 * np.asarray(at) - 1.0, len(self.points) - 1)
        return np.tensordot(basis @ self.coefficients, values, axes=1)

    def neglected(self, values: Array) -> Array:
        """An estimate of the first coefficients not kept, of functions (points, rows, kinds, m).

        The largest over rows and m, per kind. Coefficients fall geometrically, so the first
        neglected pair (a pair, as odd or even ones may vanish) follows from the last two kept.
        """
        last = np.tensordot(self.coefficients[-4:], values, axes=1)
        last = np.abs(last).max(axis=(1, 3), initial=0.0)
        # Of even or odd functions every other coefficient is zero: pairs are compared.
        late, later = np.maximum(last[0], last[1]), np.maximum(last[2], last[3])
        # The pairs' ratio extrapolates once more; where they do not fall, the last one stands.
        return np.asarray(later * np.minimum(later / np.where(late > 0, late, 1.0), 1.0))


@lru_cache(maxsize=32)
def rule(degree: int) -> Rule:
    """The rule with ``degree + 1`` points.

    Args:
        degree: of the polynomials for which it is exact, at least 1.

    Returns:
        Points of [0, 1], and what integrates, derives and interpolates a function by its values.

    Example:
        >>> r = rule(8)
        >>> bool(np.allclose(r.integral @ r.points**3, r.points**4 / 4))
        True

    *Source:* Trefethen (2000), Spectral Methods in MATLAB, Chapters 6 and 12.
    """
    x = -np.cos(np.pi * np.arange(degree + 1) / degree)
    values = series.chebvander(x, degree)
    # On Lobatto points the inverse of the Vandermonde matrix is a scaled transpose (a type-I DCT).
    weight = np.ones(degree + 1)
    weight[[0, -1]] = 0.5
    coefficients = (2.0 / degree) * (weight[:, None] * weight[None, :]) * values.T
    unit = np.eye(degree + 1)
    integrals = np.stack([series.chebint(row, lbnd=-1.0) for row in unit], axis=1)
    slopes = np.stack([np.append(series.chebder(row), [0.0]) for row in unit], axis=1)
    # The factors 1/2 and 2 map [-1, 1] to [0, 1].
    integral = 0.5 * series.chebvander(x, degree + 1) @ integrals @ coefficients
    derivative = 2.0 * values @ slopes[: degree + 1] @ coefficients
    for array in (coefficients, integral, derivative):
        array.flags.writeable = False
    points = 0.5 * (x + 1.0)
    points.flags.writeable = False
    return Rule(points, integral, derivative, coefficients)
