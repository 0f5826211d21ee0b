"""The full two-point functions Gamma(p, q) of a linear network of infinite depth.

A Gaussian source injected at depth q (``F``: through W_0, ``B``: through its transpose) moves x
and d at every depth p, now and at later steps. With m, n of ``continuum`` and two solutions of
``X' = m D, D' = -n X``, (X0, D0) that is (0, I) at p = 0 and (X1, D1) that is (I, 0) at p = 1,

    p > q:  (Gamma_00, Gamma_10) = a (X1, D1)(p) X1(q)^-1 (I-PQ)^-1(q)
            (Gamma_01, Gamma_11) = a (X1, D1)(p) X1(q)^-1 P (I-QP)^-1(q)
    p < q:  (Gamma_00, Gamma_10) = a (X0, D0)(p) D0(q)^-1 Q (I-PQ)^-1(q)
            (Gamma_01, Gamma_11) = a (X0, D0)(p) D0(q)^-1 (I-QP)^-1(q)

where the first index is what is moved (0: x, 1: d) and the second the source (0: F, 1: B). Every
branch is analytic on all of [0, 1]^2; Gamma_00 and Gamma_11 jump by a I across p = q.

*Source:* these are the functions of arXiv 2310.02244, Proposition 4.4 / C.2; their semiseparable
form is not in the paper. ``proposition_residual`` checks the paper's own equations.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from depthmup.limits import History, Solution, rule, solve_volterra
from depthmup.statistics import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Propagators:
    """Gamma on the grid of ``points`` (k,) squared.

    ``above[i, j]`` and ``below[i, j]`` (k, k, N, N): Gamma_ij(p, q) continued from p > q, and from
    p < q, to all (p, q); axes p, q, training vector moved, training vector injected. ``on_u[i]``
    (k, N, d_in) and ``on_v[i]`` (k, N, d_out): coefficients of x (i=0), d (i=1) on U and nV.
    """

    points: Array
    above: Array
    below: Array
    on_u: tuple[Array, Array]
    on_v: tuple[Array, Array]

    def at(self, i: int, j: int, p: int, q: int) -> Array:
        """Gamma_ij at points[p], points[q], (N, N); on the diagonal, its limit from p > q."""
        result: Array = self.above[i, j, p, q] if p >= q else self.below[i, j, p, q]
        return result


def propagators(solution: Solution, *, multiplier: float = 1.0) -> Propagators:
    """Gamma(p, q) of ``limits.linear(..., depth=math.inf, history=True)`` at Depth-muP.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> s = limits.linear(steps, depth=float("inf"), lr=1.0, history=True)
        >>> propagators(s).above.shape[2:4] == (17, 17)
        True

    *Source:* TP6 (arXiv 2310.02244) Proposition 4.4; the semiseparable form is derived here.
    """
    h = _history(solution)
    points, size = solution.positions, h.x.shape[1]
    integral = rule(len(points) - 1).integral

    def fundamental(operator: Array, x: Array, d: Array) -> tuple[Array, Array]:
        """(X, D) from their values where ``operator`` integrates from; rows of (X^T, D^T)."""
        m_t, n_t = h.m.transpose(0, 2, 1), h.n.transpose(0, 2, 1)

        def derivative(s: Array) -> Array:
            return np.concatenate([s[..., size:] @ m_t, -s[..., :size] @ n_t], axis=-1)

        s = solve_volterra(operator, derivative, np.concatenate([x, d], axis=1))
        s = s.transpose(0, 2, 1)
        return s[:, :size], s[:, size:]

    zero, eye = np.zeros((size, size)), np.eye(size)
    x0, d0 = fundamental(integral, zero, eye)
    x1, d1 = fundamental(integral - integral[-1], eye, zero)
    e, g = np.linalg.inv(eye - h.p @ h.q), np.linalg.inv(eye - h.q @ h.p)
    from_below, from_above = np.linalg.inv(x1), np.linalg.inv(d0)
    sources = (from_below @ e, from_below @ h.p @ g), (from_above @ h.q @ e, from_above @ g)

    def outer(moved: tuple[Array, Array], source: tuple[Array, Array]) -> Array:
        return multiplier * np.array(
            [[left[:, None] @ right[None] for right in source] for left in moved]
        )

    return Propagators(
        points=points,
        above=outer((x1, d1), sources[0]),
        below=outer((x0, d0), sources[1]),
        # U is a source at p = 0, nV one at p = 1.
        on_u=(x1 @ sources[0][0][0] @ h.inputs, d1 @ sources[0][0][0] @ h.inputs),
        on_v=(x0 @ sources[1][1][-1] @ h.chi, d0 @ sources[1][1][-1] @ h.chi),
    )


def proposition_residual(
    solution: Solution, *, lr: float, multiplier: float = 1.0
) -> dict[str, float]:
    """How far the five equations of Proposition 4.4 are from holding: largest absolute residuals.

    With ``M(p) = a Gamma_01(p, p) - lr a^2 Lo[C_0(p)]`` and ``N(p) = a Gamma_10(p, p) -
    lr a^2 Lo[C_1(p)]``, both strictly causal in time, b any source at q (or U, or V):

        Gamma_0b(p, q) = a 1[b=0, q<=p] I + int_0^p M(r) Gamma_1b(r, q) dr
        Gamma_1b(p, q) = a 1[b=1, q>=p] I + int_p^1 N(r) Gamma_0b(r, q) dr
        the same for the coefficients on U and V, starting from the inputs and from chi
        C_i(p) = UU^T + VV^T + sum_b int_0^1 Gamma_ib(p, q) C_b(q) Gamma_ib(p, q)^T dq,  i = 0, 1

    Example:
        >>> import math
        >>> from depthmup import limits
        >>> step = limits.Step([[1.0]], limits.mse([[0.5]]))
        >>> solution = limits.linear([step, step], depth=math.inf, lr=1.0, history=True)
        >>> max(proposition_residual(solution, lr=1.0).values()) < 1e-9
        True

    *Source:* arXiv 2310.02244, Proposition 4.4 / C.2, with the multiplier a and lr restored. True
    as printed.
    """
    _require_plain(solution)
    h, g, a = _history(solution), propagators(solution, multiplier=multiplier), multiplier
    grid = _Grid(g)
    steps = np.concatenate([[t] * len(f) for t, f in enumerate(solution.outputs)])
    causal = lr * a**2 * (steps[None, :] < steps[:, None])
    m = a * g.above[0, 1, grid.onto, grid.onto] - causal * h.x
    n = a * g.above[1, 0, grid.onto, grid.onto] - causal * h.d
    return {
        **_source_residuals(grid, m, n, jump=a * np.eye(h.x.shape[1])),
        "U and V": _end_residual(grid, h, m, n),
        "C_0": _covariance_residual(grid, 0, h.x, (h.x, h.d)),
        "C_1": _covariance_residual(grid, 1, h.d, (h.x, h.d)),
    }


class _Grid:
    """Integrals over depth of Gamma(r, q), which is ``below`` for r < q and ``above`` for r > q."""

    def __init__(self, g: Propagators) -> None:
        self.g, self.onto = g, np.arange(len(g.points))
        self.up = rule(len(g.points) - 1).integral
        self.whole = np.repeat(self.up[-1:], len(g.points), axis=0)

    def climb(self, weight: Array, j: int, i: int) -> Array:
        """int_0^p weight(r) Gamma_ij(r, q) dr on the grid of (p, q), (points, points, N, N)."""
        # Each branch is analytic: split where it changes, at the lower of p and q, both integrals
        # are exact for the interpolants.
        first = np.minimum(self.onto[:, None], self.onto)
        above = weight[:, None] @ self.g.above[i, j]
        below = weight[:, None] @ self.g.below[i, j]
        low = np.einsum("pqr,rqxy->pqxy", self.up[first], below)
        result: Array = low + np.einsum("pqr,rqxy->pqxy", self.up[:, None] - self.up[first], above)
        return result

    def total(self, weight: Array, j: int, i: int) -> Array:
        """int_0^1 weight(r) Gamma_ij(r, q) dr, on the grid of q, (points, N, N)."""
        above = weight[:, None] @ self.g.above[i, j]
        below = weight[:, None] @ self.g.below[i, j]
        low = np.einsum("qr,rqxy->qxy", self.up, below)
        result: Array = low + np.einsum("qr,rqxy->qxy", self.whole - self.up, above)
        return result

    def integrated(self, values: Array) -> Array:
        """int_0^p of values (points, ...)."""
        return np.tensordot(self.up, values, axes=1)


def _source_residuals(grid: _Grid, m: Array, n: Array, jump: Array) -> dict[str, float]:
    """Of the equations of Gamma_0b and Gamma_1b, over both sources b."""
    g, onto = grid.g, grid.onto
    residual = {"Gamma_0": 0.0, "Gamma_1": 0.0}
    off = ~np.eye(len(onto), dtype=bool)  # on the diagonal the two sides of a jump are both right
    higher = onto[:, None] > onto
    for j in (0, 1):
        value = np.where(higher[..., None, None], g.above[:, j], g.below[:, j])
        want_x = grid.climb(m, j, 1) + jump * ((j == 0) & higher)[..., None, None]
        rest = grid.total(n, j, 0)[None] - grid.climb(n, j, 0)
        want_d = rest + jump * ((j == 1) & ~higher)[..., None, None]
        residual["Gamma_0"] = max(residual["Gamma_0"], _largest((value[0] - want_x)[off]))
        residual["Gamma_1"] = max(residual["Gamma_1"], _largest((value[1] - want_d)[off]))
    return residual


def _end_residual(grid: _Grid, h: History, m: Array, n: Array) -> float:
    """Of the equations of coefficients on U, which start from the inputs, and on V, from chi."""
    gaps = []
    for (x, d), on_x, on_d in ((grid.g.on_u, h.inputs, 0.0), (grid.g.on_v, 0.0, h.chi)):
        falling = grid.integrated(n @ x)
        gaps += [x - on_x - grid.integrated(m @ d), d - on_d - (falling[-1] - falling)]
    return max(_largest(gap) for gap in gaps)


def _covariance_residual(grid: _Grid, i: int, cov: Array, sources: tuple[Array, Array]) -> float:
    """Of the equation of C_i; ``sources`` are the covariances of F and of B at every depth."""
    g, u, v = grid.g, grid.g.on_u[i], grid.g.on_v[i]
    rebuilt = u @ u.transpose(0, 2, 1) + v @ v.transpose(0, 2, 1)
    for j, source in enumerate(sources):
        # As a function of the source's depth q: above for q < p, below for q > p.
        above = g.above[i, j] @ source[None] @ g.above[i, j].transpose(0, 1, 3, 2)
        below = g.below[i, j] @ source[None] @ g.below[i, j].transpose(0, 1, 3, 2)
        rebuilt += np.einsum("pq,pqxy->pxy", grid.up, above)
        rebuilt += np.einsum("pq,pqxy->pxy", grid.whole - grid.up, below)
    return _largest(cov - rebuilt)


def _require_plain(solution: Solution) -> None:
    """Raise unless a solution is of the training that Proposition 4.4 is about."""
    todo, half = solution.problem, Fraction(1, 2)
    sizes = [len(step.inputs) for step in todo.steps]
    constant = todo.hidden[1, 0] if len(sizes) > 1 else todo.hidden[-1, 0]
    plain = np.repeat(np.tri(len(sizes) + 1, len(sizes), -1), sizes, axis=1) * constant
    residuals = {
        f"activation {solution.activation}": solution.activation != "identity",
        f"alpha={todo.alpha}, gamma={todo.gamma}": ((todo.alpha, todo.gamma) != (half, half)),
        "a schedule of learning rates, or momentum": not np.allclose(todo.hidden, plain),
        "trained U": bool(todo.input.any()),
        "trained V": bool(todo.readout.any()),
    }
    if other := [what for what, holds in residuals.items() if holds]:
        raise ValueError(
            "Proposition 4.4 is about linear networks under alpha = gamma = 1/2 whose W are "
            "trained alone, at a constant rate without momentum; got a solution with "
            f"{'; '.join(other)}. Its equations do not hold there."
        )


def _largest(values: Array) -> float:
    return float(np.abs(values).max())


def _history(solution: Solution) -> History:
    h = solution.history
    if h is None or len(h.m) != len(h.x):
        raise ValueError(
            "Propagators need every covariance at infinite depth: pass history=True and "
            "depth=math.inf to limits.linear."
        )
    return h
