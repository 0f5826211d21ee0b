"""One training loop for every limit: up for the outputs, the loss, down for the gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from depthmup.limits.averages import Averages
from depthmup.limits.losses import Array
from depthmup.limits.problem import Problem
from depthmup.limits.solution import Ledger, Solution, Status, exploded


class Method(ABC):
    """The equations of one kind of block at one kind of depth: what a minibatch does to them.

    ``positions`` are the depths at which x is known, from 0 to 1. A method holds all that earlier
    steps left; what a pass up leaves for its way down, too.
    """

    problem: Problem
    positions: Float[Array, " depths"]

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
    def close(self, ledger: Ledger, status: Status) -> Solution:
        """The solution: its kernel, the estimate of its error, its history."""


def train(method: Method) -> Solution:
    """Every step of training, until something overflows."""
    problem = method.problem
    ledger, status = Ledger(problem=problem, positions=method.positions), Status()
    # Overflow is a result here: whatever is not finite ends training as ``exploded``.
    with np.errstate(all="ignore"):
        for t, rows, inputs in problem.queries():
            try:
                outputs, squares = method.up(t, rows, inputs)
                require_finite(outputs, squares)
                f = ledger.query(t, rows.stop - rows.start, outputs, squares)
                if t < problem.updates:
                    method.down(t, rows, problem.steps[t].gradient(f))
            except (FloatingPointError, np.linalg.LinAlgError):
                status = exploded(t, problem)
                break
    return method.close(ledger, status)


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
    # Averages cannot be better than what they are of: every solve has its own error in depth.
    error = max(error, *(s.error_estimate for s in solutions))
    status = next((s.status for s in solutions if not s.status.ok), Status())
    tol = last.problem.tol
    if status.ok and not error <= tol:
        message = f"neurons leave an error of about {error:.1e} > tol={tol:.1e}. {advice}"
        status = Status(kind="unresolved", message=message)
    return replace(
        last,
        outputs=per_step,
        losses=np.array([s.loss.value(f) for s, f in zip(steps, per_step, strict=True)]),
        rms=tuple(np.split(rms, ends, axis=1)),
        kernel=kernel,
        held_out=held_out,
        status=status,
        error_estimate=error,
    )
