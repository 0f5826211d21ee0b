"""A training problem ready to be solved: checked steps, exact scaling, weights of past updates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from depthmup.limits.losses import Array, _matrix
from depthmup.limits.momentum import SGD, Rate, remaining, update_weights
from depthmup.limits.parametrization import Parametrization, parametrization
from depthmup.limits.step import Step, check_steps
from depthmup.rules import Exponent


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Everything a solver needs except the depth.

    Training vectors are numbered in time order: step t owns ``rows[t]``. ``hidden``, ``input``
    and ``readout`` are ``update_weights`` of W, U and V, expanded to vectors: entry [t, s] is how
    much of the gradient of training vector s the weights of step t carry, shape (steps + 1, N).
    """

    steps: tuple[Step, ...]
    rows: tuple[slice, ...]
    held_out: Float[Array, "rows d_in"] | None
    scaling: Parametrization
    hidden: Float[Array, "times vectors"]
    input: Float[Array, "times vectors"]
    readout: Float[Array, "times vectors"]

    @property
    def vectors(self) -> int:
        """N, the number of training vectors."""
        result: int = self.rows[-1].stop
        return result

    @property
    def d_in(self) -> int:
        result: int = self.steps[0].inputs.shape[1]
        return result

    @property
    def d_out(self) -> int:
        return self.steps[0].loss.shape[1]

    def queries(self) -> Iterator[tuple[int, slice, Array]]:
        """For each step, and for the end of training: (step, its rows, the inputs to sweep).

        The inputs are the minibatch followed by the held-out inputs, which see the same weights.
        """
        extra = np.zeros((0, self.d_in)) if self.held_out is None else self.held_out
        for t, (step, rows) in enumerate(zip(self.steps, self.rows, strict=True)):
            yield t, rows, np.concatenate([step.inputs, extra])
        if self.held_out is not None:
            yield len(self.steps), slice(self.vectors, self.vectors), extra


def problem(
    steps: Sequence[Step],
    *,
    multiplier: float,
    lr: Rate,
    alpha: Exponent,
    gamma: Exponent,
    optimizer: SGD | None = None,
    held_out: ArrayLike | None = None,
) -> Problem:
    """Check everything that can be checked before any work, and number the training vectors.

    Args:
        steps: minibatches, with any loss.
        multiplier: the branch multiplier a.
        lr: learning rate of the (first) matrix in blocks, one number or one per step.
        alpha: exponent of the branch multiplier.
        gamma: exponent of an update's size.
        optimizer: momentum, decay and the other rates; plain SGD unless given.
        held_out: inputs (rows, d_in) to evaluate.

    Raises:
        ValueError: steps of several networks, rates that are not finite, a momentum or decay out
            of range, held-out inputs of another size.
        TypeError: steps that are no ``limits.Step``.
    """
    optimizer = optimizer or SGD()
    checked = check_steps(steps)
    extra = None if held_out is None else _matrix(held_out, "held_out", "(batch, d_in)")
    if extra is not None and extra.shape[1] != checked[0].inputs.shape[1]:
        raise ValueError(
            f"held_out has d_in={extra.shape[1]} but the steps have "
            f"d_in={checked[0].inputs.shape[1]}."
        )
    sizes = [len(step.inputs) for step in checked]
    ends = np.cumsum(sizes)
    rows = tuple(slice(int(e) - n, int(e)) for e, n in zip(ends, sizes, strict=True))

    def weights(rate: Rate, name: str, decay: float = 0.0) -> Array:
        """How much of every vector's gradient a matrix carries at every step, (steps + 1, N).

        Args:
            rate: the matrix's learning rate, one number or one per step.
            name: of the rate, for messages.
            decay: of the matrix, per unit of the rate; 0 for none.
        """
        past = update_weights(rate, len(checked), optimizer.momentum, name, decay)
        return np.repeat(past, sizes, axis=1)

    return Problem(
        steps=checked,
        rows=rows,
        held_out=extra,
        scaling=parametrization(multiplier, alpha, gamma),
        # Decay is of the matrices in blocks: U and V have none.
        hidden=weights(lr, "lr", optimizer.decay),
        input=weights(optimizer.lr_input, "lr_input"),
        readout=weights(optimizer.lr_readout, "lr_readout"),
    )


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A branch with two matrices, ``a L^-alpha W2 phi(W1 x)``, apart from its activation.

    ``multiplier`` is a. ``width_ratio`` is rho, the hidden width over the width: W1 has rho n rows
    and entries of variance 1/n, W2 entries of variance 1/(rho n). ``rms_norm`` normalizes x before
    W1; LayerNorm has the same limit.

    >>> Branch(width_ratio=4).multiplier
    1.0
    """

    multiplier: float = 1.0
    width_ratio: float = 1.0
    rms_norm: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.width_ratio) and self.width_ratio > 0):
            raise ValueError(
                "width_ratio is the hidden width over the width, positive and finite; got "
                f"{self.width_ratio}."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoMatrices:
    """A problem whose blocks have two matrices, ``x + a L^-alpha W2 phi(W1 x)``.

    ``problem.hidden`` are the weights of past updates of W1, ``second`` (steps + 1, N) those of W2;
    ``width_ratio`` is the hidden width over the width. ``remains`` and ``second_remains``
    (steps + 1,) are the parts of the initial W1 and W2 that decay leaves.
    """

    problem: Problem
    second: Float[Array, "times vectors"]
    width_ratio: float
    remains: Float[Array, " times"]
    second_remains: Float[Array, " times"]


def two_matrices(
    steps: Sequence[Step],
    *,
    lr: Rate,
    alpha: Exponent,
    gamma: Exponent,
    branch: Branch | None = None,
    optimizer: SGD | None = None,
    held_out: ArrayLike | None = None,
) -> TwoMatrices:
    """``problem`` for blocks with two matrices: all checks of what trains them are here.

    Args:
        steps: minibatches, with any loss.
        lr: learning rate of W1, one number or one per step.
        alpha: exponent of the branch multiplier.
        gamma: exponent of an update's size.
        branch: multiplier and width ratio, 1 unless given.
        optimizer: momentum, decay and the other rates; plain SGD unless given.
        held_out: inputs (rows, d_in) to evaluate.

    Raises:
        ValueError: as ``problem``; or for the rates of the second matrix.
    """
    branch, optimizer = branch or Branch(), optimizer or SGD()
    first = problem(
        steps,
        multiplier=branch.multiplier,
        lr=lr,
        alpha=alpha,
        gamma=gamma,
        optimizer=optimizer,
        held_out=held_out,
    )
    lr_second, decay = optimizer.second(lr), optimizer.decay
    count, sizes = len(first.steps), [len(step.inputs) for step in first.steps]
    second = update_weights(lr_second, count, optimizer.momentum, "lr_second", decay)
    return TwoMatrices(
        problem=first,
        second=np.repeat(second, sizes, axis=1),
        width_ratio=float(branch.width_ratio),
        remains=remaining(lr, count, decay, "lr"),
        second_remains=remaining(lr_second, count, decay, "lr_second"),
    )


def check_tol(tol: float) -> None:
    """Raise unless the tolerance is one that an error can meet."""
    if not tol > 0:
        raise ValueError(f"tol must be positive; got {tol}.")
