"""Linear networks of finite depth by the paper's recursion: the readable reference.

Every vector of the infinitely wide network is a linear combination of independent Gaussian
vectors: the columns of U and nV, and, for each layer m and training vector s, the images
``F_s^m`` of x_s^{m-1} under W_0^m and ``B_s^m`` of d_s^m under its transpose, with covariances
``<F_r^m|F_s^m> = <x_r^{m-1}|x_s^{m-1}>`` and ``<B_r^m|B_s^m> = <d_r^m|d_s^m>``. The recursion
carries the coefficients (the paper's Gamma) of all x^l and d^l, layer by layer and step by step:

    x_r^l     = x_r^{l-1} + c F_r^l + sum_s c (dx_r^{l-1}/dB_s^l - w_rs a L^-gamma <x_r^{l-1}|x_s^{l-1}>) d_s^l
    d_r^{l-1} = d_r^l     + c B_r^l + sum_s c (dd_r^l/dF_s^l     - w_rs a L^-gamma <d_r^l|d_s^l>) x_s^{l-1}

over earlier s, with c = a L^-alpha and w_rs the learning rates that step r's weights carry from s.

Cost: O(N^3 L^2) time and O(N^2 L^2) memory for N training vectors. ``limits.linear`` gets the same
numbers in O(N^3 L) and O(N^2 L).

*Source:* arXiv 2310.02244, Lemma 4.3, C.1 and Appendix D.3, with multiplier, learning rate,
minibatches, vector inputs and outputs restored and any (alpha, gamma). The paper's Gamma carries
a further factor sqrt(L) on the F and B coefficients.
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from depthmup import limits
from depthmup.statistics import Array


@dataclass(frozen=True)
class _Coefficients:
    """Coefficients of one family (all x^l, or all d^l) on the Gaussian basis.

    ``u`` (L+1, N, d_in) on U; ``v`` (L+1, N, d_out) on nV; ``f`` and ``b`` (L+1, N, L, N): entry
    [l, r, m-1, s] multiplies F_s^m resp. B_s^m in vector r at layer l.
    """

    u: Array
    v: Array
    f: Array
    b: Array

    def combine(self, weights: Array, layer: int) -> tuple[Array, Array, Array, Array]:
        """Coefficients of ``sum_s weights[r, s] vector_s^layer`` over the first columns."""
        n = weights.shape[1]
        family = (self.u, self.v, self.f, self.b)
        return tuple(np.tensordot(weights, c[layer, :n], axes=1) for c in family)  # type: ignore[return-value]

    def at(self, layer: int, r: slice) -> tuple[Array, ...]:
        """The coefficients of some rows at one layer."""
        return tuple(c[layer, r] for c in (self.u, self.v, self.f, self.b))

    def put(self, layer: int, r: slice, *terms: tuple[Array, ...]) -> None:
        """Store a sum of coefficients as those of some rows at one layer."""
        for array, parts in zip(
            (self.u, self.v, self.f, self.b), zip(*terms, strict=True), strict=True
        ):
            array[layer, r] = sum(parts)


def _coefficients(depth: int, n: int, d_in: int, d_out: int) -> _Coefficients:
    shape = (depth + 1, n)
    return _Coefficients(
        u=np.zeros((*shape, d_in)),
        v=np.zeros((*shape, d_out)),
        f=np.zeros((*shape, depth, n)),
        b=np.zeros((*shape, depth, n)),
    )


@dataclass(frozen=True, kw_only=True)
class Recursion:
    """Training by the recursion, as ``limits.Solution`` has it: numbers, and no estimate of errors.

    ``outputs`` and ``rms`` per step, ``held_out`` (steps + 1, rows, d_out), ``kernel`` (N, N).
    """

    outputs: tuple[Array, ...]
    rms: tuple[Array, ...]
    held_out: Array | None
    kernel: Array


def recursion(problem: limits.Problem) -> Recursion:
    """Train a linear network of finite depth by the recursion for Gamma and C.

    Example:
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> by_layers = limits.linear(steps, depth=8, lr=1.0)
        >>> by_paper = recursion(limits.problem(steps, depth=8, lr=1.0))
        >>> bool(abs(by_paper.outputs[1] - by_layers.outputs[1]) < 1e-14)
        True
    """
    network = _Network(problem, problem.layers)
    outputs, rms, held_out = [], [], []
    for t, rows, inputs in problem.queries():
        batch = rows.stop - rows.start
        f, cov = network.up(t, rows.start, inputs)
        held_out.append(f[batch:])
        if t < len(problem.steps):
            squares = np.einsum("lrr->lr", cov[:, :, rows.start :])[:, :batch]
            outputs.append(f[:batch])
            # Rounding may leave a square of zero below it.
            rms.append(np.sqrt(np.maximum(squares, 0.0)))
            network.down(t, rows, problem.steps[t].gradient(f[:batch]))
    return Recursion(
        outputs=tuple(outputs),
        rms=tuple(rms),
        held_out=None if problem.held_out is None else np.array(held_out),
        kernel=network.cov_x[-1, : problem.vectors, : problem.vectors],
    )


class _Network:
    """Coefficients and covariances of all x^l and d^l, filled in step by step.

    ``cov_x`` and ``cov_d`` (L+1, N, N) are <x^l|x^l> and <d^l|d^l>, of known rows only; ``xi`` and
    ``chi`` the coefficients of x^0 on U and of d^L on nV. Held-out inputs take the rows after those
    of the step, which the next step overwrites.
    """

    def __init__(self, problem: limits.Problem, depth: int) -> None:
        size = problem.vectors + (0 if problem.held_out is None else len(problem.held_out))
        self.problem, self.depth = problem, depth
        self.branch, self.kick = problem.factor, problem.kick
        self.x = _coefficients(depth, size, problem.d_in, problem.d_out)
        self.d = _coefficients(depth, size, problem.d_in, problem.d_out)
        self.cov_x, self.cov_d = np.zeros((2, depth + 1, size, size))
        self.xi, self.chi = np.zeros((size, problem.d_in)), np.zeros((size, problem.d_out))

    def up(self, t: int, n: int, inputs: Array) -> tuple[Array, Array]:
        """Outputs of new vectors, numbered from n, and their <x^l|x^l> (L+1, rows, n + rows)."""
        x, d, cov, xi = self.x, self.d, self.cov_x, self.xi
        old, r = slice(0, n), slice(n, n + len(inputs))
        w, known = self.problem.hidden[t, :n], slice(0, n + len(inputs))
        # The held-out rows of the last step stand where the new rows go.
        for family in (x, d):
            for array in (family.u, family.v, family.f, family.b):
                array[:, r] = 0.0
        xi[r] = inputs
        x.put(0, r, d.combine(-self.problem.input[t, old] * (xi[r] @ xi[old].T), 0))
        x.u[0, r] += xi[r]
        for layer in range(self.depth + 1):
            if layer > 0:
                # Gamma_01(l-1, l): what x below a layer answers to that layer's own B.
                onto_b = x.b[layer - 1, r, layer - 1, old]
                moved = self.branch * (onto_b - self.kick * w * cov[layer - 1, r, old])
                x.put(layer, r, x.at(layer - 1, r), d.combine(moved, layer))
                x.f[layer, r, layer - 1, r] += self.branch * np.eye(len(inputs))
            cov[layer, r, known] = self.inner(x, layer, r, known)
            cov[layer, known, r] = cov[layer, r, known].T
        read = self.problem.readout[t, old] * cov[self.depth, r, old]
        return x.v[self.depth, r] - read @ self.chi[old], cov[:, r, known]

    def down(self, t: int, r: slice, chi: Array) -> None:
        """The gradients of a step's vectors at every layer."""
        x, d, cov = self.x, self.d, self.cov_d
        old, known = slice(0, r.start), slice(0, r.stop)
        w, batch = self.problem.hidden[t, : r.start], r.stop - r.start
        self.chi[r] = chi
        read = -self.problem.readout[t, old] * (chi @ self.chi[old].T)
        d.put(self.depth, r, x.combine(read, self.depth))
        d.v[self.depth, r] += chi
        for layer in range(self.depth, -1, -1):
            if layer < self.depth:
                # Gamma_10(l, l): what d above a layer answers to that layer's own F.
                onto_f = d.f[layer + 1, r, layer, old]
                moved = self.branch * (onto_f - self.kick * w * cov[layer + 1, r, old])
                d.put(layer, r, d.at(layer + 1, r), x.combine(moved, layer))
                d.b[layer, r, layer, r] += self.branch * np.eye(batch)
            cov[layer, r, known] = self.inner(d, layer, r, known)
            cov[layer, known, r] = cov[layer, r, known].T

    def inner(self, family: _Coefficients, layer: int, r: slice, q: slice) -> Array:
        """<family_r|family_q> at one layer, from the definition."""
        u, v, f, b = family.u[layer], family.v[layer], family.f[layer], family.b[layer]
        total = u[r] @ u[q].T + v[r] @ v[q].T
        # Entry m is of layer m + 1, whose F is an image of x^m and whose B is one of d^{m+1}.
        for m in range(self.depth):
            total += f[r, m] @ self.cov_x[m] @ f[q, m].T
            total += b[r, m] @ self.cov_d[m + 1] @ b[q, m].T
        return np.asarray(total)
