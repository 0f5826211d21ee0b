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

from depthmup.limits.chebyshev import rule
from depthmup.limits.losses import Array
from depthmup.limits.solution import History, Solution
from depthmup.limits.volterra import solve_volterra


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
        """Gamma_ij at points[p], points[q], (N, N); on the diagonal, its limit from p > q.

        Args:
            i: what is moved: 0 for x, 1 for d.
            j: the source: 0 for F, 1 for B.
            p: index of the depth that is moved.
            q: index of the source's depth.
        """
        result: Array = self.above[i, j, p, q] if p >= q else self.below[i, j, p, q]
        return result


def propagators(solution: Solution, *, multiplier: float = 1.0) -> Propagators:
    """Gamma(p, q) of ``limits.linear(..., depth=math.inf, history=True)`` at Depth-muP.

    Args:
        solution: with its history, at infinite depth.
        multiplier: the branch multiplier a of the solution.

    Returns:
        Gamma at every pair of positions.

    >>> from depthmup import limits
    >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
    >>> s = limits.linear(steps, depth=float("inf"), lr=1.0, history=True)
    >>> limits.propagators(s).above.shape[2:4] == (17, 17)
    True
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

    Args:
        solution: of ``limits.linear(..., depth=math.inf, history=True)``.
        lr: its learning rate.
        multiplier: its branch multiplier a.

    Returns:
        The residual of each equation, by its name.

    Raises:
        ValueError: the equations are not those of this solution: it is nonlinear, not Depth-muP's,
            or was trained with momentum, a schedule, or with U or V.

    *Source:* arXiv 2310.02244, Proposition 4.4 / C.2, with the multiplier a and lr restored. True
    as printed.
    """
    _require_plain(solution)
    h, g, a = _history(solution), propagators(solution, multiplier=multiplier), multiplier
    n = len(g.points)
    up = rule(n - 1).integral
    steps = np.concatenate([[t] * len(f) for t, f in enumerate(solution.outputs)])
    causal = lr * a**2 * (steps[None, :] < steps[:, None])
    onto = np.arange(n)
    m = a * g.above[0, 1, onto, onto] - causal * h.x
    back = a * g.above[1, 0, onto, onto] - causal * h.d
    # Gamma(r, q) is the branch below for r < q and the branch above for r > q.
    first = np.minimum(onto[:, None], onto)  # of p and q, the lower: where a branch changes
    whole = np.repeat(up[-1:], n, axis=0)

    def climb(weight: Array, j: int, i: int) -> Array:
        """int_0^p weight(r) Gamma_ij(r, q) dr on the grid of (p, q)."""
        above = weight[:, None] @ g.above[i, j]
        below = weight[:, None] @ g.below[i, j]
        low = np.einsum("pqr,rqxy->pqxy", up[first], below)
        result: Array = low + np.einsum("pqr,rqxy->pqxy", up[:, None] - up[first], above)
        return result

    def total(weight: Array, j: int, i: int) -> Array:
        """int_0^1 weight(r) Gamma_ij(r, q) dr, on the grid of q."""
        above, below = weight[:, None] @ g.above[i, j], weight[:, None] @ g.below[i, j]
        result: Array = np.einsum("qr,rqxy->qxy", up, below) + np.einsum(
            "qr,rqxy->qxy", whole - up, above
        )
        return result

    jump = a * np.eye(h.x.shape[1])
    residual = {"Gamma_0": 0.0, "Gamma_1": 0.0}
    off = ~np.eye(n, dtype=bool)  # on the diagonal the two sides of a jump are both right
    for j in (0, 1):
        higher = onto[:, None] > onto
        value = np.where(higher[..., None, None], g.above[:, j], g.below[:, j])
        want_x = climb(m, j, 1) + jump * ((j == 0) & higher)[..., None, None]
        rest = total(back, j, 0)[None] - climb(back, j, 0)
        want_d = rest + jump * ((j == 1) & ~higher)[..., None, None]
        residual["Gamma_0"] = max(residual["Gamma_0"], _largest((value[0] - want_x)[off]))
        residual["Gamma_1"] = max(residual["Gamma_1"], _largest((value[1] - want_d)[off]))

    def integrated(values: Array) -> Array:
        return np.tensordot(up, values, axes=1)

    gaps = []
    for (x, d), on_x, on_d in ((g.on_u, h.inputs, 0.0), (g.on_v, 0.0, h.chi)):
        falling = integrated(back @ x)
        gaps += [x - on_x - integrated(m @ d), d - on_d - (falling[-1] - falling)]
    residual["U and V"] = max(_largest(gap) for gap in gaps)

    for i, cov in ((0, h.x), (1, h.d)):
        u, v = g.on_u[i], g.on_v[i]
        rebuilt = u @ u.transpose(0, 2, 1) + v @ v.transpose(0, 2, 1)
        for j, source in ((0, h.x), (1, h.d)):
            # As a function of the source's depth q: above for q < p, below for q > p.
            above = g.above[i, j] @ source[None] @ g.above[i, j].transpose(0, 1, 3, 2)
            below = g.below[i, j] @ source[None] @ g.below[i, j].transpose(0, 1, 3, 2)
            rebuilt += np.einsum("pq,pqxy->pxy", up, above)
            rebuilt += np.einsum("pq,pqxy->pxy", whole - up, below)
        residual[f"C_{i}"] = _largest(cov - rebuilt)
    return residual


def _require_plain(solution: Solution) -> None:
    """Raise unless a solution is of the training that Proposition 4.4 is about."""
    todo, half = solution.problem, Fraction(1, 2)
    sizes = [len(step.inputs) for step in todo.steps]
    constant = todo.hidden[1, 0] if len(sizes) > 1 else todo.hidden[-1, 0]
    plain = np.repeat(np.tri(len(sizes) + 1, len(sizes), -1), sizes, axis=1) * constant
    residuals = {
        f"activation {solution.activation}": solution.activation != "identity",
        f"alpha={todo.scaling.alpha}, gamma={todo.scaling.gamma}": (
            (todo.scaling.alpha, todo.scaling.gamma) != (half, half)
        ),
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
