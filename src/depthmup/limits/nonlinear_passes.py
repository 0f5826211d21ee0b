"""The passes of a nonlinear network of infinite depth: rows of P and R up, of Q and S down.

The equations and their letters stand at the head of ``nonlinear``. The names here: ``p``, ``q``,
``r``, ``s``, ``m``, ``n`` as there; ``x``, ``d``, ``k`` are C = <x|x>, D = <d|d> and <x|d>; ``mh``
is Mh; ``e``, ``h`` are (I-PQ)^-1, (I-QP)^-1. In a sweep, "old" are the earlier training vectors.

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
from fractions import Fraction

import numpy as np

from depthmup.limits.gaussian import Activation, Expansion, Pair
from depthmup.limits.losses import Array
from depthmup.limits.mesh import Mesh, integrate
from depthmup.limits.nonlinear_backward import Backward, pairs_among
from depthmup.limits.problem import Problem
from depthmup.limits.solution import History, Ledger, Solution, Status, exploded

# Newton doubles the digits each time, so that thirty rounds mean that it does not converge.
_MOST_EXPANSIONS = 30
_PART = 64  # held-out rows solved at a time


class Training:
    """The state of one solve: every function of p known so far, (points, N, N)."""

    def __init__(
        self,
        todo: Problem,
        phi: Activation,
        mesh: Mesh,
        *,
        printed: bool = False,
        second: Array | None = None,
    ) -> None:
        self.todo, self.phi, self.mesh, self.printed = todo, phi, mesh, printed
        self.second = np.zeros_like(todo.hidden) if second is None else second
        self.a = todo.scaling.multiplier
        self.nu = 1.0 if todo.scaling.alpha == Fraction(1, 2) else 0.0
        shape = (len(mesh.points), todo.vectors, todo.vectors)
        self.p, self.q, self.r, self.s = np.zeros((4, *shape))
        self.x, self.d, self.k = np.zeros((3, *shape))  # <x|x>, <d|d>, <x|d>
        self.m, self.n, self.mh = np.zeros((3, *shape))
        self.k0, self.v1, self.noise = np.zeros((3, *shape))  # noise: covariance of phi'(h) d
        self.e, self.h = np.zeros((2, *shape))  # (I - PQ)^-1, (I - QP)^-1
        self.chi = np.zeros((todo.vectors, todo.d_out))
        self.xi = np.concatenate([step.inputs for step in todo.steps])
        self.pairs: Pair
        self.tail, self.settled = 0.0, True

    def solve(self, history: bool) -> Solution:
        todo, ledger = self.todo, Ledger(problem=self.todo, positions=self.mesh.points)
        status = Status()
        updates = len(todo.steps) - (todo.held_out is None and not history)
        with np.errstate(all="ignore"):
            for t, rows, inputs in todo.queries():
                n, batch = rows.start, rows.stop - rows.start
                p, r, square = self.up(inputs[:batch], n, t)
                tops = [p[-1]]
                for part in np.split(inputs[batch:], range(_PART, len(inputs) - batch, _PART)):
                    tops.append(self.up(part, n, t)[0][-1])
                outputs = np.concatenate(tops) @ self.chi[:n]
                if not (np.isfinite(outputs).all() and np.isfinite(square).all()):
                    status = exploded(t, todo, math.inf)
                    break
                f = ledger.query(t, batch, outputs, square)
                if t == len(todo.steps):
                    break
                self.file_up(rows, p, r, t)
                if t >= updates:
                    break
                self.chi[rows] = todo.steps[t].gradient(f)
                if not self.down(rows, t):
                    status = exploded(t, todo, math.inf)
                    break
        if status.ok and not self.settled:
            status = Status(kind="unresolved", message="fixed-point iterations did not settle.")
        done = sum(len(f) for f in ledger.outputs)
        largest = max((float(np.abs(f).max()) for f in ledger.outputs), default=0.0)
        record = None
        if history and status.ok:
            record = History(
                x=self.x,
                d=self.d,
                xd=self.k,
                p=self.p,
                q=self.q,
                m=self.m,
                n=self.n,
                fresh_x=self.a**2 * self.nu * self.k0,
                fresh_d=self.a**2 * self.nu * self.noise,
                inputs=self.xi,
                chi=self.chi,
            )
        return ledger.close(
            kernel=self.x[-1, :done, :done].copy(),
            status=status,
            error_estimate=self.tail * max(1.0, largest),
            activation=self.phi.name,
            history=record,
        )

    def up(self, inputs: Array, n: int, t: int) -> tuple[Array, Array, Array]:
        """Rows of P and R against the n old vectors, and |x|^2, for a minibatch and held-out.

        Args:
            inputs: of the new vectors, (rows, d_in).
            n: how many old vectors there are.
            t: number of the step.

        Returns:
            P and R (points, rows, n) and |x|^2 (points, rows).
        """
        w, second = self.todo.hidden[t, :n], self.second[t, :n]
        old = (slice(None), slice(n), slice(n))
        p_old, n_old, noise = self.p[old], self.n[old], self.noise[old]
        n_p, n_r, p_n_t = n_old @ p_old, n_old @ self.r[old], (p_old @ n_old).transpose(0, 2, 1)
        noise_p = noise @ p_old.transpose(0, 2, 1)
        h_q = self.h[old] @ self.q[old]
        k_t, e_t = self.k[old].transpose(0, 2, 1), self.e[old].transpose(0, 2, 1)
        known = np.einsum("pii->pi", self.x[old])[:, None, :]
        a, rate, every = self.a, self.a**2 * self.nu, slice(None)

        def covariances(where: slice, s: Array) -> tuple[Array, Array]:
            p, r, own = s[..., :n], s[..., n : 2 * n], s[..., 2 * n]
            # C_rr = R_rr + 2 P_r H Q R_.r + P_r D P_r^T.
            square = own + (
                (p @ self.d[old][where] + 2 * r @ h_q[where].transpose(0, 2, 1)) * p
            ).sum(-1)
            return p @ k_t[where] + r @ e_t[where], square

        # Set where pairs cost a quadrature each: Picard's iterations then ask for none.
        near: Expansion | None = None

        def pairs(where: slice, square: Array, cov: Array) -> tuple[Array, Array]:
            """(k0, V1) of new vectors' h with old ones', each (depths, rows, n).

            Args:
                where: the points in depth.
                square: variances of the new ones there, (depths, rows).
                cov: covariances of the new with the old there, (depths, rows, n).
            """
            if near is not None:
                return near.at(square[..., None], cov, where)
            pair = self.phi.pair(square[..., None], cov, known[where])
            return pair.k0, pair.v1

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
                pair = self.phi.pair(square[..., None], cov, known)
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
        """Integrate through depth, keeping the account of what is unresolved.

        Args:
            derivative: of the state by depth, from a slice of layers and the state there.
            start: the state where integration begins.
            up: from the input to the output, or back.
        """
        states, settled = integrate(self.mesh, derivative, start, up=up)
        self.settled = self.settled and settled
        size = float(np.abs(states).max(initial=0.0))
        if size > 0 and np.isfinite(size):
            for where, _ in self.mesh.panels:
                missing = self.mesh.rule.neglected(states[where][:, :, None])
                self.tail = max(self.tail, float(missing.max()) / size)
        return states

    def file_up(self, rows: slice, p: Array, r: Array, t: int) -> None:
        """Store a minibatch's forward rows, and solve for its covariances among itself.

        Args:
            rows: numbers of the minibatch's vectors.
            p: rows of P against old vectors.
            r: rows of R.
            t: number of the step.
        """
        n, a = rows.start, self.a
        w, second = self.todo.hidden[t, :n], self.second[t, :n]
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
        known = np.einsum("pii->pi", self.x[old])[:, None, :]
        self.pairs = self.phi.pair(square[..., None], cov, known)
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

    def down(self, rows: slice, t: int) -> bool:
        """The backward rows of a minibatch; False where they overflow.

        Args:
            rows: numbers of the minibatch's vectors.
            t: number of the step.
        """
        equations = Backward(self, rows, t)
        states = self.run(equations.derivative, equations.start, up=False)
        if not np.isfinite(states).all():
            return False
        self.file_down(rows, equations, states)
        return True

    def file_down(self, rows: slice, equations: Backward, states: Array) -> None:
        """Store a minibatch's backward rows and what follows from them.

        Args:
            rows: numbers of the minibatch's vectors.
            equations: what was solved.
            states: the solution at every point.
        """
        n, every = rows.start, slice(None)
        old, new, here = (every, slice(n), slice(n)), (every, rows, slice(n)), (every, rows, rows)
        q, src, own, block = equations.unpack(states)
        cov, among = equations.covariances(every, states)
        noise, noise_here = equations.noises(every, cov, among)
        kick, kick_itself = equations.kicks(every, states)
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
