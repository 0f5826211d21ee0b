"""Linear networks with two matrices per block, at finite depth, by invariant imbedding.

``x^l = x^{l-1} + c W2 W1 x^{l-1}``: a block has hidden neurons, ``h = W1 x^{l-1}`` on the way up
and ``e = sqrt(rho) W2^T d^l`` on the way down (rho = hidden width / width, which makes the two
alike). Of W1's and W2's initial Gaussians u, v (covariances C^{l-1} and D^l) they are

    h = u + R e     R = (G01 - r1 * C) / sqrt(rho)      r1 = a L^-gamma w1
    e = v + S h     S = (G10 - r2 * D) / sqrt(rho)      r2 = a L^-gamma rho w2

with w1, w2 the strictly causal weights of past updates of the two matrices and G01, G10 the
feedback of ``imbedding``. With Phi = <h|h>, Psi = <e|e>, A = dh/dv and B = de/du a block adds

    x^l     = x^{l-1} + c F + M d^l        M = c (sqrt(rho) A - r2 * Phi)     <F|F> = Phi
    d^{l-1} = d^l     + c B + N x^{l-1}    N = c (sqrt(rho) B - r1 * Psi)     <B|B> = Psi

and the responses P, Q obey what they obey with one matrix. Everything of a new row is again linear
in its (P, C, K), so that the passes of ``imbedding`` are used as they are, with other transfer
matrices. <x|d> changes through a block by what both matrices conserve:

    K^l - K^{l-1} = c (Phi (r2 * D)^T - (r2 * Phi) D + C (r1 * Psi)^T - (r1 * C) Psi)

Exchanging x and d, W1 and W2 leaves all of this as it is: one class is both sides.

*Source:* derived here by Gaussian conditioning; the paper has one matrix per block.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np

from depthmup.limits.methods.layers import Layers
from depthmup.limits.methods.sides import Imbedding, SweptRows, turned
from depthmup.limits.problem import Problem
from depthmup.limits.solution import Solution
from depthmup.limits.step import Array
from depthmup.limits.training import train


def solve_two_matrix_layers(problem: Problem) -> Solution:
    """Train a linear network whose blocks have two matrices; exact at infinite width."""
    x = TwoMatrixLayers(problem)
    d = TwoMatrixLayers(problem, x)
    pull = problem.kick * np.stack([problem.hidden, problem.branch.width_ratio * problem.second])
    return train(Imbedding(problem, x, d, pull=pull, positions=problem.positions))


class TwoMatrixLayers(Layers):
    """x or d at every layer, and the hidden neurons that face it.

    Written for x (for d, h and e are exchanged), stacks of (L, N, N), one entry per block:
    ``answer`` = dh/du, ``hidden`` = <h|h>, ``crossed`` = <h|e> and ``reply`` = dh/dv. ``order`` is
    which of the two matrices multiplies x: 0 is the first, which d meets second.
    """

    def __init__(self, problem: Problem, partner: Self | None = None) -> None:
        super().__init__(problem, partner)
        self.root, self.order = math.sqrt(problem.branch.width_ratio), int(partner is not None)
        self.answer, self.hidden, self.reply = np.zeros((3, *self.kick.shape))
        self.crossed: Array = (
            np.zeros_like(self.kick) if partner is None else turned(partner.crossed)
        )

    def _transfer(self, other: Self, layers: slice, pull: Array, memory: Array, a: Array) -> None:
        """A of some layers, (layers, 3, n, 3, n): from (row) and to (column) P, C, K.

        P' = M + P carry
        C' = C + c^2 (Phi (I-PQ)^-T + P carry_gain <h|h>) + K- M_old^T + M <d|x>
        K' = K + c (Phi (r2 * D)^T - (r2 * Phi) D + C (r1 * Psi)^T - (r1 * C) Psi)
                                               with  K- = K - c^2 P (I-QP)^-1 Psi - C N^T
        """
        n = pull.shape[-1]
        ends, old = slice(layers.start + 1, layers.stop + 1), (slice(None), slice(n), slice(n))
        own, across = pull[self.order], pull[1 - self.order]
        own_memory, across_memory = memory[self.order], memory[1 - self.order]
        beyond = other.cov[::-1][ends][old]  # D
        met = other.hidden[::-1][layers][old]  # Psi
        phi, response = self._neurons(other, layers, pull)
        kick = self.c * (self.root * response - across * phi)
        c, c2 = self.c, self.c**2
        kick_t = self.kick[layers][old].transpose(0, 2, 1)
        shared = self.cross[ends][old].transpose(0, 2, 1)  # <d|x>
        a[:, :2, :, 0] = kick
        a[:, 0, :, 0] += self.carry[layers][old]
        a[:, :2, :, 1] = c2 * phi @ self.resolvent[ends][old].transpose(0, 2, 1)[:, None]
        a[:, :2, :, 1] += kick @ shared[:, None]
        inverse_met = other.resolvent[::-1][layers][old] @ met
        a[:, 0, :, 1] += c2 * (
            self.carry_gain[layers][old] @ self.hidden[layers][old] - inverse_met @ kick_t
        )
        a[:, 1, :, 1] -= self.kick_back[layers][old].transpose(0, 2, 1)
        eye = np.arange(n)
        a[:, 1, eye, 1, eye] += 1.0
        a[:, 2, :, 1] = kick_t
        a[:, :2, :, 2] = phi @ (c * (across_memory * beyond).transpose(0, 2, 1))[:, None]
        a[:, :2, :, 2] -= (c * across * phi) @ beyond[:, None]
        a[:, 1, :, 2] += c * (own_memory.T - own[:, None]) * met
        a[:, 2, eye, 2, eye] = 1.0

    def _neurons(self, other: Self, layers: slice, pull: Array) -> tuple[Array, Array]:
        """New rows of Phi and dh/dv, as linear functions of rows of P and C.

        Each (layers, 2, n, n): [:, 0] acts on P, [:, 1] on C.
        """
        n = pull.shape[-1]
        old = (slice(None), slice(n), slice(n))
        of_cov = -pull[self.order] / self.root
        field = np.zeros((layers.stop - layers.start, 2, n, n))
        field[:, 0] = (self.c / self.root) * other.resolvent[::-1][layers][old]
        field[:, 1, np.arange(n), np.arange(n)] = of_cov
        phi = field @ self.crossed[layers][old].transpose(0, 2, 1)[:, None]
        phi[:, 1] += self.answer[layers][old].transpose(0, 2, 1)
        return phi, field @ other.answer[::-1][layers][old][:, None]

    def follow(self, other: Self, states: Array, start: Array, pull: Array) -> SweptRows:
        """What follows from the rows of a sweep, those of the hidden neurons included."""
        n = pull.shape[-1]
        old = (slice(None), slice(n), slice(n))
        feedback = states[:, :, :n] @ other.resolvent[::-1, :n, :n]
        cov = states[:-1, :, n : 2 * n]
        field = (self.c * feedback[:-1] - cov * pull[self.order]) / self.root  # rows of R
        phi = cov @ self.answer[old].transpose(0, 2, 1)
        phi += field @ self.crossed[old].transpose(0, 2, 1)
        response = field @ other.answer[::-1][old]  # dh/dv
        kick = self.c * (self.root * response - pull[1 - self.order] * phi)
        field_t = field.transpose(0, 2, 1)
        shared = cov @ other.reply[::-1][old].transpose(0, 2, 1)  # <u|e>
        met = other.hidden[::-1][old]
        mixed = shared @ field_t
        drawn = mixed + mixed.transpose(0, 2, 1) + field @ met @ field_t
        among = self._among(other, states, feedback, kick, start, phi, met, drawn)
        hidden = phi, among[:-1] + drawn, response, shared + field @ met
        answer = field @ other.reply[::-1][old]
        if self.order == 0:
            return SweptRows(feedback, kick, among, (*hidden, answer))
        # <e|h> within the step: x's rows are known by now.
        new = slice(n, n + kick.shape[1])
        block = cov @ other.reply[::-1][:, new, :n].transpose(0, 2, 1)
        block += field @ other.hidden[::-1][:, :n, new]
        return SweptRows(feedback, kick, among, (*hidden, answer, block))

    def file(self, states: Array, rows: slice, followed: SweptRows) -> None:
        """Store the rows of a sweep and what follows from them, those of the hidden neurons too."""
        super().file(states, rows, followed)
        n, eye = rows.start, np.arange(rows.start, rows.stop)
        phi, block, response, crossed, answer, *within = followed.hidden
        self.hidden[:, rows, :n], self.hidden[:, :n, rows] = phi, phi.transpose(0, 2, 1)
        self.hidden[:, rows, rows] = block
        self.reply[:, rows, :n] = response
        self.crossed[:, rows, :n] = crossed
        self.answer[:, rows, :n] = answer
        self.answer[:, eye, eye] = 1.0
        if within:
            self.crossed[:, rows, rows] = within[0]

    def fresh(self) -> Array:
        # Block l adds its noise to x^{l-1}: one entry fewer than there are depths.
        return self.rate * np.concatenate([self.hidden, np.zeros_like(self.hidden[:1])])

    def extend(self, other: Self, rows: slice) -> None:
        """Append a step's rows to ``carry``, ``kick_back`` and ``carry_gain``, both sweeps done."""
        # ``residue`` and ``gain`` are of one matrix: ``_transfer`` reads hidden neurons instead.
        self.extend_returns(other, rows)
