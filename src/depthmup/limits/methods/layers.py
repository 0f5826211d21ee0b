"""Linear networks of finite depth by invariant imbedding: the default, linear in depth.

Write x^l, d^l for all N training vectors at layer l (columns over time). Every layer is linear,

    x^l     = x^{l-1} + c F^l + M^l d^l        M^l = c (G01^l - k w * <x^{l-1}|x^{l-1}>)
    d^{l-1} = d^l     + c B^l + N^l x^{l-1}    N^l = c (G10^l - k w * <d^l|d^l>)

with c = a L^-alpha, k = a L^-gamma, w the strictly causal weights of past updates, F and B fresh
Gaussian images under W_0 and its transpose, and G01 = d x^{l-1}/dB, G10 = d d^l/dF their feedback.
This two-point boundary value problem is solved by what each side returns to the other: the
responses ``x^l = P^l d^l + (sources below)`` and ``d^l = Q^l x^l + (sources above)``,

    P^l     = M^l + P^{l-1} (I - N^l P^{l-1})^{-1}     G01^l = c P^{l-1} (I - Q^{l-1} P^{l-1})^{-1}
    Q^{l-1} = N^l + Q^l (I - M^l Q^l)^{-1}             G10^l = c Q^l (I - P^l Q^l)^{-1}

Row t of all of these depends on earlier rows only, so a step is one sweep up (rows of P, <x|x>
and <x|d>), the loss, and one sweep down (rows of Q, <d|d> and <d|x>). Within a sweep the new rows
obey a *linear* recursion in depth, ``(P, C, K)^l = (P, C, K)^{l-1} A^l`` with A^l known from
earlier steps: all A^l are built at once by batched products, and a layer costs one product.

Up and down are the same equations with x and d exchanged, so one class is both.

Cost: O(N^3 L) time, O(N^2 L) memory.

*Source:* equivalent to arXiv 2310.02244, Lemma 4.3 / C.1 / D.3; the imbedding itself is not in the
paper. Trained U and V (the paper freezes both) enter as P^0 and Q^L, no longer zero.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.signal import lfilter

from depthmup.limits.methods.sides import (
    Imbedding,
    Kept,
    Memory,
    Pull,
    Side,
    Starts,
    States,
    SweptRows,
)
from depthmup.limits.problem import Problem
from depthmup.limits.solution import Solution
from depthmup.limits.step import Array
from depthmup.limits.training import train

# The transfer matrices of a sweep are assembled for as many layers at a time as fit in this.
_CHUNK_BYTES = 32 * 2**20


def solve_layers(problem: Problem) -> Solution:
    """Train a linear network with one matrix per block; exact at infinite width."""
    x = Layers(problem)
    # Two branch factors: one from the forward pass, one from the gradient.
    pull = problem.factor * problem.kick * problem.hidden
    return train(Imbedding(problem, x, Layers(problem, x), pull=pull, positions=problem.positions))


class Layers(Side):
    """x or d at every layer, with what the transfer matrices of a sweep are made of.

    Written for x (for d the roles are exchanged), stacks of (L, N, N), one entry per layer:
    ``carry`` = (I - N P)^-1, ``kick_back`` = M N, ``carry_gain`` = carry Q (I - PQ)^-1,
    ``residue`` = <d | x - M d>, what d shares with x before the layer's own kick, and
    ``gain`` = c^2 (carry_gain <x|x> + (I - QP)^-1 residue), from a new response to its covariance.
    """

    def __init__(self, problem: Problem, partner: Self | None = None) -> None:
        depth, size, self.c = problem.layers, problem.remembered, problem.factor
        super().__init__(problem, depth + 1, depth, partner)
        self.rate = self.c**2 * depth
        self.carry, self.kick_back, self.carry_gain = np.zeros((3, depth, size, size))
        self.residue, self.gain = np.zeros((2, depth, size, size))

    def sweep(
        self, other: Self, start: Starts, pull: Pull, memory: Memory, keep: int
    ) -> tuple[Kept, Starts]:
        """Carry the new rows from layer to layer, by one transfer matrix (3n, 3n) each."""
        depth, n = len(self.kick), pull.shape[-1]
        states = np.empty((depth + 1, keep, 3 * n))
        # Held-out rows are wanted at the last layer only, so they keep no trace of the others.
        states[0], rest = start[:keep], start[keep:]
        # One transfer matrix is (3n)^2 doubles.
        chunk = max(1, _CHUNK_BYTES // (72 * max(1, n) ** 2))
        buffer = np.zeros((min(chunk, depth), 3, n, 3, n))
        for first in range(0, depth, chunk):
            layers = slice(first, min(depth, first + chunk))
            transfer = buffer[: layers.stop - first]
            self._transfer(other, layers, pull, memory[..., :n, :n], transfer)
            matrices = transfer.reshape(len(transfer), 3 * n, 3 * n)
            for layer, matrix in enumerate(matrices, start=first):
                np.matmul(states[layer], matrix, out=states[layer + 1])
                if len(rest):
                    rest = rest @ matrix
        return states, np.concatenate([states[-1], rest])

    def _transfer(self, other: Self, layers: slice, pull: Array, memory: Array, a: Array) -> None:
        """A of some layers, (layers, 3, n, 3, n): from (row) and to (column) P, C, K.

        P' = M + P carry                   with M  = c^2 P (I-QP)^-1 - C pull
        C' = C + c^2 C (I-PQ)^-T + c^2 P carry_gain <x|x> + K- M_old^T + M <d|x>
        K' = K + C (memory * <d|d>)^T - (C pull) <d|d>
                                             and  K- = K - c^2 P (I-QP)^-1 <d|d> - C N^T
        """
        n = len(pull)
        ends = slice(layers.start + 1, layers.stop + 1)
        eye, old = np.arange(n), (slice(None), slice(n), slice(n))
        c2 = self.c**2
        np.multiply(other.resolvent[::-1][layers][old], c2, out=a[:, 0, :, 0])
        a[:, 0, :, 0] += self.carry[layers][old]
        a[:, 1, eye, 0, eye] = -pull
        a[:, 0, :, 1] = self.gain[layers][old]
        to_cov = a[:, 1, :, 1].transpose(0, 2, 1)
        np.multiply(self.cross[ends][old], -pull, out=to_cov)
        to_cov += c2 * self.resolvent[ends][old]
        to_cov -= self.kick_back[layers][old]
        a[:, 1, eye, 1, eye] += 1.0
        np.multiply(memory.T - pull[:, None], other.cov[::-1][ends][old], out=a[:, 1, :, 2])
        a[:, 2, :, 1] = self.kick[layers][old].transpose(0, 2, 1)
        a[:, 2, eye, 2, eye] = 1.0

    def follow(self, other: Self, states: States, start: Array, pull: Pull) -> SweptRows:
        n = pull.shape[-1]
        feedback = states[:, :, :n] @ other.resolvent[::-1, :n, :n]
        cov, beyond = states[:-1, :, n : 2 * n], other.cov[::-1][1:, :n, :n]
        kick = self.c**2 * feedback[:-1] - cov * pull
        among = self._among(other, states, feedback, kick, start, cov, beyond)
        return SweptRows(feedback, kick, among)

    def _among(
        self,
        other: Self,
        states: Array,
        feedback: Array,
        kick: Array,
        start: Array,
        noise: Array,
        met: Array,
        drawn: Array | float = 0.0,
    ) -> Array:
        """Covariances of the new rows with each other.

        ``noise`` is <F|F> of new rows with old ones, ``met`` <B|B> among the old, and ``drawn`` is
        <F|F> - <x|x> among the new.
        """
        n, c2 = feedback.shape[2], self.c**2
        response, cov, cross = (states[:, :, i * n : (i + 1) * n] for i in range(3))
        beyond, back = other.cov[::-1][1:, :n, :n], other.kick[::-1, :n, :n]
        before = cross[:-1] - c2 * feedback[:-1] @ met - cov[:-1] @ back.transpose(0, 2, 1)
        echo = response[1:] @ other.feedback[::-1][1:, :n, :n]
        half = kick @ before.transpose(0, 2, 1) + c2 * noise @ echo.transpose(0, 2, 1)
        drive = half + half.transpose(0, 2, 1) + kick @ beyond @ kick.transpose(0, 2, 1)
        drive += c2 * drawn
        # C^l = (1 + c^2) C^{l-1} + drive^l
        after, _ = lfilter([1.0], [1.0, -1.0 - c2], drive, axis=0, zi=(1.0 + c2) * start[None])
        return np.concatenate([start[None], after])

    def extend_returns(self, other: Self, rows: slice) -> None:
        """Append a step's rows to ``carry``, ``kick_back`` and ``carry_gain``."""
        old, eye = slice(rows.start), np.arange(rows.start, rows.stop)
        kick, back = self.kick[:, rows, old], other.kick[::-1, rows, old]
        feedback = other.feedback[::-1][1:]
        # R = (I - N P)^-1 is unit lower triangular in time, so its rows are N_row (P R).
        # P R is P^l - M^l, known from the sweep: no inverse is taken anywhere.
        self.carry[:, rows, old] = back @ (self.response[1:, old, old] - self.kick[:, old, old])
        self.carry[:, eye, eye] = 1.0
        self.kick_back[:, rows, old] = kick @ other.kick[::-1, old, old]
        # The unit diagonal of carry adds the feedback's own row.
        self.carry_gain[:, rows, old] = (
            self.carry[:, rows, old] @ feedback[:, old, old] + feedback[:, rows, old]
        )

    def extend(self, other: Self, rows: slice) -> None:
        """Append a step's rows to all that transfer matrices are made of, both sweeps done."""
        self.extend_returns(other, rows)
        old, every = slice(rows.start), slice(rows.stop)
        kick, known_kick = self.kick[:, rows, old], self.kick[:, old, old]
        beyond = other.cov[::-1][1:]
        cross = self.cross[1:].transpose(0, 2, 1)
        residue = self.residue
        # M is strictly causal: <d|d> M^T sums over old vectors, whichever column is new.
        residue[:, every, rows] = cross[:, every, rows] - beyond[:, every, old] @ kick.transpose(
            0, 2, 1
        )
        residue[:, rows, old] = cross[:, rows, old] - beyond[:, rows, old] @ known_kick.transpose(
            0, 2, 1
        )
        cov, inverse, c2 = self.cov[:-1], other.resolvent[::-1][:-1], self.c**2
        # New columns of old rows, then new rows, whose last term is the diagonal of (I - QP)^-1.
        self.gain[:, old, rows] = c2 * (
            self.carry_gain[:, old, old] @ cov[:, old, rows]
            + inverse[:, old, old] @ residue[:, old, rows]
        )
        self.gain[:, rows, every] = c2 * (
            self.carry_gain[:, rows, old] @ cov[:, old, every]
            + inverse[:, rows, old] @ residue[:, old, every]
            + residue[:, rows, every]
        )
