"""Functions of depth p in [0, 1] at Chebyshev points of one or more panels, and their equations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.polynomial import chebyshev as series

from depthmup.limits.step import Array

# Picard's iteration converges like (panel length)^k / k!; what has not settled by then never will,
# and the caller is told.
_MOST_ITERATIONS = 200


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

    Raises:
        ValueError: no degree.

    Example:
        >>> r = rule(8)
        >>> bool(np.allclose(r.integral @ r.points**3, r.points**4 / 4))
        True

    *Source:* Trefethen (2000), Spectral Methods in MATLAB, Chapters 6 and 12.
    """
    if degree < 1:
        raise ValueError(f"Expected a degree of at least 1; got {degree}.")
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


@dataclass(frozen=True)
class Mesh:
    """Panels of [0, 1], each with ``degree + 1`` points; end points of panels appear twice."""

    edges: tuple[float, ...]
    degree: int

    @property
    def panels(self) -> list[tuple[slice, float]]:
        """(which points, width) of each panel, from 0 to 1."""
        n = self.degree + 1
        widths = np.diff(self.edges)
        return [(slice(i * n, (i + 1) * n), float(h)) for i, h in enumerate(widths)]

    @property
    def rule(self) -> Rule:
        return rule(self.degree)

    @property
    def points(self) -> Array:
        starts = self.edges[:-1]
        parts = [a + h * self.rule.points for a, (_, h) in zip(starts, self.panels, strict=True)]
        return np.concatenate(parts)


def graded(levels: int, degree: int) -> Mesh:
    """Panels that shrink towards 0 by factors of 4: for functions singular there."""
    # Every panel but the first has 0 at a third of its width: there the coefficients of a function
    # that is singular at 0 fall by factors of 3 (Bernstein's ellipse through -5/3).
    return Mesh(edges=(0.0, *(4.0**-k for k in range(levels, -1, -1))), degree=degree)


def integrate(
    mesh: Mesh, derivative: Callable[[slice, Array], Array], start: Array, *, up: bool
) -> tuple[Array, bool]:
    """``s' = derivative`` from p = 0 up with s(0) = start, or ``-s' = derivative`` from p = 1 down.

    Picard iteration, panel by panel, until rounding.
    """
    states = np.empty((len(mesh.points), *start.shape))
    rising = mesh.rule.integral
    # From the right end of a panel: the integral over [p, 1] is that over [0, 1] less [0, p].
    operator = rising if up else rising[-1] - rising
    settled = True
    for where, width in mesh.panels if up else mesh.panels[::-1]:
        s = np.repeat(start[None], mesh.degree + 1, axis=0)
        best = np.inf
        for _ in range(_MOST_ITERATIONS):
            rate = derivative(where, s)
            new = start + width * np.tensordot(operator, rate, 1)
            change = float(np.abs(new - s).max(initial=0.0))
            size = float(np.abs(new).max(initial=1.0))
            s = new
            if not np.isfinite(change):
                break
            # Once at rounding level, changes stop falling.
            if change <= 1e-15 * size or (change <= 1e-12 * size and change >= best):
                break
            best = min(best, change)
        else:
            settled = settled and change <= 1e-9 * size
        states[where] = s
        start = s[-1] if up else s[0]
    return states, settled
