"""Linear networks: x goes up and d goes down by the same equations, with their roles exchanged.

A sweep through depth is a method of one ``Side`` that reads the other. Layers of finite depth and
the continuum of infinite depth, with one matrix per block or two, are kinds of ``Side``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float

from depthmup.limits.numerics.memory import require_memory
from depthmup.limits.problem import Problem
from depthmup.limits.solution import History
from depthmup.limits.step import Array
from depthmup.limits.training import Method, require_finite

S = TypeVar("S", bound="Side")

# Rows are new vectors, n old ones; a sweep's states are (response, cov, cross) side by side, 3n.
Starts: TypeAlias = Float[Array, "rows states"]
States: TypeAlias = Float[Array, "depths rows states"]
Kept: TypeAlias = Float[Array, "depths kept states"]
Pull: TypeAlias = Float[Array, "*matrices old"]
Memory: TypeAlias = Float[Array, "*matrices every every"]


class SweptRows(NamedTuple):
    """Consequences of the rows of a sweep: against old vectors, and ``among`` the new ones."""

    feedback: Float[Array, "depths rows old"]
    kick: Float[Array, "layers rows old"]
    among: Float[Array, "depths rows rows"]
    hidden: tuple[Array, ...] = ()
    """Of the block's own neurons."""


class Side(ABC):
    """x from the input up, or d from the loss down: what is known of it at every depth.

    Stacks are (depths, N, N), in the order of the sweep; rows and columns are training vectors in
    time order. ``response``: P (how x answers d through what lies below) or Q (how d answers x
    through what lies above), strictly causal. ``cov`` <own|own>, ``cross`` <own|other>.
    ``resolvent``: (I - PQ)^-1 for x, (I - QP)^-1 for d. ``feedback``: P (I - QP)^-1 or
    Q (I - PQ)^-1. ``kick``: what one layer adds to the response (its density, at infinite depth).
    ``source`` (N, columns): coefficients on U (the inputs) or on nV (chi). ``rate``: that of the
    initial weights' noise, a^2 L^(1-2 alpha).
    """

    rate: float

    def __init__(
        self, problem: Problem, depths: int, layers: int, partner: Self | None = None
    ) -> None:
        size, columns = problem.remembered, problem.d_out if partner else problem.d_in
        # A dozen stacks of doubles here and in what extends it, and as many of the other side.
        require_memory(192.0 * depths * size**2, "Take fewer training vectors, or a smaller depth.")
        self.source = np.zeros((size, columns))
        self.response, self.cov = np.zeros((2, depths, size, size))
        self.resolvent, self.feedback = np.zeros((2, depths, size, size))
        self.kick = np.zeros((layers, size, size))
        # <own|other> and <other|own> are one set of numbers: the second side views the first's.
        self.cross: Array = (
            np.zeros((depths, size, size)) if partner is None else turned(partner.cross)
        )

    @abstractmethod
    def sweep(
        self, other: Self, start: Starts, pull: Pull, memory: Memory, keep: int
    ) -> tuple[Kept, Starts]:
        """(response, cov, cross) of new rows against the n old ones, side by side: 3n states.

        ``start`` is where the sweep starts. ``pull`` is how far past updates move the new rows,
        ``memory`` the same for the old ones. The first ``keep`` rows come back at every depth, and
        all rows where the sweep ends.
        """

    @abstractmethod
    def follow(
        self, other: Self, states: States, start: Float[Array, "rows rows"], pull: Pull
    ) -> SweptRows:
        """Feedback, kick and, from ``start``, covariances among the rows of a sweep."""

    @abstractmethod
    def extend(self, other: Self, rows: slice) -> None:
        """Append a step's rows to the products its equations are made of, both sweeps done."""

    def boundary(
        self,
        other: Self,
        new: Float[Array, "rows columns"],
        n: int,
        w: Float[Array, " old"],
        keep: int,
    ) -> tuple[Starts, Float[Array, "kept kept"]]:
        """Where a sweep starts: (response, cov, cross) of new rows, and the first ones' mutual cov.

        There ``own = source U - (w * source source^T) other``; the second term is a trained U
        (or V).
        """
        known = self.source[:n]
        # Coefficients on U at the input: (I - PQ)^-1 xi of the old x, Q times that of the old d.
        own_coef = self.resolvent[0, :n, :n] @ known
        other_coef = other.feedback[-1, :n, :n] @ known
        # The other sweep ends where this one starts: its last depth is the first here.
        across, beyond = self.cross[0, :n, :n], other.cov[-1, :n, :n]
        response = -w * (new @ known.T)
        cov = new @ own_coef.T + response @ across.T
        cross = new @ other_coef.T + response @ beyond
        mine, back = new[:keep], response[:keep]
        # <x|x'> of x = xi U + back d, term by term.
        mixed = mine @ (back @ other_coef).T
        among = mine @ mine.T + mixed + mixed.T + back @ beyond @ back.T
        return np.concatenate([response, cov, cross], axis=1), among

    def fresh(self) -> Array:
        """Covariance of the noise that initial weights add, per unit of p: (depths, N, N)."""
        return self.rate * self.cov

    def file(self, states: Array, rows: slice, followed: SweptRows) -> None:
        """Store the rows of a sweep and what follows from them."""
        n = rows.start
        response, cov, cross = (states[:, :, i * n : (i + 1) * n] for i in range(3))
        self.response[:, rows, :n] = response
        self.cov[:, rows, :n], self.cov[:, :n, rows] = cov, cov.transpose(0, 2, 1)
        self.cross[:, rows, :n] = cross
        self.feedback[:, rows, :n], self.kick[:, rows, :n] = followed.feedback, followed.kick
        self.cov[:, rows, rows] = followed.among

    def resolve(self, other: Self, rows: slice) -> None:
        """Append a step's rows to the resolvent, once both sweeps have been filed."""
        n, eye = rows.start, np.arange(rows.start, rows.stop)
        # (I - PQ)^-1 = I + P [Q (I - PQ)^-1]; P is strictly causal: old rows of [] are enough.
        self.resolvent[:, rows, :n] = self.response[:, rows, :n] @ other.feedback[::-1, :n, :n]
        self.resolvent[:, eye, eye] = 1.0


def turned(stack: Array) -> Array:
    """A stack of matrices transposed, and in the other sweep's order (a view)."""
    return stack[::-1].transpose(0, 2, 1)


class Imbedding(Method):
    """A linear network, with one matrix per block or two: x goes up, d goes down.

    ``pull`` (..., steps + 1, N): how far, in one layer or per unit of p, each past update moves the
    vectors of a step. What stands before the last two axes (the matrices of a block) is the
    ``Side``'s to read.
    """

    def __init__(self, problem: Problem, x: S, d: S, *, pull: Array, positions: Array) -> None:
        super().__init__(problem, positions)
        self.pull = pull
        self.x: Side = x
        self.d: Side = d
        step_of_vector = [t for t, step in enumerate(problem.steps) for _ in step.inputs]
        self.memory = pull[..., step_of_vector, :]
        self.squares = np.zeros((problem.vectors, problem.vectors))  # <x|x> at the last layer
        self.mismatch = 0.0

    def up(self, t: int, rows: slice, inputs: Array) -> tuple[Array, Array]:
        x, d, pull = self.x, self.d, self.pull[..., t, : rows.start]
        n, batch = rows.start, rows.stop - rows.start
        start, among = x.boundary(d, inputs, n, self.problem.input[t, :n], batch)
        states, top = x.sweep(d, start, pull, self.memory, batch)
        cov = top[:, n : 2 * n]
        # Coefficients of x^L on nV, P (I - QP)^-1 chi; a trained V adds <x_t|x_s> chi_s.
        on_v = top[:, :n] @ (d.resolvent[0, :n, :n] @ d.source[:n])
        outputs = on_v - (self.problem.readout[t, :n] * cov) @ d.source[:n]
        require_finite(states, outputs)
        if not batch:
            return outputs, np.zeros((len(self.positions), 0))
        followed = x.follow(d, states, among, pull)
        self.squares[rows, :n], self.squares[:n, rows] = cov[:batch], cov[:batch].T
        self.squares[rows, rows] = followed.among[-1]
        # <x|d> at the top is known twice: from the sweep, and from what the top layer is.
        known = on_v[:batch] @ d.source[:n].T + cov[:batch] @ d.response[0, :n, :n].T
        gap = _disagreement(top[:batch, 2 * n :], known, d.source[:n])
        self.mismatch = max(self.mismatch, gap)
        self.passed = inputs[:batch], states, followed, on_v[:batch], cov[:batch]
        return outputs, np.einsum("lbb->lb", followed.among)

    def down(self, t: int, rows: slice, chi: Array) -> None:
        x, d, pull = self.x, self.d, self.pull[..., t, : rows.start]
        n, batch = rows.start, rows.stop - rows.start
        inputs, states, followed, on_v, cov = self.passed
        x.file(states, rows, followed)
        start, among = d.boundary(x, chi, n, self.problem.readout[t, :n], batch)
        x.source[rows], d.source[rows] = inputs, chi
        # Within a minibatch <x|d> is the same at every depth: updates are strictly causal.
        x.cross[:, rows, rows] = on_v @ chi.T + cov @ start[:, :n].T
        states, _ = d.sweep(x, start, pull, self.memory, batch)
        require_finite(states)
        d.file(states, rows, d.follow(x, states, among, pull))
        for own, other in ((x, d), (d, x)):
            own.resolve(other, rows)
        # After both resolvents: each side's products hold the other's.
        for own, other in ((x, d), (d, x)):
            own.extend(other, rows)

    def kernel(self) -> Array:
        return self.squares

    def error(self) -> float:
        return self.mismatch

    def history(self) -> History:
        x, d = self.x, self.d
        return History(
            x=x.cov,
            d=d.cov[::-1],
            xd=x.cross,
            p=x.response,
            q=d.response[::-1],
            m=x.kick,
            n=d.kick[::-1],
            fresh_x=x.fresh(),
            fresh_d=d.fresh()[::-1],
            inputs=x.source,
            chi=d.source,
        )


def _disagreement(swept: Array, known: Array, chi: Array) -> float:
    """How far two computations of <x|d> at the top differ, in units of an output."""
    # At the top <x|d> is f chi^T: over the size of chi it is an error of f.
    scale = float(np.abs(chi).max(initial=0.0))
    return float(np.abs(swept - known).max(initial=0.0)) / scale if scale else 0.0
