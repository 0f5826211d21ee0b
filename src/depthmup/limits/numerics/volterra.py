"""Linear equations of depth, ``s' = A(p) s``, by collocation: one small Krylov solve per sweep."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from depthmup.limits.step import Array

# The Volterra operator is compact with spectrum {0}: Krylov residuals fall faster than any power.
_MOST_ITERATIONS = 60
_EPS = float(np.finfo(np.float64).eps)


def solve_volterra(integral: Array, apply: Callable[[Array], Array], start: Array) -> Array:
    """The values of ``s(p) = start + int_0^p A s`` at collocation points.

    GMRES for all rows at once, to rounding error. Picard iteration would need about twice the
    products, and loses digits like exp(int abs(A)) by cancellation when updates are large.

    Args:
        integral: (points, points), integrates from the first point to each.
        apply: A at every point, linear on (points, rows, m).
        start: (rows, m), every row a separate equation.

    Returns:
        s at the points, (points, rows, m).

    Example:
        >>> from depthmup import limits
        >>> depth = limits.rule(16)
        >>> growth = limits.solve_volterra(depth.integral, lambda s: s, np.ones((1, 1)))
        >>> bool(np.allclose(growth[:, 0, 0], np.exp(depth.points)))  # s' = s
        True

    *Source:* GMRES of Saad and Schultz (1986), SIAM J. Sci. Stat. Comput. 7:856-869.
    """
    points, (rows, m) = len(integral), start.shape
    first = np.repeat(start[None], points, axis=0)
    if first.size == 0:
        return first

    def moved(s: Array) -> Array:
        """int_0^p A s."""
        return (integral @ apply(s).reshape(points, -1)).reshape(points, rows, m)

    def by_row(s: Array) -> Array:
        return s.transpose(1, 0, 2).reshape(rows, -1)

    def by_point(s: Array) -> Array:
        return s.reshape(rows, points, m).transpose(1, 0, 2)

    solution = first
    residual = by_row(moved(first))
    for _ in range(2):  # the second pass, rarely needed, removes what rounding left of the first
        size = np.linalg.norm(residual, axis=1)
        basis = np.empty((rows, _MOST_ITERATIONS + 1, points * m))
        basis[:, 0] = residual / np.where(size > 0, size, 1.0)[:, None]
        hessenberg = np.zeros((rows, _MOST_ITERATIONS + 1, _MOST_ITERATIONS))
        goal = _EPS * np.linalg.norm(by_row(first), axis=1)
        for k in range(_MOST_ITERATIONS):
            # The next Krylov vector, of the operator I - int A.
            new = basis[:, k] - by_row(moved(by_point(basis[:, k])))
            known = basis[:, : k + 1]
            for _ in range(2):  # Gram-Schmidt twice is enough
                overlap = known @ new[:, :, None]
                hessenberg[:, : k + 1, k] += overlap[..., 0]
                new = new - (overlap.transpose(0, 2, 1) @ known)[:, 0]
            length = np.linalg.norm(new, axis=1)
            hessenberg[:, k + 1, k] = length
            basis[:, k + 1] = new / np.where(length > 0, length, 1.0)[:, None]
            # No residual reaches rounding within five vectors: earlier checks would be in vain.
            if k >= 5 or k + 1 == m * points:
                weights, left = _least_squares(hessenberg[:, : k + 2, : k + 1], size)
                if (left <= goal).all() or not np.isfinite(left).all():
                    break
        solution = solution + by_point((weights[:, None] @ basis[:, : k + 1])[:, 0])
        residual = by_row(first - solution + moved(solution))
        # A product with the integral leaves some tens of roundings, which no pass removes.
        reached = np.linalg.norm(residual, axis=1)
        if not (reached > 64 * _EPS * np.linalg.norm(by_row(solution), axis=1)).any():
            break
    return solution


def _least_squares(hessenberg: Array, size: Array) -> tuple[Array, Array]:
    """Minimize |size e_1 - H y| for every row: y (rows, k) and what is left (rows,)."""
    q, r = np.linalg.qr(hessenberg, mode="complete")
    target = size[:, None] * q[:, 0, :]
    r = r[:, :-1]
    # A breakdown (an exact solution in a smaller space) leaves zero pivots: their weight is zero.
    dead = np.abs(np.einsum("rkk->rk", r)) == 0
    r = r + dead[:, :, None] * np.eye(r.shape[1])
    y = np.linalg.solve(r, np.where(dead, 0.0, target[:, :-1])[..., None])[..., 0]
    return y, np.abs(target[:, -1])
