"""The backward equations of one minibatch in a nonlinear network of infinite depth.

Rows of Q and S, integrated from the last layer down. The equations and their letters stand at the
head of ``nonlinear``.
"""

from __future__ import annotations

import numpy as np

from depthmup.limits.methods.nonlinear_state import State
from depthmup.limits.step import Array


class Backward:
    """What integrates a minibatch of B vectors down, beside n old vectors that are known.

    A state (points, B, 2n + 1 + B) holds, side by side, q and s against the old vectors, q of
    every new vector with itself (x_r feeds its own backward pass), and s within the minibatch.
    """

    def __init__(self, state: State, rows: slice, t: int) -> None:
        n, end = rows.start, rows.stop
        self.state, self.n = state, n
        self.w, self.second = state.problem.hidden[t, :n], state.second[t, :n]
        self.rate = state.a**2 * state.nu
        old, new = (slice(None), slice(n), slice(n)), (slice(None), rows, slice(n))
        self.old, self.new, self.here = old, new, (slice(None), rows, rows)
        self.q_old, self.s_old, self.m_old = state.q[old], state.s[old], state.m[old]
        self.k0_old, self.q_t = state.k0[old], self.q_old.transpose(0, 2, 1)
        self.q_m_t = (self.q_old @ self.m_old).transpose(0, 2, 1)
        self.h_t = state.h[old].transpose(0, 2, 1)
        e_p = state.e[:, :end, :end] @ state.p[:, :end, :end]
        self.e_p_old, self.e_p_new = e_p[:, :n, :n], e_p[:, n:, :n]
        self.mh, self.v1 = state.mh[new], state.v1[new]
        self.single = state.phi.single(np.einsum("pbb->pb", state.x[self.here]))
        self.slope = self.v1
        chi = state.chi
        self.start = np.zeros((end - n, 2 * n + 1 + end - n))
        self.start[:, n : 2 * n] = chi[rows] @ chi[:n].T
        self.start[:, 2 * n + 1 :] = chi[rows] @ chi[rows].T

    def unpack(self, s: Array) -> tuple[Array, Array, Array, Array]:
        """q, s, q of every vector with itself, and s within the minibatch."""
        n = self.n
        return s[..., :n], s[..., n : 2 * n], s[..., 2 * n], s[..., 2 * n + 1 :]

    def covariances(self, where: slice, s: Array) -> tuple[Array, Array]:
        """<d|d> of the new rows against old ones and among themselves."""
        k, x, old, new, here = self.state.k, self.state.x, self.old, self.new, self.here
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
        return self.v1[where] * cov, self.state.v1[self.here][where] * among

    def kicks(self, where: slice, s: Array) -> tuple[Array, Array]:
        """n against old vectors, and of every new vector with itself."""
        state, a, nu = self.state, self.state.a, self.state.nu
        q, _, own, _ = self.unpack(s)
        cov, _ = self.covariances(where, s)
        e_old, e_new = state.e[self.old][where], state.e[self.new][where]
        # G10 = a nu Q (I - PQ)^-1, then what the second matrix's updates add to it.
        g10 = a * nu * (q @ e_old + own[..., None] * e_new)
        g10 = g10 - a * self.second * cov
        kick = a * (self.slope[where] * g10 - self.v1[where] * a * self.w * cov)
        bent, itself = self.curvature(where, g10, cov, own)
        return kick + bent, itself

    def curvature(self, where: slice, g10: Array, cov: Array, own: Array) -> tuple[Array, Array]:
        """What phi'' adds to n against old vectors, and n of every vector with itself."""
        state = self.state
        pairs, shift = state.pairs, self.mh[where] * cov
        to_itself = (pairs.k11[where] * g10 + pairs.k31[where] * shift).sum(-1)
        to_itself = to_itself + self.single.vp[where] * state.a * state.nu * own
        return state.a * pairs.k2[where] * shift, state.a * to_itself

    def derivative(self, where: slice, s: Array) -> Array:
        """-s' at some points in depth."""
        m, k0, n, rate = self.state.m, self.state.k0, self.n, self.rate
        q, src, own, _ = self.unpack(s)
        cov, among = self.covariances(where, s)
        noise, noise_here = self.noises(where, cov, among)
        kick, kick_itself = self.kicks(where, s)
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
