"""Nonlinear networks with two matrices per block, at finite depth: one neuron per block, averaged.

``x^l = x^{l-1} + c W2 phi(W1 x^{l-1})``. The nonlinearity acts on hidden neurons only, so that the
stream x and its gradient d stay Gaussian at every depth, and the imbedding's P, Q, R, S close them.
All that is left of a block is one neuron: with the Gaussian images u of W1_0 x and v of W2_0^T d,

    h_r = u_r + sum_{s<r}  Rh_rs e_s          Rh = G01 - k1 w1 * C^{l-1}
    g_r = v_r + sum_{s<=r} Sh_rs phi(h_s)     Sh = G10 / rho - k2 w2 * D^l      (s = r: G10 / rho)
    e_r = phi'(h_r) g_r

    x^l     = x^{l-1} + c F + M d^l           M = c (A - k2 rho w2 * Phi)
    d^{l-1} = d^l     + c B + N x^{l-1}       N = c rho (Bh - k1 w1 * Psi)

with <u|u> = C, <v|v> = D / rho, <F|F> = Phi = E phi phi, <B|B> = rho Psi, Psi = E e e, and the
responses A = E dphi(h_r)/dv_s (s < r) and Bh = E de_r/du_s (s <= r, s = r only within a step).
Every average is over 2N Gaussians, by points. The responses are by Stein's lemma,
``E de_r/du = E[e_r z_u] / chol(C)``, which needs no phi'': for relu that is a delta function, which
counts. What the lemma makes of a neuron without responses, ``phi(u)`` and ``phi'(u) v``, is exactly
zero; it is subtracted, and with it most of the noise.

Decay leaves the part s_t of an initial matrix: then C, D, G01, G10, A, Bh and the noises carry
s_r s_s. RMSNorm before the block divides x_r by |x_r|: C, G01 and N carry 1 / (|x_r| |x_s|), and
N_rr gets the projection ``- c rho E[e_r h_r] / |x_r|^2``.

*Source:* derived here by Gaussian conditioning; not proved. See docs/studies/limits.md.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from depthmup.limits.averages import Neurons
from depthmup.limits.numerics.factors import appended, stein, stein_within
from depthmup.limits.numerics.memory import require_memory
from depthmup.limits.problem import Problem
from depthmup.limits.solution import History, Solution
from depthmup.limits.step import Array
from depthmup.limits.training import Sampled, combined, require_finite, train


def solve_blocks(problem: Problem, neurons: Neurons) -> Solution:
    """Train once per sample of neurons; the value is their mean and the error their spread."""
    fields = problem.vectors + (problem.held_out is not None) + problem.remembered
    solutions = [train(Blocks(problem, *sample)) for sample in neurons.samples(fields)]
    return combined(solutions, neurons, "Pass neurons with more points, or a larger tol.")


class Blocks(Sampled):
    """One network: P, Q, R, S at every depth, and the sampled neurons of every block.

    ``u`` and ``v`` (vectors, points) are the standard Gaussians behind every block's fields,
    ``phi`` and ``e`` (L, vectors, points) its neurons. Stacks (L + 1, N, N) are per depth,
    (L, N, N) per block; index i of the latter is block i + 1, between depths i and i + 1.
    """

    def __init__(
        self,
        problem: Problem,
        points: Float[Array, "count fields"],
        weights: Float[Array, " count"],
    ) -> None:
        super().__init__(problem)
        self.weights = weights
        depth, vectors, updated = self.depth, self.vectors, self.updated
        # phi and e: two doubles per block, vector and point.
        require_memory(
            16.0 * depth * updated * len(points),
            "Pass neurons with fewer points, fewer training vectors, or a smaller depth.",
        )
        # Earlier vectors matter more: they get the leading, most even dimensions.
        order = np.argsort([*range(vectors), *(i + 0.5 for i in range(updated))])
        fields = np.empty((vectors + updated, len(points)))
        fields[order] = points.T
        self.u, self.v = fields[:vectors], fields[vectors:]
        self.phi, self.e = np.zeros((2, depth, updated, len(points)))
        per_depth, per_block = (depth + 1, vectors, vectors), (depth, vectors, vectors)
        self.p, self.q, self.r, self.s = np.zeros((4, *per_depth))
        self.cov, self.cov_d = np.zeros((2, *per_depth))
        self.m, self.n, self.noise_x, self.noise_d = np.zeros((4, *per_block))
        self.lower_u, self.lower_v = np.zeros((2, *per_block))
        self.chi = np.zeros((vectors, problem.d_out))
        self.xi = np.zeros((vectors, problem.d_in))
        sizes = [len(step.inputs) for step in problem.steps]
        self.times = np.repeat(np.arange(len(sizes)), sizes)

    def kernel(self) -> Array:
        return np.asarray(self.cov[-1])

    def begin(self, t: int, n: int, size: int) -> None:
        """Set out on a pass of the new vectors n to size - 1."""
        self.old, self.new, self.every = slice(n), slice(n, size), slice(size)
        # The entries of new vectors against themselves, in rows of (new, every).
        self.own = np.arange(size - n), np.arange(n, size)
        # How far updates moved W1 and W2, and what decay left of both at every vector's time.
        self.first = self.kick * self.problem.hidden[t, :n]
        self.second = self.kick * self.problem.second[t, :n]
        at = np.append(self.times[:n], np.full(size - n, t))
        self.left, self.left_second = self.problem.remains[at], self.problem.second_remains[at]

    def pass_up(self, t: int, n: int, inputs: Array) -> tuple[Array, Array]:
        self.begin(t, n, n + len(inputs))
        old, new, every = self.old, self.new, self.every
        self.xi[new] = inputs
        # New vectors act on nothing before their way back: with zeros in their rows of Q and S,
        # every product below can be taken of whole leading blocks.
        for stack in (self.q, self.s, self.n, self.noise_d):
            stack[:, new, every] = stack[:, every, new] = 0.0
        self.p[0, new, old] = -self.problem.input[t, :n] * (inputs @ self.xi[old].T)
        self.r[0, new, every] = inputs @ self.xi[every].T
        self.r[0, every, new] = self.r[0, new, every].T
        shape = (self.depth, len(inputs), self.u.shape[1])
        self.new_u, self.new_h, self.new_phi = (np.empty(shape) for _ in range(3))
        for i in range(self.depth):
            self.block_up(i)
        back = self.covariance(self.depth)
        read = self.problem.readout[t, :n] * self.cov[-1, new, old]
        outputs = (back[new, old] - read) @ self.chi[old]
        return outputs, np.einsum("lbb->lb", self.cov[:, new, new])

    def block_up(self, i: int) -> None:
        """New vectors through block i: their neurons, and rows of M, P and R."""
        old, new, every = self.old, self.new, self.every
        back = self.covariance(i)
        cov = self.cov[i, every, every]
        size_x = self.sizes(cov)
        scale = self.left / size_x
        self.lower_u[i, every, every] = appended(
            self.lower_u[i, old, old], cov * np.outer(scale, scale)
        )
        field = self.feedback(back[new, old]) * np.outer(scale[new], scale[old])
        field -= self.first * cov[new, old] / np.outer(size_x[new], size_x[old])
        self.new_u[i] = self.lower_u[i, new, every] @ self.u[every]
        self.new_h[i] = self.new_u[i] + field @ self.e[i, old]
        self.new_phi[i] = phi = self.activation.function(self.new_h[i])
        weighted = phi * self.weights
        moment = np.concatenate([weighted @ self.phi[i, old].T, weighted @ phi.T], axis=1)
        left = self.left_second
        response = self.response_of_phi(i, field) * np.outer(left[new], left[old])
        second = self.problem.branch.width_ratio * self.second
        self.m[i, new, old] = self.c * (response - second * moment[:, old])
        noise = self.c**2 * moment * np.outer(left[new], left)
        self.noise_x[i, new, every], self.noise_x[i, every, new] = noise, noise.T
        self.through(i)

    def response_of_phi(self, i: int, field: Array) -> Array:
        """E dphi(h_r)/dv_s of new vectors to old ones, (rows, n), by Stein's lemma."""
        # E[phi(u) z_v] is zero exactly: subtracting it leaves its noise out.
        excess = self.new_phi[i] - self.activation.function(self.new_u[i])
        moments = (excess * self.weights) @ self.v[self.old].T
        return stein(moments, self.lower_v[i, self.old, self.old])

    def feedback(self, matrix: Array) -> Array:
        """What one block makes of P (I - QP)^-1 and Q (I - PQ)^-1: G01 and G10."""
        return self.c * matrix

    def covariance(self, i: int) -> Array:
        """File <x|x> at depth i; returns P (I - QP)^-1 there."""
        every, eye = (i, self.every, self.every), np.eye(self.every.stop)
        p, q = self.p[every], self.q[every]
        forward = np.linalg.inv(eye - p @ q)
        self.cov[every] = forward @ (self.r[every] + p @ self.s[every] @ p.T) @ forward.T
        # (I - PQ)^-1 P is P (I - QP)^-1.
        return forward @ p

    def through(self, i: int) -> None:
        """New rows of P and R, from below block i to above it."""
        every, new = (i, self.every, self.every), self.new
        p, eye = self.p[every], np.eye(self.every.stop)
        carry = np.linalg.inv(eye - p @ self.n[every])
        above = self.m[every] + carry @ p
        sources = carry @ (self.r[every] + p @ self.noise_d[every] @ p.T) @ carry.T
        sources += self.noise_x[every]
        self.p[i + 1, new, self.every] = above[new]
        self.r[i + 1, new, self.every] = sources[new]
        self.r[i + 1, self.every, new] = sources[:, new]

    def sizes(self, cov: Array) -> Array:
        """What x is divided by before the block."""
        return np.sqrt(np.diag(cov)) if self.problem.branch.rms_norm else np.ones(len(cov))

    def down(self, t: int, rows: slice, chi: Array) -> None:
        """The backward pass of a step's vectors: their rows of Q and S, and their neurons' e."""
        self.chi[rows] = chi
        self.begin(t, rows.start, rows.stop)
        old, new, every = self.old, self.new, self.every
        chi, readout = self.chi, self.problem.readout[t, old]
        self.q[-1, new, old] = -readout * (chi[new] @ chi[old].T)
        self.s[-1, new, every] = chi[new] @ chi[every].T
        self.s[-1, every, new] = self.s[-1, new, every].T
        for i in range(self.depth - 1, -1, -1):
            self.block_down(i)
        require_finite(self.q[:, new], self.e[:, new])

    def block_down(self, i: int) -> None:
        """New vectors back through block i: their neurons, and rows of N, Q and S."""
        old, new, every, ratio = self.old, self.new, self.every, self.problem.branch.width_ratio
        above, own = (i + 1, every, every), self.own
        left, left_second = self.left, self.left_second
        p, q = self.p[above], self.q[above]
        back = np.linalg.inv(np.eye(self.every.stop) - q @ p)
        cov = self.cov_d[above] = back @ (self.s[above] + q @ self.r[above] @ q.T) @ back.T
        self.lower_v[i, every, every] = appended(
            self.lower_v[i, old, old], cov * np.outer(left_second, left_second) / ratio
        )
        field = self.feedback((back @ q)[new]) * np.outer(left_second[new], left_second) / ratio
        field[:, old] -= self.second * cov[new, old]
        v = self.lower_v[i, new, every] @ self.v[every]
        h, phi = self.new_h[i], self.new_phi[i]
        g = v + field[:, old] @ self.phi[i, old] + field[own][:, None] * phi
        e = self.activation.slope(h) * g
        self.phi[i, new], self.e[i, new] = phi, e
        moment = (e * self.weights) @ self.e[i, every].T
        size_x = self.sizes(self.cov[i, every, every])
        scale = left / size_x
        kick = self.response_of_e(i, field, v) * np.outer(scale[new], scale)
        kick[:, old] -= self.first * moment[:, old] / np.outer(size_x[new], size_x[old])
        if self.problem.branch.rms_norm:
            kick[own] -= (e * h) @ self.weights / size_x[new] ** 2
        self.n[i, new, every] = self.c * ratio * kick
        noise = self.c**2 * ratio * moment * np.outer(scale[new], scale)
        self.noise_d[i, new, every], self.noise_d[i, every, new] = noise, noise.T
        self.back_through(i)

    def response_of_e(self, i: int, field: Array, v: Array) -> Array:
        """E de_r/du_s of new vectors to all, (rows, size), by Stein's lemma."""
        # E[phi'(u) v z_u] is zero exactly: subtracting it leaves its noise out.
        excess = self.e[i, self.new] - self.activation.slope(self.new_u[i]) * v
        moments = (excess * self.weights) @ self.u[self.every].T
        return stein_within(moments, self.lower_u[i, self.every, self.every])

    def back_through(self, i: int) -> None:
        """New rows of Q and S, from above block i to below it."""
        new, every = self.new, self.every
        above, below = (i + 1, every, every), (i, every, every)
        q = self.q[above]
        carry = np.linalg.inv(np.eye(self.every.stop) - q @ self.m[below])
        sources = carry @ (self.s[above] + q @ self.noise_x[below] @ q.T) @ carry.T
        sources += self.noise_d[below]
        self.q[i, new, every] = (self.n[below] + carry @ q)[new]
        self.s[i, new, every] = sources[new]
        self.s[i, every, new] = sources[:, new]

    def history(self) -> History:
        n = self.problem.vectors
        old = (slice(None), slice(n), slice(n))
        p, q, r, s = (stack[old] for stack in (self.p, self.q, self.r, self.s))
        q_t, rate, last = q.transpose(0, 2, 1), float(self.depth), np.zeros((1, n, n))
        back = np.linalg.inv(np.eye(n) - q @ p)
        back_t = back.transpose(0, 2, 1)
        return History(
            x=self.cov[old],
            d=back @ (s + q @ r @ q_t) @ back_t,
            xd=np.linalg.inv(np.eye(n) - p @ q) @ (r @ q_t + p @ s) @ back_t,
            p=p,
            q=q,
            m=self.m[old],
            n=self.n[old],
            fresh_x=rate * np.concatenate([self.noise_x[old], last]),
            fresh_d=rate * np.concatenate([last, self.noise_d[old]]),
            inputs=self.xi[:n],
            chi=self.chi[:n],
        )
