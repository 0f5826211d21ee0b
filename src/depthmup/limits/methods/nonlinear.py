"""Nonlinear networks of infinite depth: rows of P and R up, of Q and S down.

``x^l = x^{l-1} + a L^-alpha MS(phi(h^l))``, ``h^l = W^l x^{l-1}``, MS subtracting the mean over
entries, f and W's updates as in ``linear``. With the letters of ``continuum``, z_r, z_s Gaussian of
covariance C(p), and the expectations k0, V1, k2, k11, k31, vp of ``gaussian``:

    Mh_rs = G01_rs - a w_rs C_rs                                             (s < r)
    m_rs  = a V1_rs Mh_rs                                                    (s < r)
    n_rs  = a [V1_rs (G10_rs - a w_rs D_rs) + k2_rs Mh_rs D_rs]              (s < r)
    n_rr  = a [sum_{s<r} (k11_rs G10_rs + k31_rs Mh_rs D_rs) + vp_r G10_rr]
    G01 = a nu P (I - QP)^-1,   G10 = a nu Q (I - PQ)^-1
    P' = m + P n P, P(0) = 0,   -Q' = n + Q m Q, Q(1) = 0

P is strictly causal, Q includes its diagonal: x_r itself feeds its own backward pass. Covariances
come from those of the sources below (R) and above (S), x = (I-PQ)^-1 (u + P v),
d = (I-QP)^-1 (Q u + v) with R = <u|u>, S = <v|v>, <u|v> = 0:

    R'  = a^2 nu k0 + a^2 nu P (V1 * D) P^T + P n R + R n^T P^T,   R(0) = Gram matrix of the inputs
    -S' = a^2 nu (V1 * D) + a^2 nu Q k0 Q^T + Q m S + S m^T Q^T,   S(1) = chi chi^T

nu = 1 for Depth-muP (alpha = 1/2), 0 for 1/2 < alpha < 1; k2 and k31 survive there. At alpha = 1
preactivations move by order one and no closed system is known. At finite depth x is not Gaussian,
as phi(h) enters it: ``particles``.

*Source:* arXiv 2310.02244, Claim E.1 and Appendix F.3.2. The forward equation is Definition E.1's;
the backward one is not: as printed it is not the gradient of the forward pass.
See docs/studies/limits.md.

With a second matrix per block (``second``, the weights w2 of its past updates times the width
ratio) its updates are added, ``- a^2 w2 * k0`` to m and ``- a w2 * D`` to every G10 but the
diagonal's, and expectations are not centred:

    m_rs = a (V1_rs Mh_rs - a w2_rs k0_rs)
    n_rs = a [V1_rs (G10_rs - a w2_rs D_rs - a w_rs D_rs) + k2_rs Mh_rs D_rs]          (s < r)
    n_rr = a [sum_{s<r} (k11_rs (G10_rs - a w2_rs D_rs) + k31_rs Mh_rs D_rs) + vp_r G10_rr]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from depthmup.limits.gaussian import Expansion
from depthmup.limits.methods.nonlinear_backward import Backward
from depthmup.limits.methods.nonlinear_state import State, pairs_among
from depthmup.limits.numerics.mesh import Mesh, graded, integrate
from depthmup.limits.problem import Problem, require_infinite_depth
from depthmup.limits.solution import History, Solution, Status
from depthmup.limits.step import Array
from depthmup.limits.training import Method, require_finite, train

# Smooth problems: one panel, more points. Singular at p = 0: more panels and more points.
_DEGREES = (16, 22, 30, 42, 60, 84)
_GRADED = ((3, 10), (5, 12), (7, 14), (9, 17), (11, 20))
# Newton doubles the digits each time, so that thirty rounds mean that it does not converge.
_MOST_EXPANSIONS = 30
_PART = 64  # held-out rows solved at a time


def solve_nonlinear(problem: Problem, method: type[Nonlinear] | None = None) -> Solution:
    """Train the limit, with as many points in depth as the tolerance needs."""
    require_infinite_depth(problem)
    if problem.alpha == 1 and not problem.linear:
        raise ValueError(
            "At alpha=1 an update moves every preactivation by order one, and no closed "
            "infinite-depth limit of a nonlinear network with one matrix per block is known. Use "
            "1/2 <= alpha < 1, a finite depth, or two matrices per block (limits.mean_ode)."
        )
    # A kink's k2 is 1/q, and between collinear inputs q grows like p from 0 at p = 0.
    singular = problem.activation.kinked and _collinear(problem)
    meshes = [graded(*g) for g in _GRADED] if singular else [Mesh((0.0, 1.0), n) for n in _DEGREES]
    before: Array | None = None
    for mesh in meshes:
        solution = train((method or Nonlinear)(problem, mesh))
        if solution.status.kind == "exploded":
            return solution
        outputs = np.concatenate(solution.outputs)
        error = solution.error_estimate
        if singular:  # coefficients say little about a singular function: compare two meshes
            error = math.inf if before is None else float(np.abs(outputs - before).max())
        before = outputs
        solution = replace(solution, error_estimate=error)
        if error <= problem.tol and solution.status.ok:
            return solution
    reason = (
        "inputs are collinear, so the solution is singular at p = 0"
        if singular
        else "the solution is not resolved"
    )
    status = Status(
        kind="unresolved",
        message=(
            f"{reason}; {len(mesh.points)} points leave an error of about {error:.1e} > "
            f"tol={problem.tol:.1e}. Pass a larger tol, or a smaller learning rate or multiplier."
        ),
    )
    return replace(solution, status=status)


def _collinear(problem: Problem) -> bool:
    """Whether any two inputs (held-out ones included) are multiples of each other."""
    inputs = [step.inputs for step in problem.steps]
    if problem.held_out is not None:
        inputs.append(problem.held_out)
    rows = np.concatenate(inputs)
    sizes = np.linalg.norm(rows, axis=1)
    unit = rows[sizes > 0] / sizes[sizes > 0, None]
    gram = np.abs(unit @ unit.T)
    np.fill_diagonal(gram, 0.0)
    return bool((sizes == 0).any() or (gram**2 > 1 - 1e-6).any())


class Nonlinear(Method):
    """Training on one mesh of depth; ``tail`` estimates what its points leave out."""

    backward: type[Backward] = Backward

    def __init__(self, problem: Problem, mesh: Mesh) -> None:
        super().__init__(problem, mesh.points)
        self.mesh = mesh
        self.state = State(problem, len(mesh.points))
        self.tail, self.settled = 0.0, True

    def up(self, t: int, rows: slice, inputs: Array) -> tuple[Array, Array]:
        state = self.state
        n, batch = rows.start, rows.stop - rows.start
        p, r, square = self.rise(inputs[:batch], n, t)
        tops = [p[-1]]
        held_out = inputs[batch:]
        for first in range(0, len(held_out), _PART):
            tops.append(self.rise(held_out[first : first + _PART], n, t)[0][-1])
        outputs = np.concatenate(tops) @ state.chi[:n]
        require_finite(outputs, square)
        if batch:
            self.file_up(rows, p, r, t)
        return outputs, square

    def down(self, t: int, rows: slice, chi: Array) -> None:
        state = self.state
        state.chi[rows] = chi
        equations = self.backward(state, rows, t)
        states = self.run(equations.derivative, equations.start, up=False)
        require_finite(states)
        self.file_down(rows, equations, states)

    def close(self, status: Status) -> Solution:
        state = self.state
        if status.ok and not self.settled:
            status = Status(kind="unresolved", message="fixed-point iterations did not settle.")
        done, history = self.done, self.problem.history and status.ok
        return self.solution(
            kernel=state.x[-1, :done, :done].copy(),
            status=status,
            error_estimate=self.tail * self.scale,
            history=self.history() if history else None,
        )

    def history(self) -> History:
        state = self.state
        rate = state.a**2 * state.nu
        return History(
            x=state.x,
            d=state.d,
            xd=state.k,
            p=state.p,
            q=state.q,
            m=state.m,
            n=state.n,
            fresh_x=rate * state.k0,
            fresh_d=rate * state.noise,
            inputs=state.xi,
            chi=state.chi,
        )

    def rise(self, inputs: Array, n: int, t: int) -> tuple[Array, Array, Array]:
        """Rows of P and R against the n old vectors, and |x|^2, for a minibatch and held-out."""
        state = self.state
        w, second = self.problem.hidden[t, :n], state.second[t, :n]
        old = (slice(None), slice(n), slice(n))
        p_old, n_old, noise = state.p[old], state.n[old], state.noise[old]
        n_p, n_r, p_n_t = n_old @ p_old, n_old @ state.r[old], (p_old @ n_old).transpose(0, 2, 1)
        noise_p = noise @ p_old.transpose(0, 2, 1)
        h_q = state.h[old] @ state.q[old]
        k_t, e_t = state.k[old].transpose(0, 2, 1), state.e[old].transpose(0, 2, 1)
        variances = np.einsum("pii->pi", state.x[old])[:, None, :]
        a, rate, every = state.a, state.a**2 * state.nu, slice(None)

        def covariances(where: slice, s: Array) -> tuple[Array, Array]:
            p, r, own = s[..., :n], s[..., n : 2 * n], s[..., 2 * n]
            # C_rr = R_rr + 2 P_r H Q R_.r + P_r D P_r^T.
            square = own + (
                (p @ state.d[old][where] + 2 * r @ h_q[where].transpose(0, 2, 1)) * p
            ).sum(-1)
            return p @ k_t[where] + r @ e_t[where], square

        # Set where pairs cost a quadrature each: Picard's iterations then ask for none.
        near: Expansion | None = None

        def pairs(where: slice, square: Array, cov: Array) -> tuple[Array, Array]:
            """(k0, V1) of new vectors' h with old ones', each (depths, rows, n)."""
            if near is not None:
                return near.at(square[..., None], cov, where)
            pair = state.phi.pair(square[..., None], cov, variances[where])
            return pair.k0, pair.v1

        def derivative(where: slice, s: Array) -> Array:
            p, r = s[..., :n], s[..., n : 2 * n]
            cov, square = covariances(where, s)
            k0, v1 = pairs(where, square, cov)
            shift = a * state.nu * p @ state.h[old][where] - a * w * cov
            out = np.empty_like(s)
            out[..., :n] = a * (v1 * shift - a * second * k0) + p @ n_p[where]
            out[..., n : 2 * n] = rate * (k0 + p @ noise_p[where])
            out[..., n : 2 * n] += p @ n_r[where] + r @ p_n_t[where]
            own = rate * (p @ noise[where]) * p + 2 * (p @ n_old[where]) * r
            out[..., 2 * n] = rate * state.phi.single(square).variance + own.sum(-1)
            return out

        start = np.zeros((len(inputs), 2 * n + 1))
        start[:, n : 2 * n] = inputs @ state.xi[:n].T
        start[:, 2 * n] = (inputs**2).sum(1)
        if state.phi.sampled and n:
            # Newton: solve with expectations expanded around the last solution's covariances.
            cov, square = covariances(every, np.repeat(start[None], len(state.p), axis=0))
            for _ in range(_MOST_EXPANSIONS):
                pair = state.phi.pair(square[..., None], cov, variances)
                near = Expansion(pair, square[..., None], cov)
                states = self.run(derivative, start, up=True)
                before, (cov, square) = (cov, square), covariances(every, states)
                changes = np.abs(cov - before[0]), np.abs(square - before[1])
                if not max(c.max(initial=0.0) for c in changes) > 1e-13 * square.max(initial=0.0):
                    break
            else:
                self.settled = False
        else:
            states = self.run(derivative, start, up=True)
        _, square = covariances(every, states)
        return states[..., :n], states[..., n : 2 * n], square

    def run(self, derivative: Callable[[slice, Array], Array], start: Array, *, up: bool) -> Array:
        """Integrate through depth, keeping the account of what is unresolved."""
        states, settled = integrate(self.mesh, derivative, start, up=up)
        self.settled = self.settled and settled
        size = float(np.abs(states).max(initial=0.0))
        if size > 0 and np.isfinite(size):
            for where, _ in self.mesh.panels:
                missing = self.mesh.rule.neglected(states[where][:, :, None])
                self.tail = max(self.tail, float(missing.max()) / size)
        return states

    def file_up(self, rows: slice, p: Array, r: Array, t: int) -> None:
        """Store a minibatch's forward rows, and solve for its covariances among itself."""
        state = self.state
        n, a = rows.start, state.a
        w, second = self.problem.hidden[t, :n], state.second[t, :n]
        old, new = (slice(None), slice(n), slice(n)), (slice(None), rows, slice(n))
        h_q, rate = state.h[old] @ state.q[old], a**2 * state.nu
        mixed = (p @ h_q) @ r.transpose(0, 2, 1)
        drawn = p @ state.d[old] @ p.transpose(0, 2, 1) + mixed + mixed.transpose(0, 2, 1)
        driven = p @ state.n[old] @ r.transpose(0, 2, 1)
        driven = driven + driven.transpose(0, 2, 1)
        driven += rate * p @ state.noise[old] @ p.transpose(0, 2, 1)

        def derivative(where: slice, s: Array) -> Array:
            return rate * pairs_among(state.phi, s + drawn[where])[0] + driven[where]

        own = self.run(derivative, state.xi[rows] @ state.xi[rows].T, up=True)
        block = own + drawn
        cov = p @ state.k[old].transpose(0, 2, 1) + r @ state.e[old].transpose(0, 2, 1)
        square = np.einsum("pbb->pb", block)
        variances = np.einsum("pii->pi", state.x[old])[:, None, :]
        state.pairs = state.phi.pair(square[..., None], cov, variances)
        state.p[new], state.r[new], state.x[new] = p, r, cov
        state.k0[new], state.v1[new] = state.pairs.k0, state.pairs.v1
        state.mh[new] = a * state.nu * p @ state.h[old] - a * w * cov
        state.m[new] = a * (state.v1[new] * state.mh[new] - a * second * state.k0[new])
        state.k[new] = p @ state.d[old] + r @ h_q.transpose(0, 2, 1)
        # (I - PQ)^-1 = I + P Q (I - PQ)^-1, whose new rows need old ones only.
        state.e[new] = p @ (state.q[old] @ state.e[old])
        for array in (state.r, state.x, state.k0, state.v1):
            array[:, :n, rows] = array[new].transpose(0, 2, 1)
        state.r[:, rows, rows], state.x[:, rows, rows] = own, block
        state.k0[:, rows, rows], state.v1[:, rows, rows] = pairs_among(state.phi, block)
        state.e[:, rows, rows] = np.eye(rows.stop - n)

    def file_down(self, rows: slice, equations: Backward, states: Array) -> None:
        """Store a minibatch's backward rows and what follows from them."""
        state = self.state
        n, every = rows.start, slice(None)
        old, new, here = (every, slice(n), slice(n)), (every, rows, slice(n)), (every, rows, rows)
        q, src, own, block = equations.unpack(states)
        cov, among = equations.covariances(every, states)
        noise, noise_here = equations.noises(every, cov, among)
        kick, kick_itself = equations.kicks(every, states)
        eye = np.arange(rows.start, rows.stop)
        state.q[new], state.s[new], state.d[new], state.noise[new] = q, src, cov, noise
        for array in (state.s, state.d, state.noise):
            array[:, :n, rows] = array[new].transpose(0, 2, 1)
        state.s[here], state.d[here], state.noise[here] = block, among, noise_here
        state.q[:, eye, eye], state.n[new] = own, kick
        state.n[:, eye, eye] = kick_itself
        # The same for (I - QP)^-1; the product Q P has no diagonal, as P is strictly causal.
        q_p = q @ state.p[old] + own[..., None] * state.p[new]
        state.h[new] = q_p @ state.h[old]
        state.h[:, eye, eye] = 1.0
        src_t = src.transpose(0, 2, 1)
        q_rows = state.q[:, rows, : rows.stop].transpose(0, 2, 1)
        state.k[:, : rows.stop, rows] = state.x[:, : rows.stop, : rows.stop] @ q_rows
        state.k[:, :n, rows] += equations.e_p_old @ src_t
        state.k[here] += equations.e_p_new @ src_t
