"""One step of training: a minibatch of inputs and the loss of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from depthmup.limits.losses import Array, Loss, _matrix


@dataclass(frozen=True, eq=False)
class Step:
    """A minibatch: ``inputs`` (batch, d_in) and the ``loss`` of their outputs (batch, d_out).

    >>> from depthmup import limits
    >>> limits.Step([[1.0, 0.5]], limits.mse([[0.3]])).inputs.shape
    (1, 2)
    """

    inputs: Float[Array, "batch d_in"]
    loss: Loss

    def __init__(self, inputs: ArrayLike, loss: Loss) -> None:
        rows = _matrix(inputs, "inputs", "(batch, d_in)")
        missing = [
            name for name in ("value", "gradient") if not callable(getattr(loss, name, None))
        ]
        if missing or not hasattr(loss, "shape"):
            raise TypeError(
                "A loss needs callables `value` and `gradient` and the `shape` (batch, d_out) of "
                f"the outputs; {type(loss).__name__} lacks {', '.join(missing) or 'shape'}. "
                "Use limits.mse, limits.cross_entropy, or limits.Loss(value=..., gradient=..., "
                "shape=...)."
            )
        if loss.shape[0] != len(rows):
            raise ValueError(
                f"The inputs have {len(rows)} rows but the loss is for {loss.shape[0]}: "
                "one row of targets per row of inputs."
            )
        object.__setattr__(self, "inputs", rows)
        object.__setattr__(self, "loss", loss)

    def gradient(self, outputs: Float[Array, "batch d_out"]) -> Float[Array, "batch d_out"]:
        """The loss's gradient at these outputs, once it is known to be one: (batch, d_out)."""
        gradient = np.asarray(self.loss.gradient(outputs), dtype=np.float64)
        if gradient.shape != outputs.shape:
            raise ValueError(
                f"A loss's gradient has the shape of the outputs, {outputs.shape}; got "
                f"{gradient.shape}. Return one derivative per sample and output."
            )
        return gradient


def check_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps as a tuple, once they are known to belong to one network."""
    steps = tuple(steps)
    if not steps:
        raise ValueError("Training needs at least one step; got none.")
    for number, step in enumerate(steps):
        if not isinstance(step, Step):
            raise TypeError(f"steps[{number}] is a {type(step).__name__}, not a limits.Step.")
        for what, first, here in (
            ("d_in", steps[0].inputs.shape[1], step.inputs.shape[1]),
            ("d_out", steps[0].loss.shape[1], step.loss.shape[1]),
        ):
            if here != first:
                raise ValueError(
                    f"All steps train one network, but steps[0] has {what}={first} and "
                    f"steps[{number}] has {what}={here}."
                )
    return steps
