"""Feature diversity: how far apart x is at two nearby depths, from the same covariances.

With x = (I-PQ)^-1 (u + P v) and d = (I-QP)^-1 (Q u + v), the sources u from below form a Markov
chain upwards and the sources v from above one downwards, so that for q < p

    <x(p)|x(q)> = E(p) [Z R(q) + Y P(q)^T + P(p) S(p) T^T P(q)^T] E(q)^T,     E = (I-PQ)^-1
    R = <u|u>,  S = <v|v>,  u(p) = Z u(q) + ...,  v(q) = T v(p) + ...,  Y = <u(p)|v(q)>

where Z, T, Y depend on p only through one linear equation each, from I, I, 0 at p = q:

    Z' = P n Z,   T' = T Q m,   Y' = P n Y + (c Q^T + P d) T^T        (infinite depth)
    Z^l = (I - P^{l-1} N^l)^-1 Z^{l-1} and so on                                     (finite depth)

c and d being the covariances of the noise that initial weights add: r <x|x> and r <d|d> in a linear
network, k0 and V1 * <d|d> (times a^2 nu) in a nonlinear one (k0 not centred if it has two matrices
per block).

*Source:* arXiv 2310.02244, Definition 7.4 (feature diversity exponent); the formulas are not there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from depthmup.limits import History, Rule, Solution, rule, solve_volterra
from depthmup.statistics import Array


def feature_diversity(
    solution: Solution, eps: Sequence[float], *, at: float = 0.25
) -> Float[Array, "eps vectors"]:
    """``|x(at + eps) - x(at)| / sqrt(n)`` for every training vector: shape (len(eps), N).

    It scales as eps^(1 - kappa): kappa = 1/2 for Depth-muP, 0 for 1/2 < alpha <= 1.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> s = limits.linear(steps, depth=float("inf"), lr=1.0, history=True)
        >>> near, far = feature_diversity(s, [0.01, 0.04])[:, 0]
        >>> round(float(far / near), 2)  # a random walk in depth at initialization
        2.02

    *Source:* the exponent is arXiv 2310.02244, Definition 7.4; the formulas are derived here.
    """
    h = solution.history
    if h is None:
        raise ValueError("Feature diversity needs every covariance: pass history=True.")
    if len(eps) == 0 or min(eps) <= 0 or at < 0 or at + max(eps) > 1 + 1e-12:
        raise ValueError(f"0 <= at < at + eps <= 1 is needed; got at={at}, eps={list(eps)}.")
    if len(h.m) < len(h.x):
        return _finite(h, np.asarray(eps, dtype=float), at)
    whole = rule(len(solution.positions) - 1)
    if not np.allclose(whole.points, solution.positions):
        raise ValueError(
            "Feature diversity is not available on graded panels (relu or abs with collinear "
            "inputs): perturb the inputs, or take a smooth activation."
        )
    return _infinite(h, whole, np.asarray(eps, dtype=float), at)


def _infinite(h: History, whole: Rule, eps: Array, at: float) -> Array:
    size = h.x.shape[1]
    reach = float(eps.max())
    # The functions are products of interpolants: a few points more than these have.
    local = rule(len(whole.points) + 7)
    points = at + reach * local.points

    def near(values: Array) -> Array:
        return whole.evaluate(values, points)

    p, q, m, n = near(h.p), near(h.q), near(h.m), near(h.n)
    x, d, cross = near(h.x), near(h.d), near(h.xd)
    p_n_t, q_m = (p @ n).transpose(0, 2, 1), q @ m
    mixing_t = q @ near(h.fresh_x) + near(h.fresh_d) @ p.transpose(0, 2, 1)

    def derivative(s: Array) -> Array:
        """Rows of (Z^T, T, Y^T)."""
        z_t, t, y_t = s[..., :size], s[..., size : 2 * size], s[..., 2 * size :]
        return np.concatenate([z_t @ p_n_t, t @ q_m, y_t @ p_n_t + t @ mixing_t], axis=-1)

    eye = np.eye(size)
    start = np.concatenate([eye, eye, np.zeros((size, size))], axis=1)
    s = solve_volterra(reach * local.integral, derivative, start)
    z, y = s[..., :size].transpose(0, 2, 1), s[..., 2 * size :].transpose(0, 2, 1)
    on_grid = _distances(p, q, x, d, cross, z, s[..., size : 2 * size], y)
    squares = local.evaluate(on_grid, eps / reach)
    return np.sqrt(np.maximum(squares, 0.0))


def _finite(h: History, eps: Array, at: float) -> Array:
    depth, size = len(h.m), h.x.shape[1]
    layers = np.rint(np.append(eps, 0.0) * depth + at * depth).astype(int)
    if not np.allclose(layers / depth, np.append(eps, 0.0) + at, rtol=0, atol=1e-9):
        raise ValueError(
            f"at and eps must be whole numbers of layers, multiples of 1/{depth}; got at={at}, "
            f"eps={eps.tolist()}."
        )
    first, last = int(layers[-1]), int(layers.max())
    eye = np.eye(size)
    z, t, y = [eye], [eye], [np.zeros((size, size))]
    for layer in range(first + 1, last + 1):
        p, n = h.p[layer - 1], h.n[layer - 1]
        q, m = h.q[layer], h.m[layer - 1]
        rise, fall = np.linalg.inv(eye - p @ n), np.linalg.inv(eye - q @ m)
        drawn = rise @ p @ h.fresh_d[layer] + h.fresh_x[layer - 1] @ q.T @ fall.T
        y.append(rise @ y[-1] + drawn @ t[-1].T / depth)
        z.append(rise @ z[-1])
        t.append(t[-1] @ fall)
    span = slice(first, last + 1)
    squares = _distances(
        h.p[span],
        h.q[span],
        h.x[span],
        h.d[span],
        h.xd[span],
        np.array(z),
        np.array(t),
        np.array(y),
    )
    result: Array = np.sqrt(np.maximum(squares[layers[:-1] - first], 0.0))
    return result


def _distances(
    p: Array, q: Array, x: Array, d: Array, cross: Array, z: Array, t: Array, y: Array
) -> Array:
    """|x(p) - x(q)|^2 for every vector, at every depth p from the first, q: (points, N)."""
    # u = x - P d and v = d - Q x by the definitions of P and Q: r is <u|u>, s is <v|v>.
    e = np.linalg.inv(np.eye(x.shape[1]) - p @ q)
    p_k = p @ cross.transpose(0, 2, 1)
    r = x - p_k - p_k.transpose(0, 2, 1) + p @ d @ p.transpose(0, 2, 1)
    q_k = q @ cross
    s = d - q_k - q_k.transpose(0, 2, 1) + q @ x @ q.transpose(0, 2, 1)
    p0, e0 = p[0], e[0]
    inner = z @ r[0] + y @ p0.T + p @ s @ t.transpose(0, 2, 1) @ p0.T
    between = np.einsum("pij,pjk,ik->pi", e, inner, e0)
    own = np.einsum("pii->pi", x)
    # A difference of numbers of size |x|^2: a distance below 1e-8 |x| is rounding.
    result: Array = own + own[0] - 2 * between
    return result
