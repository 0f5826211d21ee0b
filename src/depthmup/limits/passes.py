"""Training as passes through depth: up for the outputs, down for the gradients, step by step.

Finite and infinite depth share this loop. In both, x (upwards) and d (downwards) obey the same
equations with their roles exchanged, so a sweep is a method of one ``Side`` that reads the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Self, TypeVar

import numpy as np

from depthmup.limits.losses import Array
from depthmup.limits.problem import Problem
from depthmup.limits.solution import History, Ledger, Solution, Status, exploded

S = TypeVar("S", bound="Side")


class Rows(NamedTuple):
    """What follows from the rows of a sweep.

    ``feedback`` (depths, rows, n) and ``kick`` (layers, rows, n) against old vectors, ``among``
    (depths, rows, rows) the covariances of the new ones; ``hidden``, whatever else a kind of block
    keeps of its neurons.
    """

    feedback: Array
    kick: Array
    among: Array
    hidden: tuple[Array, ...] = ()


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
        self, depths: int, layers: int, size: int, columns: int, partner: Self | None = None
    ) -> None:
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
        self, other: Self, start: Array, pull: Array, memory: Array, keep: int
    ) -> tuple[Array, Array]:
        """(response, cov, cross) of new rows against the n old ones, side by side.

        Args:
            other: the other side: d for x, x for d.
            start: where the sweep starts, (rows, 3n).
            pull: how far, in one layer, past updates move the new rows, (n,).
            memory: the same for the old rows, (N, N).
            keep: how many rows are wanted at every depth: a minibatch without held-out rows.

        Returns:
            The first ``keep`` rows at every depth, (depths, keep, 3n), and all rows where the sweep
            ends, (rows, 3n).
        """

    @abstractmethod
    def among(
        self, other: Self, states: Array, feedback: Array, kick: Array, start: Array
    ) -> Array:
        """Covariances of the new rows with each other, (depths, rows, rows), after their sweep.

        Args:
            other: the other side: d for x, x for d.
            states: of the sweep, (depths, rows, 3n).
            feedback: of the new rows, (depths, rows, n).
            kick: of the new rows, (layers, rows, n).
            start: the covariances where the sweep started, (rows, rows).
        """

    @abstractmethod
    def kicks(self, states: Array, feedback: Array, pull: Array) -> Array:
        """Rows of ``kick`` after a sweep: (layers, rows, n).

        Args:
            states: of the sweep, (depths, rows, 3n).
            feedback: of the new rows, (depths, rows, n).
            pull: how far past updates move them, (n,).
        """

    @abstractmethod
    def extend(self, other: Self, rows: slice) -> None:
        """Append a step's rows to the products its equations are made of, both sweeps done.

        Args:
            other: the other side: d for x, x for d.
            rows: numbers of the step's vectors.
        """

    def boundary(self, other: Self, new: Array, n: int, w: Array, keep: int) -> tuple[Array, Array]:
        """Where a sweep starts: (response, cov, cross) of new rows, and the first ones' mutual cov.

        There ``own = source U - (w * source source^T) other``; the second term is a trained U
        (or V). Shapes (rows, 3n) and (keep, keep).

        Args:
            other: the other side: d for x, x for d.
            new: sources of the new rows: inputs, or gradients of the loss.
            n: how many old vectors there are.
            w: weights of past updates of U (or V), (n,).
            keep: how many of the rows are a minibatch.
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

    def follow(self, other: Self, states: Array, start: Array, pull: Array) -> Rows:
        """What follows from the rows of a sweep: feedback, kick, and covariances among them.

        Args:
            other: the other side: d for x, x for d.
            states: of the sweep, (depths, rows, 3n).
            start: covariances among the new rows where it started, (rows, rows).
            pull: how far past updates move the new rows.
        """
        n = pull.shape[-1]
        feedback = states[:, :, :n] @ other.resolvent[::-1, :n, :n]
        kick = self.kicks(states, feedback, pull)
        return Rows(feedback, kick, self.among(other, states, feedback, kick, start))

    def fresh(self) -> Array:
        """Covariance of the noise that initial weights add, per unit of p: (depths, N, N)."""
        return self.rate * self.cov

    def file(self, states: Array, rows: slice, followed: Rows) -> None:
        """Store the rows of a sweep and what follows from them.

        Args:
            states: of the sweep, (depths, rows, 3n).
            rows: numbers of the new vectors.
            followed: what follows from the states.
        """
        n = rows.start
        response, cov, cross = (states[:, :, i * n : (i + 1) * n] for i in range(3))
        self.response[:, rows, :n] = response
        self.cov[:, rows, :n], self.cov[:, :n, rows] = cov, cov.transpose(0, 2, 1)
        self.cross[:, rows, :n] = cross
        self.feedback[:, rows, :n], self.kick[:, rows, :n] = followed.feedback, followed.kick
        self.cov[:, rows, rows] = followed.among

    def close(self, other: Self, rows: slice) -> None:
        """Append a step's rows to the resolvent, once both sweeps have been filed.

        Args:
            other: the other side: d for x, x for d.
            rows: numbers of the step's vectors.
        """
        n, eye = rows.start, np.arange(rows.start, rows.stop)
        # (I - PQ)^-1 = I + P [Q (I - PQ)^-1]; P is strictly causal: old rows of [] are enough.
        self.resolvent[:, rows, :n] = self.response[:, rows, :n] @ other.feedback[::-1, :n, :n]
        self.resolvent[:, eye, eye] = 1.0


def turned(stack: Array) -> Array:
    """A stack of matrices transposed, and in the other sweep's order (a view)."""
    return stack[::-1].transpose(0, 2, 1)


def train(
    problem: Problem, x: S, d: S, *, pull: Array, positions: Array, depth: float, history: bool
) -> Solution:
    """Every step of a linear network, with one matrix per block or two: up, loss, down.

    Args:
        problem: the steps, scaling and weights of past updates.
        x: the side that goes up.
        d: the side that goes down.
        pull: how far, in one layer, each past update moves the vectors of a step, (..., steps + 1,
            N); what stands before the last two axes (the matrices of a block) is the ``Side``'s to
            read.
        positions: of the depths, from 0 to 1.
        depth: L, for messages.
        history: keep every covariance.
    """
    kernel = np.zeros((problem.vectors, problem.vectors))
    step_of_vector = [t for t, step in enumerate(problem.steps) for _ in step.inputs]
    memory = pull[..., step_of_vector, :]
    ledger = Ledger(problem=problem, positions=positions)
    status, mismatch = Status(), 0.0
    updates = _updates(problem, history)

    # Overflow is a result here: whatever is not finite ends training as ``exploded``.
    with np.errstate(all="ignore"):
        for t, rows, inputs in problem.queries():
            n, batch = rows.start, rows.stop - rows.start
            start, among = x.boundary(d, inputs, n, problem.input[t, :n], batch)
            mine, top = x.sweep(d, start, pull[..., t, :n], memory, batch)
            cov = top[:, n : 2 * n]
            # Coefficients of x^L on nV, P (I - QP)^-1 chi; a trained V adds <x_t|x_s> chi_s.
            on_v = top[:, :n] @ (d.resolvent[0, :n, :n] @ d.source[:n])
            outputs = on_v - (problem.readout[t, :n] * cov) @ d.source[:n]
            if not (np.isfinite(mine).all() and np.isfinite(outputs).all()):
                status = exploded(t, problem, depth)
                break
            if t == len(problem.steps):
                ledger.query(t, 0, outputs, np.zeros((len(positions), 0)))
                break
            followed = x.follow(d, mine, among, pull[..., t, :n])
            f = ledger.query(t, batch, outputs, np.einsum("lbb->lb", followed.among))
            kernel[rows, :n], kernel[:n, rows] = cov[:batch], cov[:batch].T
            kernel[rows, rows] = followed.among[-1]
            # <x|d> at the top is known twice: from the sweep, and from what the top layer is.
            known = on_v[:batch] @ d.source[:n].T + cov[:batch] @ d.response[0, :n, :n].T
            mismatch = max(mismatch, _disagreement(top[:batch, 2 * n :], known, d.source[:n]))
            if t >= updates:
                break
            x.file(mine, rows, followed)
            chi = problem.steps[t].gradient(f)
            start, among = d.boundary(x, chi, n, problem.readout[t, :n], batch)
            x.source[rows], d.source[rows] = inputs[:batch], chi
            # Within a minibatch <x|d> is the same at every depth: updates are strictly causal.
            x.cross[:, rows, rows] = on_v[:batch] @ chi.T + cov[:batch] @ start[:, :n].T
            states, _ = d.sweep(x, start, pull[..., t, :n], memory, batch)
            if not np.isfinite(states).all():
                status = exploded(t, problem, depth)
                break
            d.file(states, rows, d.follow(x, states, among, pull[..., t, :n]))
            for own, other in ((x, d), (d, x)):
                own.close(other, rows)
            # After both have been closed: each side's products hold the other's resolvent.
            for own, other in ((x, d), (d, x)):
                own.extend(other, rows)

    done = sum(len(f) for f in ledger.outputs)
    return ledger.close(
        kernel=kernel[:done, :done],
        status=status,
        error_estimate=mismatch if status.ok else np.nan,
        history=_history(x, d) if history and status.ok else None,
    )


def _updates(problem: Problem, history: bool) -> int:
    """How many steps' updates anyone sees: only held-out inputs and the history see the last."""
    return len(problem.steps) - (problem.held_out is None and not history)


def remembered(problem: Problem, history: bool) -> int:
    """How many training vectors a ``Side`` has to hold: those whose updates are seen."""
    updates = _updates(problem, history)
    return problem.rows[updates - 1].stop if updates else 0


def _disagreement(swept: Array, known: Array, chi: Array) -> float:
    """How far two computations of <x|d> at the top differ, in units of an output."""
    # At the top <x|d> is f chi^T: over the size of chi it is an error of f.
    scale = float(np.abs(chi).max(initial=0.0))
    return float(np.abs(swept - known).max(initial=0.0)) / scale if scale else 0.0


def _history(x: Side, d: Side) -> History:
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
