"""One training loop for every limit: up for the outputs, the loss, down for the gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from jaxtyping import Float

from depthmup.limits.averages import Averages
from depthmup.limits.problem import Problem
from depthmup.limits.solution import History, Solution, SolveStatus
from depthmup.limits.step import Array


class Method(ABC):
    """The equations of one kind of block at one kind of depth: what a minibatch does to them.

    ``positions`` are the depths at which x is known, from 0 to 1. A method holds all that earlier
    steps left, and what a pass up leaves for its way down. ``status`` is what its passes found
    wrong, such as an iteration that did not settle.
    """

    def __init__(self, problem: Problem, positions: Float[Array, " depths"]) -> None:
        self.problem, self.positions = problem, positions
        self.outputs: list[Array] = []
        self.losses: list[float] = []
        self.rms: list[Array] = []
        self.held_out: list[Array] = []
        self.status = SolveStatus()

    @abstractmethod
    def up(
        self, t: int, rows: slice, inputs: Float[Array, "queries d_in"]
    ) -> tuple[Float[Array, "queries d_out"], Float[Array, "depths _"]]:
        """Outputs of a minibatch and of held-out inputs after it; |x|^2 / n of the minibatch.

        ``rows`` are the numbers of the minibatch's vectors, none at the end of training. Held-out
        inputs leave no trace.
        """

    @abstractmethod
    def down(self, t: int, rows: slice, chi: Float[Array, "batch d_out"]) -> None:
        """The minibatch's gradients through every block, from the loss's ``chi`` to the input."""

    @abstractmethod
    def kernel(self) -> Float[Array, "known known"]:
        """<x|x> at the last layer, over the training vectors that were reached, or over all."""

    def error(self) -> float:
        """An estimate of the outputs' error; that of what is sampled is seen in other samples."""
        return 0.0

    def history(self) -> History | None:
        """Every covariance of training, of methods that have them."""
        return None

    def record(self, t: int, batch: int, outputs: Array, squares: Array) -> Array:
        """Keep the results of ``up``; returns the outputs of the minibatch."""
        if self.problem.held_out is not None:
            self.held_out.append(outputs[batch:])
        if t < len(self.problem.steps):
            self.outputs.append(outputs[:batch])
            self.losses.append(self.problem.steps[t].value(outputs[:batch]))
            # Rounding may leave a square of zero below it.
            self.rms.append(np.sqrt(np.maximum(squares[:, :batch], 0.0)))
        return outputs[:batch]

    @property
    def done(self) -> int:
        """How many training vectors were reached."""
        return sum(len(f) for f in self.outputs)

    @property
    def scale(self) -> float:
        """The largest output, or 1: relative errors times it are absolute."""
        return max(1.0, *(float(np.abs(f).max()) for f in self.outputs), 0.0)

    def solution(self, status: SolveStatus) -> Solution:
        """The solution, with nan where training did not get to."""
        p, depths, status = self.problem, len(self.positions), self.status if status.ok else status
        missing = [len(step.inputs) for step in p.steps[len(self.outputs) :]]
        held_out = None
        if p.held_out is not None:
            held_out = np.full((len(p.steps) + 1, len(p.held_out), p.d_out), np.nan)
            for kept, rows in zip(held_out, self.held_out, strict=False):
                kept[:] = rows
        return Solution(
            outputs=(*self.outputs, *(np.full((b, p.d_out), np.nan) for b in missing)),
            losses=np.array(self.losses + [np.nan] * len(missing)),
            rms=(*self.rms, *(np.full((depths, b), np.nan) for b in missing)),
            positions=self.positions,
            kernel=self.kernel()[: self.done, : self.done].copy(),
            held_out=held_out,
            status=status,
            error_estimate=np.nan if status.kind == "exploded" else self.error(),
            problem=p,
            activation=p.activation.name,
            history=self.history() if p.history and status.ok else None,
        )


class Sampled(Method):
    """A network of finite depth that samples carry: vectors of several, or of one held-out input.

    ``c`` and ``kick`` are a branch's factor and an update's. ``vectors`` counts the rows of states:
    held-out inputs take turns in one more. Gradients come for the first ``updated``.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, problem.positions)
        self.activation, self.depth = problem.activation, problem.layers
        self.c, self.kick = problem.factor, problem.kick
        self.vectors = problem.vectors + (problem.held_out is not None)
        self.updated = problem.remembered

    @abstractmethod
    def pass_up(self, t: int, n: int, inputs: Float[Array, "rows d_in"]) -> tuple[Array, Array]:
        """Outputs (rows, d_out) of new vectors, numbered from n, and |x|^2 / n at every depth."""

    def up(self, t: int, rows: slice, inputs: Array) -> tuple[Array, Array]:
        batch, n = rows.stop - rows.start, rows.start
        # Held-out inputs go one by one: each is its own problem, and leaves no trace. The minibatch
        # comes last: its rows are those that stay.
        extra = [self.pass_up(t, n, row[None])[0] for row in inputs[batch:]]
        if not batch:
            return np.concatenate(extra), np.zeros((self.depth + 1, 0))
        outputs, squares = self.pass_up(t, n, inputs[:batch])
        return np.concatenate([outputs, *extra]), squares


def train(method: Method) -> Solution:
    """Every step of training, until something overflows."""
    problem, status = method.problem, SolveStatus()
    # Overflow is a result here: whatever is not finite ends training as ``exploded``.
    with np.errstate(all="ignore"):
        for t, rows, inputs in problem.queries():
            try:
                outputs, squares = method.up(t, rows, inputs)
                require_finite(outputs, squares)
                f = method.record(t, rows.stop - rows.start, outputs, squares)
                require_finite(np.array(method.losses[t:]))
                if t < problem.updates:
                    method.down(t, rows, problem.steps[t].gradient(f))
            except (FloatingPointError, np.linalg.LinAlgError):
                status = _exploded(t, problem)
                break
    return method.solution(status)


def _exploded(step: int, problem: Problem) -> SolveStatus:
    """The status of training whose numbers overflowed at ``step``."""
    message = (
        f"values overflowed at step {step} (depth={problem.depth}, alpha={problem.alpha}, "
        f"gamma={problem.gamma}, multiplier={float(problem.branch.multiplier)}). Lower the "
        "learning rate or the multiplier, or use alpha >= 1/2 and alpha + gamma >= 1."
    )
    return SolveStatus(kind="exploded", step=step, message=message)


def require_finite(*values: Array) -> None:
    """End training as exploded where a value is not finite."""
    if not all(np.isfinite(array).all() for array in values):
        raise FloatingPointError


def combined(solutions: Sequence[Solution], averages: Averages, advice: str) -> Solution:
    """One solution from those of every sample, with the error of its outputs.

    ``unresolved`` where the error is above the problem's ``tol``; the first that exploded where
    one did.
    """
    for solution in solutions:
        if solution.status.kind == "exploded":
            return solution
    last = solutions[-1]

    def over_samples(name: str) -> tuple[Array, float]:
        parts = [getattr(s, name) for s in solutions]
        return averages.estimate(np.array([np.concatenate(p, axis=-2) for p in parts]))

    outputs, error = over_samples("outputs")
    steps = last.problem.steps
    ends = np.cumsum([len(step.inputs) for step in steps])[:-1]
    per_step = tuple(np.split(outputs, ends))
    held_out = None
    if last.held_out is not None:
        held_out, held_error = averages.estimate(np.array([s.held_out for s in solutions]))
        error = max(error, held_error)
    rms, _ = averages.estimate(np.array([np.concatenate(s.rms, axis=1) for s in solutions]))
    kernel, _ = averages.estimate(np.array([s.kernel for s in solutions]))
    history = None
    if last.history is not None:
        parts = {f.name: [getattr(s.history, f.name) for s in solutions] for f in fields(History)}
        history = History(**{n: averages.estimate(np.array(p))[0] for n, p in parts.items()})
    # Averages cannot be better than what they are of: every solve has its own error in depth.
    error = max(error, *(s.error_estimate for s in solutions))
    status = next((s.status for s in solutions if not s.status.ok), SolveStatus())
    whole = replace(
        last,
        outputs=per_step,
        losses=np.array([s.value(f) for s, f in zip(steps, per_step, strict=True)]),
        rms=tuple(np.split(rms, ends, axis=1)),
        kernel=kernel,
        held_out=held_out,
        status=status,
        error_estimate=error,
        history=history,
    )
    resolved = not status.ok or error <= last.problem.tol
    return whole if resolved else unresolved(whole, "neurons", advice)


def unresolved(solution: Solution, what: str, advice: str) -> Solution:
    """A solution whose error is above the problem's tolerance."""
    error, tol = solution.error_estimate, solution.problem.tol
    message = f"{what} leave an error of about {error:.1e} > tol={tol:.1e}. {advice}"
    return replace(solution, status=SolveStatus(kind="unresolved", message=message))
