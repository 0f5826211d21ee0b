"""Finite depth where the residual stream is not Gaussian: the law of one entry, by particles.

Two things make an entry of x or d a nonlinear function of Gaussians: a single matrix per block,
whose phi(h) enters the stream itself, and updates that take the sign of every entry. Then one
carries the entry's law: particles, each with its own entries of U and V and its own Gaussians for
every block and training vector. Training stays explicit in time. With q the entry's function in an
update (the identity for SGD, the sign for signSGD) and averages E over particles, one matrix gives

    h_t       = F_t + sum_s G01_ts e_s - k sum_s w_ts q(e_s) E[q(x_s) x_t]       <F|F> = <x|x>
    x_t^l     = x_t^{l-1} + c (phi(h_t) - E phi(h_t))          e_t = phi'(h_t) d_t^l
    d_t^{l-1} = d_t^l + c (B_t + sum_{s<=t} G10_ts x_s - k sum_s w_ts q(x_s) E[q(e_s) e_t])
                                                                             <B|B> = <e|e>
    G01_ts = dx_t^{l-1}/dB_s,   G10_ts = de_t/dF_s

and two matrices, whose hidden neurons are averaged separately (E_i, as in ``blocks``),

    h_t = u_t + G01 e - k w1 q(e_s) E[q(x_s) x_t]
    g_t = v_t + G10 phi(h) / rho - k w2 q(phi_s) E[q(d_s) d_t],        e_t = phi'(h_t) g_t
    x^l     = x^{l-1} + c (F + A d - k rho w2 q(d_s) E_i[q(phi_s) phi_t])    <F|F> = E_i phi phi
    d^{l-1} = d^l + c (B + rho A' x - k rho w1 q(x_s) E_i[q(e_s) e_t])   <B|B> = rho E_i e e

with A = E_i dphi/dv, A' = E_i de/du. All responses are by Stein's lemma: a sign has no derivative.
At alpha = 1 and infinite depth F, B, G01 and G10 vanish and an entry is a deterministic function of
U's and V's (``deterministic``).

A particle's Gaussians are made orthonormal over the population, which takes out most of the noise
of the moments. What is left falls as one over the root of the particles' number.

*Source:* derived here by Gaussian conditioning; not proved. See docs/studies/limits.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from depthmup.limits.averages import Particles, gaussian_sobol
from depthmup.limits.numerics.factors import appended, stein, stein_within
from depthmup.limits.numerics.memory import require_memory
from depthmup.limits.problem import Problem
from depthmup.limits.solution import Solution
from depthmup.limits.step import Array
from depthmup.limits.training import Sampled, combined, train

_LAYERS = (16, 32, 64)
"""Depths from which infinite depth is extrapolated."""

Response = Callable[[Array, Array], Array]


def solve_particles(problem: Problem, particles: Particles) -> Solution:
    """Train each population; the value is their mean and the error their spread."""
    blocks = OneMatrix if problem.block_depth == 1 else TwoMatrix
    solutions = [train(blocks(problem, particles, seed)) for seed in particles.seeds()]
    return combined(solutions, particles, "Pass more particles, or a larger tol.")


def solve_extrapolated(problem: Problem, particles: Particles) -> Solution:
    """signSGD of two matrices at infinite depth and alpha = 1, from three finite depths.

    Layers are Euler steps of an entry, a function of U's and V's alone: errors are b/L + c/L^2.
    """
    solutions = []
    for seed in particles.seeds():
        coarse, middle, fine = (
            train(TwoMatrix(replace(problem, depth=layers), particles, seed, deterministic=True))
            for layers in _LAYERS
        )
        bad = next((s for s in (coarse, middle, fine) if not s.status.ok), None)
        if bad is not None:
            return bad
        extrapolated = [
            2 * np.array(f) - m for m, f in zip(middle.outputs, fine.outputs, strict=True)
        ]
        before = [2 * np.array(m) - c for c, m in zip(coarse.outputs, middle.outputs, strict=True)]
        # The next correction is of order 1/L^2: what is left is a third of what it moved.
        moved = max(float(np.abs(e - b).max()) for e, b in zip(extrapolated, before, strict=True))
        held_out = None
        if fine.held_out is not None and middle.held_out is not None:
            held_out = 2 * fine.held_out - middle.held_out
        solutions.append(
            replace(
                fine,
                problem=problem,
                outputs=tuple(extrapolated),
                held_out=held_out,
                kernel=2 * fine.kernel - middle.kernel,
                # Every second depth of the finer one is a depth of the other.
                positions=middle.positions,
                rms=tuple(2 * f[::2] - m for m, f in zip(middle.rms, fine.rms, strict=True)),
                error_estimate=moved,
            )
        )
    return combined(solutions, particles, "Pass more particles, or a larger tol.")


class Population(Sampled):
    """One population of particles, trained: x and d of every vector at every depth.

    ``x``, ``d`` (L + 1, vectors, J); ``u`` (d_in, J) and ``v`` (d_out, J) are entries of U and nV;
    ``z_x`` and ``z_d`` (L, vectors, J) the standard Gaussians behind F and B of every block, whose
    Cholesky factors ``lower_x`` and ``lower_d`` (L, vectors, vectors) grow with time.
    """

    def __init__(
        self,
        problem: Problem,
        particles: Particles,
        seed: np.random.SeedSequence,
        *,
        deterministic: bool = False,
    ) -> None:
        super().__init__(problem)
        # An update of this function of every entry of its two factors.
        self.entry: Callable[[Array], Array] = np.sign if problem.sign else np.positive
        self.deterministic, self.count = deterministic, particles.count
        # x, d, z_x, z_d and e: five doubles.
        require_memory(
            40.0 * self.depth * self.vectors * self.count,
            "Pass limits.Particles with a smaller count, fewer vectors, or a smaller depth.",
        )
        self.rng = np.random.default_rng(seed)
        shape, blocks = (self.depth + 1, self.vectors, self.count), self.depth
        self.x, self.d = np.zeros(shape), np.zeros(shape)
        ends = problem.d_in + problem.d_out
        own = 0 if deterministic else blocks * (self.vectors + self.updated)
        # A hidden neuron has Gaussians as well. Fields are made orthonormal: with nearly as many of
        # them as particles, what is left of the last ones is determined by the others and no
        # longer Gaussian.
        if (most := max(ends + own, self.vectors + self.updated)) >= self.count // 2:
            raise ValueError(
                f"{most} Gaussians per particle need more than {self.count} particles. Pass "
                "limits.Particles with a larger count."
            )
        if deterministic:
            stream = _orthonormal(gaussian_sobol(ends, self.count, self.rng).T)
            self.z_x = self.z_d = np.zeros((blocks, 0, self.count))
        else:
            stream = _orthonormal(self.rng.standard_normal((ends + own, self.count)))
            cut = ends + blocks * self.vectors
            self.z_x = stream[ends:cut].reshape(blocks, self.vectors, self.count)
            self.z_d = stream[cut:].reshape(blocks, self.updated, self.count)
        self.u, self.v = stream[: problem.d_in], stream[problem.d_in : ends]
        square = blocks, self.vectors, self.vectors
        self.lower_x, self.lower_d = np.zeros(square), np.zeros(square)
        self.e = np.zeros((blocks, self.updated, self.count))

    @abstractmethod
    def rise(self, i: int, t: int, n: int, x: Array) -> Array:
        """What block i adds to the new vectors x (rows, J), numbered from n, at step t."""

    @abstractmethod
    def fall(self, i: int, t: int, rows: slice, d: Array) -> Array:
        """What block i adds to the gradients d (rows, J) on their way down."""

    def pass_up(self, t: int, n: int, inputs: Array) -> tuple[Array, Array]:
        new = slice(n, n + len(inputs))
        self.x[0, new] = inputs @ self.u
        # Left for the way back.
        shape = self.depth, len(inputs), self.count
        self.new_u, self.new_h, self.new_phi = np.zeros((3, *shape))
        for i in range(self.depth):
            self.x[i + 1, new] = self.x[i, new] + self.c * self.rise(i, t, n, self.x[i, new])
        # V^T x is E[nV x] over entries.
        outputs = self.x[-1, new] @ self.v.T / self.count
        return outputs, np.square(self.x[:, new]).mean(axis=2)

    def down(self, t: int, rows: slice, chi: Array) -> None:
        """The gradients of a minibatch through every block, from the loss back to the input."""
        self.d[-1, rows] = chi @ self.v
        for i in range(self.depth - 1, -1, -1):
            d = self.d[i + 1, rows]
            self.d[i, rows] = d + self.c * self.fall(i, t, rows, d)

    def kernel(self) -> Array:
        top = self.x[-1, : self.done]
        return self.mean(top, top)

    def mean(self, left: Array, right: Array) -> Array:
        """E of products, over particles or neurons: (rows, columns)."""
        return np.asarray(left @ right.T / left.shape[1])

    def fresh(self, z: Array, lower: Array, i: int, n: int, cov: Array) -> Array:
        """New rows of a Gaussian field of block i whose covariance is ``cov`` (size, size)."""
        if self.deterministic:
            return np.zeros((len(cov) - n, self.count))
        lower[i, : len(cov), : len(cov)] = appended(lower[i, :n, :n], cov)
        return lower[i, n : len(cov), : len(cov)] @ z[i, : len(cov)]

    def response(
        self, values: Array, z: Array, lower: Array, i: int, size: int, by: Response = stein
    ) -> Array:
        """What ``values`` (rows, J) answer to a field's first vectors: (rows, size)."""
        if self.deterministic:
            return np.zeros((len(values), size))
        return by(self.mean(values, z[i, :size]), lower[i, :size, :size])


class OneMatrix(Population):
    """Blocks ``x + c MS(phi(W x))``: ``e`` and ``z`` are of the same particles as x."""

    def rise(self, i: int, t: int, n: int, x: Array) -> Array:
        """phi(h) - E phi(h) of the new vectors, (rows, J): what block i adds to x, but for c."""
        size = n + len(x)
        cov = self.mean(self.x[i, :size], self.x[i, :size])
        h = self.fresh(self.z_x, self.lower_x, i, n, cov)
        e, weights = self.e[i, :n], self.kick * self.problem.hidden[t, :n]
        h = h + self.response(x, self.z_d, self.lower_d, i, n) @ e
        h -= (weights * self.mean(x, self.entry(self.x[i, :n]))) @ self.entry(e)
        self.new_h[i] = h
        phi = self.activation.function(h)
        return np.asarray(phi - phi.mean(axis=1, keepdims=True))

    def fall(self, i: int, t: int, rows: slice, d: Array) -> Array:
        """W^T e of the vectors, (rows, J): what block i adds to d, but for c."""
        n, size = rows.start, rows.stop
        e = self.activation.slope(self.new_h[i]) * d
        self.e[i, rows] = e
        old_e, weights = self.e[i, :n], self.kick * self.problem.hidden[t, :n]
        cov = self.mean(self.e[i, :size], self.e[i, :size])
        back = self.fresh(self.z_d, self.lower_d, i, n, cov)
        answer = self.response(e, self.z_x, self.lower_x, i, size, stein_within)
        back = back + answer @ self.x[i, :size]
        return back - (weights * self.mean(e, self.entry(old_e))) @ self.entry(self.x[i, :n])


class TwoMatrix(Population):
    """Blocks ``x + c W2 phi(W1 x)``: ``phi`` and ``e`` (L, vectors, I) are of hidden neurons.

    ``z_u`` and ``z_v`` (vectors, I) are the standard Gaussians of every block's neurons.
    """

    def __init__(
        self,
        problem: Problem,
        particles: Particles,
        seed: np.random.SeedSequence,
        *,
        deterministic: bool = False,
    ) -> None:
        super().__init__(problem, particles, seed, deterministic=deterministic)
        self.second, self.ratio = problem.second, problem.branch.width_ratio
        points = gaussian_sobol(self.vectors + self.updated, self.count, self.rng)
        points = _orthonormal(points.T)
        self.z_u, self.z_v = points[: self.vectors], points[self.vectors :]
        self.phi = np.zeros((self.depth, self.updated, self.count))
        square = self.depth, self.vectors, self.vectors
        self.lower_u, self.lower_v = np.zeros(square), np.zeros(square)

    def rise(self, i: int, t: int, n: int, x: Array) -> Array:
        """W2 phi(W1 x) of the new vectors, (rows, J): what block i adds to x, but for c."""
        size = n + len(x)
        lower, q = self.lower_u[i], self.entry
        lower[:size, :size] = appended(lower[:n, :n], self.mean(self.x[i, :size], self.x[i, :size]))
        u = lower[n:size, :size] @ self.z_u[:size]
        first, second = self.kick * self.problem.hidden[t, :n], self.kick * self.second[t, :n]
        h = u + self.response(x, self.z_d, self.lower_d, i, n) @ self.e[i, :n]
        h -= (first * self.mean(x, q(self.x[i, :n]))) @ q(self.e[i, :n])
        phi = self.activation.function(h)
        self.new_u[i], self.new_h[i], self.new_phi[i] = u, h, phi
        every = np.concatenate([self.phi[i, :n], phi])
        out = self.fresh(self.z_x, self.lower_x, i, n, self.mean(every, every))
        # u and v are independent, so phi(u) answers to no v: subtracted, it adds no noise either.
        excess = phi - self.activation.function(u)
        answer = stein(self.mean(excess, self.z_v[:n]), self.lower_v[i, :n, :n])
        out = out + answer @ self.d[i + 1, :n]
        pull = self.ratio * second * self.mean(phi, q(self.phi[i, :n]))
        return out - pull @ q(self.d[i + 1, :n])

    def fall(self, i: int, t: int, rows: slice, d: Array) -> Array:
        """W1^T (phi'(h) W2^T d) of the vectors, (rows, J): what block i adds to d, but for c."""
        n, size, q, slope = rows.start, rows.stop, self.entry, self.activation.slope
        lower, above = self.lower_v[i], self.d[i + 1]
        lower[:size, :size] = appended(
            lower[:n, :n], self.mean(above[:size], above[:size]) / self.ratio
        )
        v = lower[n:size, :size] @ self.z_v[:size]
        first, second = self.kick * self.problem.hidden[t, :n], self.kick * self.second[t, :n]
        self.phi[i, rows] = self.new_phi[i]
        answer = self.response(d, self.z_x, self.lower_x, i, size, stein_within)
        g = v + answer @ self.phi[i, :size] / self.ratio
        g -= (second * self.mean(d, q(above[:n]))) @ q(self.phi[i, :n])
        e = slope(self.new_h[i]) * g
        self.e[i, rows] = e
        cov = self.ratio * self.mean(self.e[i, :size], self.e[i, :size])
        back = self.fresh(self.z_d, self.lower_d, i, n, cov)
        # phi'(u) v is odd in v, so that its answer to u is 0: subtracted for its noise.
        excess = e - slope(self.new_u[i]) * v
        own = stein_within(self.mean(excess, self.z_u[:size]), self.lower_u[i, :size, :size])
        back = back + self.ratio * own @ self.x[i, :size]
        pull = self.ratio * first * self.mean(e, q(self.e[i, :n]))
        return back - pull @ q(self.x[i, :n])


def _orthonormal(z: Array) -> Array:
    """Standard Gaussians (fields, J) made of mean 0, variance 1 and uncorrelated over J."""
    z = z - z.mean(axis=1, keepdims=True)
    lower = np.linalg.cholesky(z @ z.T / z.shape[1])
    return np.asarray(np.linalg.solve(lower, z))
