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
from fractions import Fraction

import numpy as np

from depthmup.limits.gaussian import Joint, pairs_among
from depthmup.limits.numerics.chebyshev import Mesh, graded, integrate
from depthmup.limits.numerics.memory import require_memory
from depthmup.limits.problem import Problem, require_infinite_depth
from depthmup.limits.solution import History, Solution, SolveStatus
from depthmup.limits.step import Array
from depthmup.limits.training import Method, require_finite, train, unresolved

# Smooth problems: one panel, more points. Singular at p = 0: more panels and more points.
_DEGREES = (16, 22, 30, 42, 60, 84)
_GRADED = ((3, 10), (5, 12), (7, 14), (9, 17), (11, 20))
# Newton doubles the digits each time, so that thirty rounds mean that it does not converge.
_MOST_EXPANSIONS = 30
_PART = 64  # held-out rows solved at a time
_UNSETTLED = SolveStatus(kind="unresolved", message="fixed-point iterations did not settle.")


def solve_nonlinear(problem: Problem, backward: type[Backward] | None = None) -> Solution:
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
        solution = train(Nonlinear(problem, mesh, backward))
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
    advice = "Pass a larger tol, or a smaller learning rate or multiplier."
    return unresolved(solution, f"{reason}; {len(mesh.points)} points", advice)


def _collinear(problem: Problem) -> bool:
    """Whether any two inputs (held-out ones included) are multiples of each other."""
    rows = problem.inputs
    sizes = np.linalg.norm(rows, axis=1)
    unit = rows[sizes > 0] / sizes[sizes > 0, None]
    gram = np.abs(unit @ unit.T)
    np.fill_diagonal(gram, 0.0)
    return bool((sizes == 0).any() or (gram**2 > 1 - 1e-6).any())


class Nonlinear(Method):
    """Training on one mesh of depth; ``tail`` estimates what its points leave out.

    Every function of p known so far, (points, N, N), has its letter: ``x``, ``d``, ``k`` are
    C = <x|x>, D = <d|d> and <x|d>, ``mh`` is Mh, ``e`` and ``h`` are (I-PQ)^-1 and (I-QP)^-1. In a
    pass, "old" are the earlier training vectors.
    """

    def __init__(
        self, problem: Problem, mesh: Mesh, backward: type[Backward] | None = None
    ) -> None:
        super().__init__(problem, mesh.points)
        self.mesh, self.phi, self.backward = mesh, problem.activation, backward or Backward
        self.tail = 0.0
        self.second = problem.branch.width_ratio * problem.second
        self.a = problem.branch.multiplier
        self.nu = 1.0 if problem.alpha == Fraction(1, 2) else 0.0
        shape = (len(mesh.points), problem.vectors, problem.vectors)
        # The fourteen stacks below.
        require_memory(112.0 * math.prod(shape), "Take fewer training vectors.")
        self.p, self.q, self.r, self.s = np.zeros((4, *shape))
        self.x, self.d, self.k = np.zeros((3, *shape))
        self.m, self.n, self.mh = np.zeros((3, *shape))
        self.k0, self.v1, self.noise = np.zeros((3, *shape))  # noise: covariance of phi'(h) d
        self.e, self.h = np.zeros((2, *shape))
        self.chi = np.zeros((problem.vectors, problem.d_out))
        self.xi = problem.inputs[: problem.vectors]
        self.pairs: Joint  # of the last minibatch with the vectors before it

    def up(self, t: int, rows: slice, inputs: Array) -> tuple[Array, Array]:
        n, batch = rows.start, rows.stop - rows.start
        p, r, square = self.rise(inputs[:batch], n, t)
        tops = [p[-1]]
        held_out = inputs[batch:]
        for first in range(0, len(held_out), _PART):
            tops.append(self.rise(held_out[first : first + _PART], n, t)[0][-1])
        outputs = np.concatenate(tops) @ self.chi[:n]
        require_finite(outputs, square)
        if batch:
            self.file_up(rows, p, r, t)
        return outputs, square

    def down(self, t: int, rows: slice, chi: Array) -> None:
        self.chi[rows] = chi
        equations = self.backward(self, rows, t)
        states = self.run(equations.derivative, equations.start, up=False)
        require_finite(states)
        self.file_down(rows, equations, states)

    def kernel(self) -> Array:
        return np.asarray(self.x[-1])

    def error(self) -> float:
        return self.tail * self.scale

    def history(self) -> History:
        rate = self.a**2 * self.nu
        return History(
            x=self.x,
            d=self.d,
            xd=self.k,
            p=self.p,
            q=self.q,
            m=self.m,
            n=self.n,
            fresh_x=rate * self.k0,
            fresh_d=rate * self.noise,
            inputs=self.xi,
            chi=self.chi,
        )

    def rise(self, inputs: Array, n: int, t: int) -> tuple[Array, Array, Array]:
        """Rows of P and R against the n old vectors, and |x|^2, for a minibatch and held-out."""
        w, second = self.problem.hidden[t, :n], self.second[t, :n]
        old = (slice(None), slice(n), slice(n))
        p_old, n_old, noise = self.p[old], self.n[old], self.noise[old]
        n_p, n_r, p_n_t = n_old @ p_old, n_old @ self.r[old], (p_old @ n_old).transpose(0, 2, 1)
        noise_p = noise @ p_old.transpose(0, 2, 1)
        h_q = self.h[old] @ self.q[old]
        k_t, e_t = self.k[old].transpose(0, 2, 1), self.e[old].transpose(0, 2, 1)
        variances = np.einsum("pii->pi", self.x[old])[:, None, :]
        a, rate, every = self.a, self.a**2 * self.nu, slice(None)

        def covariances(where: slice, s: Array) -> tuple[Array, Array]:
            p, r, own = s[..., :n], s[..., n : 2 * n], s[..., 2 * n]
            # C_rr = R_rr + 2 P_r H Q R_.r + P_r D P_r^T.
            square = own + (
                (p @ self.d[old][where] + 2 * r @ h_q[where].transpose(0, 2, 1)) * p
            ).sum(-1)
            return p @ k_t[where] + r @ e_t[where], square

        # Set where pairs cost a quadrature each: Picard's iterations then expand around these.
        near: tuple[Joint, Array, Array] | None = None

        def pairs(where: slice, square: Array, cov: Array) -> tuple[Array, Array]:
            """(k0, V1) of new vectors' h with old ones', each (depths, rows, n)."""
            if near is None:
                pair = self.phi.pair(square[..., None], cov, variances[where])
                return pair.k0, pair.v1
            pair, near_square, near_cov = near
            # Half of the variance's change: k11 and k31 are 2 dk0/dA and 2 dV1/dA.
            da, db = 0.5 * (square - near_square[where])[..., None], cov - near_cov[where]
            k0 = pair.k0[where] + pair.v1[where] * db + pair.k11[where] * da
            return k0, pair.v1[where] + pair.k2[where] * db + pair.k31[where] * da

        def derivative(where: slice, s: Array) -> Array:
            p, r = s[..., :n], s[..., n : 2 * n]
            cov, square = covariances(where, s)
            k0, v1 = pairs(where, square, cov)
            shift = a * self.nu * p @ self.h[old][where] - a * w * cov
            out = np.empty_like(s)
            out[..., :n] = a * (v1 * shift - a * second * k0) + p @ n_p[where]
            out[..., n : 2 * n] = rate * (k0 + p @ noise_p[where])
            out[..., n : 2 * n] += p @ n_r[where] + r @ p_n_t[where]
            own = rate * (p @ noise[where]) * p + 2 * (p @ n_old[where]) * r
            out[..., 2 * n] = rate * self.phi.single(square).variance + own.sum(-1)
            return out

        start = np.zeros((len(inputs), 2 * n + 1))
        start[:, n : 2 * n] = inputs @ self.xi[:n].T
        start[:, 2 * n] = (inputs**2).sum(1)
        if self.phi.sampled and n:
            # Newton: solve with expectations expanded around the last solution's covariances.
            cov, square = covariances(every, np.repeat(start[None], len(self.p), axis=0))
            for _ in range(_MOST_EXPANSIONS):
                pair = self.phi.pair(square[..., None], cov, variances)
                near = pair, square, cov
                states = self.run(derivative, start, up=True)
                before, (cov, square) = (cov, square), covariances(every, states)
                changes = np.abs(cov - before[0]), np.abs(square - before[1])
                if not max(c.max(initial=0.0) for c in changes) > 1e-13 * square.max(initial=0.0):
                    break
            else:
                self.status = _UNSETTLED
        else:
            states = self.run(derivative, start, up=True)
        _, square = covariances(every, states)
        return states[..., :n], states[..., n : 2 * n], square

    def run(self, derivative: Callable[[slice, Array], Array], start: Array, *, up: bool) -> Array:
        """Integrate through depth, keeping the account of what is unresolved."""
        states, settled = integrate(self.mesh, derivative, start, up=up)
        if not settled:
            self.status = _UNSETTLED
        size = float(np.abs(states).max(initial=0.0))
        if size > 0 and np.isfinite(size):
            for where, _ in self.mesh.panels:
                missing = self.mesh.rule.neglected(states[where][:, :, None])
                self.tail = max(self.tail, float(missing.max()) / size)
        return states

    def file_up(self, rows: slice, p: Array, r: Array, t: int) -> None:
        """Store a minibatch's forward rows, and solve for its covariances among itself."""
        n, a = rows.start, self.a
        w, second = self.problem.hidden[t, :n], self.second[t, :n]
        old, new = (slice(None), slice(n), slice(n)), (slice(None), rows, slice(n))
        h_q, rate = self.h[old] @ self.q[old], a**2 * self.nu
        mixed = (p @ h_q) @ r.transpose(0, 2, 1)
        drawn = p @ self.d[old] @ p.transpose(0, 2, 1) + mixed + mixed.transpose(0, 2, 1)
        driven = p @ self.n[old] @ r.transpose(0, 2, 1)
        driven = driven + driven.transpose(0, 2, 1)
        driven += rate * p @ self.noise[old] @ p.transpose(0, 2, 1)

        def derivative(where: slice, s: Array) -> Array:
            return rate * pairs_among(self.phi, s + drawn[where])[0] + driven[where]

        own = self.run(derivative, self.xi[rows] @ self.xi[rows].T, up=True)
        block = own + drawn
        cov = p @ self.k[old].transpose(0, 2, 1) + r @ self.e[old].transpose(0, 2, 1)
        square = np.einsum("pbb->pb", block)
        variances = np.einsum("pii->pi", self.x[old])[:, None, :]
        self.pairs = self.phi.pair(square[..., None], cov, variances)
        self.p[new], self.r[new], self.x[new] = p, r, cov
        self.k0[new], self.v1[new] = self.pairs.k0, self.pairs.v1
        self.mh[new] = a * self.nu * p @ self.h[old] - a * w * cov
        self.m[new] = a * (self.v1[new] * self.mh[new] - a * second * self.k0[new])
        self.k[new] = p @ self.d[old] + r @ h_q.transpose(0, 2, 1)
        # (I - PQ)^-1 = I + P Q (I - PQ)^-1, whose new rows need old ones only.
        self.e[new] = p @ (self.q[old] @ self.e[old])
        for array in (self.r, self.x, self.k0, self.v1):
            array[:, :n, rows] = array[new].transpose(0, 2, 1)
        self.r[:, rows, rows], self.x[:, rows, rows] = own, block
        self.k0[:, rows, rows], self.v1[:, rows, rows] = pairs_among(self.phi, block)
        self.e[:, rows, rows] = np.eye(rows.stop - n)

    def file_down(self, rows: slice, equations: Backward, states: Array) -> None:
        """Store a minibatch's backward rows and what follows from them."""
        n, every = rows.start, slice(None)
        old, new, here = (every, slice(n), slice(n)), (every, rows, slice(n)), (every, rows, rows)
        q, src, own, block = equations.unpack(states)
        cov, among = equations.covariances(every, states)
        noise, noise_here = equations.noises(every, cov, among)
        kick, kick_itself = equations.kicks(every, states, cov)
        eye = np.arange(rows.start, rows.stop)
        self.q[new], self.s[new], self.d[new], self.noise[new] = q, src, cov, noise
        for array in (self.s, self.d, self.noise):
            array[:, :n, rows] = array[new].transpose(0, 2, 1)
        self.s[here], self.d[here], self.noise[here] = block, among, noise_here
        self.q[:, eye, eye], self.n[new] = own, kick
        self.n[:, eye, eye] = kick_itself
        # The same for (I - QP)^-1; the product Q P has no diagonal, as P is strictly causal.
        q_p = q @ self.p[old] + own[..., None] * self.p[new]
        self.h[new] = q_p @ self.h[old]
        self.h[:, eye, eye] = 1.0
        src_t = src.transpose(0, 2, 1)
        q_rows = self.q[:, rows, : rows.stop].transpose(0, 2, 1)
        self.k[:, : rows.stop, rows] = self.x[:, : rows.stop, : rows.stop] @ q_rows
        self.k[:, :n, rows] += equations.e_p_old @ src_t
        self.k[here] += equations.e_p_new @ src_t


class Backward:
    """The backward equations of a minibatch of B vectors: rows of Q and S, integrated down.

    A state (points, B, 2n + 1 + B) holds, side by side, q and s against the old vectors, q of
    every new vector with itself, and s within the minibatch.
    """

    def __init__(self, network: Nonlinear, rows: slice, t: int) -> None:
        n, end = rows.start, rows.stop
        self.network, self.n = network, n
        self.w, self.second = network.problem.hidden[t, :n], network.second[t, :n]
        self.rate = network.a**2 * network.nu
        old, new = (slice(None), slice(n), slice(n)), (slice(None), rows, slice(n))
        self.old, self.new, self.here = old, new, (slice(None), rows, rows)
        self.q_old, self.s_old, self.m_old = network.q[old], network.s[old], network.m[old]
        self.k0_old, self.q_t = network.k0[old], self.q_old.transpose(0, 2, 1)
        self.q_m_t = (self.q_old @ self.m_old).transpose(0, 2, 1)
        self.h_t = network.h[old].transpose(0, 2, 1)
        e_p = network.e[:, :end, :end] @ network.p[:, :end, :end]
        self.e_p_old, self.e_p_new = e_p[:, :n, :n], e_p[:, n:, :n]
        self.mh, self.v1 = network.mh[new], network.v1[new]
        self.single = network.phi.single(np.einsum("pbb->pb", network.x[self.here]))
        self.slope = self.v1
        chi = network.chi
        self.start = np.zeros((end - n, 2 * n + 1 + end - n))
        self.start[:, n : 2 * n] = chi[rows] @ chi[:n].T
        self.start[:, 2 * n + 1 :] = chi[rows] @ chi[rows].T

    def unpack(self, s: Array) -> tuple[Array, Array, Array, Array]:
        """q, s, q of every vector with itself, and s within the minibatch."""
        n = self.n
        return s[..., :n], s[..., n : 2 * n], s[..., 2 * n], s[..., 2 * n + 1 :]

    def covariances(self, where: slice, s: Array) -> tuple[Array, Array]:
        """<d|d> of the new rows against old ones and among themselves."""
        k, x, old, new, here = self.network.k, self.network.x, self.old, self.new, self.here
        q, src, own, block = self.unpack(s)
        # D_ro = Q_r K_.o + S_ro H^T, where Q_r is q and, for r itself, own.
        cov = q @ k[old][where] + own[..., None] * k[new][where] + src @ self.h_t[where]
        q_x = q @ x[old][where] + own[..., None] * x[new][where]
        q_x_here = q @ x[new][where].transpose(0, 2, 1) + own[..., None] * x[here][where]
        q_e_p = q @ self.e_p_old[where] + own[..., None] * self.e_p_new[where]
        mixed = q_e_p @ src.transpose(0, 2, 1)
        # D_rr' = Q_r C Q_r'^T + S_rr' and both mixed terms Q_r (E P) S.
        among = q_x @ q.transpose(0, 2, 1) + q_x_here * own[:, None, :] + block
        return cov, among + mixed + mixed.transpose(0, 2, 1)

    def noises(self, where: slice, cov: Array, among: Array) -> tuple[Array, Array]:
        """Covariance of phi'(h) d with old rows, and among new ones, from those of d."""
        return self.v1[where] * cov, self.network.v1[self.here][where] * among

    def kicks(self, where: slice, s: Array, cov: Array) -> tuple[Array, Array]:
        """n against old vectors, and of every new vector with itself."""
        network, a, nu = self.network, self.network.a, self.network.nu
        q, _, own, _ = self.unpack(s)
        e_old, e_new = network.e[self.old][where], network.e[self.new][where]
        # G10 = a nu Q (I - PQ)^-1, then what the second matrix's updates add to it.
        g10 = a * nu * (q @ e_old + own[..., None] * e_new)
        g10 = g10 - a * self.second * cov
        kick = a * (self.slope[where] * g10 - self.v1[where] * a * self.w * cov)
        bent, itself = self.curvature(where, g10, cov, own)
        return kick + bent, itself

    def curvature(self, where: slice, g10: Array, cov: Array, own: Array) -> tuple[Array, Array]:
        """What phi'' adds to n against old vectors, and n of every vector with itself."""
        network = self.network
        pairs, shift = network.pairs, self.mh[where] * cov
        to_itself = (pairs.k11[where] * g10 + pairs.k31[where] * shift).sum(-1)
        to_itself = to_itself + self.single.vp[where] * network.a * network.nu * own
        return network.a * pairs.k2[where] * shift, network.a * to_itself

    def derivative(self, where: slice, s: Array) -> Array:
        """-s' at some points in depth."""
        m, k0, n, rate = self.network.m, self.network.k0, self.n, self.rate
        q, src, own, _ = self.unpack(s)
        cov, among = self.covariances(where, s)
        noise, noise_here = self.noises(where, cov, among)
        kick, kick_itself = self.kicks(where, s, cov)
        column = own[..., None]
        q_m = q @ self.m_old[where] + column * m[self.new][where]
        q_k = q @ self.k0_old[where] + column * k0[self.new][where]
        q_k_here = q @ k0[self.new][where].transpose(0, 2, 1) + column * k0[self.here][where]
        mixed = q_m @ src.transpose(0, 2, 1)
        out = np.empty_like(s)
        out[..., :n] = kick + q_m @ self.q_old[where]
        out[..., n : 2 * n] = (
            rate * (noise + q_k @ self.q_t[where])
            + q_m @ self.s_old[where]
            + src @ self.q_m_t[where]
        )
        # Q m Q has no diagonal, as m is strictly causal: q of r with itself moves by n_rr alone.
        out[..., 2 * n] = kick_itself
        out[..., 2 * n + 1 :] = (
            rate * (noise_here + q_k @ q.transpose(0, 2, 1) + q_k_here * own[:, None, :])
            + mixed
            + mixed.transpose(0, 2, 1)
        )
        return out
