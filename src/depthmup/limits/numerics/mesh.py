"""Depth as panels of Chebyshev points, and nonlinear initial value problems on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from depthmup.limits.numerics.chebyshev import Rule, rule
from depthmup.limits.step import Array

# Picard's iteration converges like (panel length)^k / k!; what has not settled by then never will,
# and the caller is told.
_MOST_ITERATIONS = 200


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
