"""Cholesky factors that grow by rows, of covariances that may be singular.

Gaussian fields of successive training vectors are ``u = chol(C) z`` of fixed standard Gaussians z:
rows are appended, so that what was drawn for earlier vectors stays as it is. A vector that is a
combination of earlier ones (a repeated sample) gets pivot 0: it needs no Gaussian of its own.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular

from depthmup.limits.step import Array

_NO_PIVOT = 1e-14
"""A vector of which earlier ones leave a smaller part (of its square) adds no Gaussian.

Rounding leaves about 1e-15; leaving out a part of 1e-12 costs up to 1e-9 in linear networks."""


def appended(lower: Array, cov: Array) -> Array:
    """The factor (size, size) of ``cov`` whose leading block ``lower`` (n, n) is known.

    >>> factor = appended(np.array([[2.0]]), np.array([[4.0, 4.0], [4.0, 4.0]]))
    >>> factor.tolist()
    [[2.0, 0.0], [2.0, 0.0]]
    """
    n, size = len(lower), len(cov)
    factor = np.zeros((size, size))
    factor[:n, :n] = lower
    for row in range(n, size):
        factor[row, :row] = _solve(factor[:row, :row], cov[row, :row])
        left = cov[row, row] - factor[row, :row] @ factor[row, :row]
        factor[row, row] = np.sqrt(left) if left > _NO_PIVOT * cov[row, row] else 0.0
    return factor


def stein(
    moments: Float[Array, "rows old"], lower: Float[Array, "old old"]
) -> Float[Array, "rows old"]:
    """``E dy/du`` (rows, n) from the moments ``E y z`` (rows, n) of a function of u = lower z.

    Stein's lemma, ``E[y z] = E[dy/du] lower``: no derivative of y is taken. The response to a
    vector of pivot zero is that to the vectors it is made of.
    """
    # moments = response lower, hence lower^T response^T = moments^T.
    return _solve(lower, moments.T, transposed=True).T


def stein_within(
    moments: Float[Array, "rows size"], lower: Float[Array, "size size"]
) -> Float[Array, "rows size"]:
    """The same of a minibatch, the last rows of ``lower``: to old vectors, and each to itself.

    Samples of one minibatch answer to themselves, not to each other. They may share a Gaussian (a
    repeated sample has pivot zero): what is new to the old vectors in u_r is w_r, and of y_r it is
    ``E dy_r/du_r = E[y_r w_r] / E w_r^2``.
    """
    n = len(lower) - len(moments)
    fresh = lower[n:, n:]  # w_r, by the new Gaussians
    size = np.square(fresh).sum(1)
    own = (moments[:, n:] * fresh).sum(1) / np.where(size > 0, size, np.inf)
    old = stein(moments[:, :n] - own[:, None] * lower[n:, :n], lower[:n, :n])
    return np.concatenate([old, np.diag(own)], axis=1)


def _solve(lower: Array, target: Array, *, transposed: bool = False) -> Array:
    """x (n, ...) with ``lower x = target``; entries of zero pivots are zero."""
    # The first step has no past, so nothing to solve for.
    if not target.size:
        return target
    # Division by an infinite pivot is what makes an entry zero.
    safe = lower + np.diag(np.where(np.diag(lower) == 0, np.inf, 0.0))
    return np.asarray(
        solve_triangular(safe, target, lower=True, trans=int(transposed), check_finite=False)
    )
