"""How much of each past update a weight still carries: learning rates, schedules and momentum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from depthmup.limits.step import Array

Rate = float | Sequence[float] | Array


@dataclass(frozen=True, kw_only=True, eq=False)
class SGD:
    """How a network is trained, beside the learning rate of the (first) matrix in its blocks.

    ``lr_second`` is that of W2 in blocks with two matrices, the same unless given. ``lr_input`` and
    ``lr_readout`` train U (U -= lr_input d^0 xi^T) and V (n V -= lr_readout x^L chi^T,
    chi = dloss/df), which are frozen unless given. Each is one number or one per step.
    ``momentum`` is heavy-ball, of everything that is trained. ``decay`` multiplies the matrices in
    blocks by ``1 - lr decay``, each with its own rate, at every step.

    >>> SGD(momentum=0.9, lr_readout=0.1).used
    ('lr_readout', 'momentum')

    *Source:* heavy-ball SGD as ``torch.optim.SGD`` computes it, with the decoupled decay of
    ``torch.optim.AdamW``.
    """

    lr_second: Rate | None = None
    lr_input: Rate = 0.0
    lr_readout: Rate = 0.0
    momentum: float = 0.0
    decay: float = 0.0

    def second(self, lr: Rate) -> Rate:
        """The learning rate of W2 beside W1's ``lr``."""
        return lr if self.lr_second is None else self.lr_second

    @property
    def used(self) -> tuple[str, ...]:
        """The names of all that differs from plain SGD on one matrix per block."""
        differs = {
            "lr_second": self.lr_second is not None,
            "lr_input": bool(np.any(np.asarray(self.lr_input))),
            "lr_readout": bool(np.any(np.asarray(self.lr_readout))),
            "momentum": bool(self.momentum),
            "decay": bool(self.decay),
        }
        return tuple(name for name, differ in differs.items() if differ)


def rates(lr: Rate, steps: int, name: str = "lr") -> Float[Array, " steps"]:
    """One learning rate per step, from one number or as many as there are steps."""
    per_step = np.asarray(lr, dtype=np.float64)
    if per_step.ndim == 0:
        per_step = np.full(steps, float(per_step))
    if per_step.shape != (steps,):
        raise ValueError(
            f"{name} must be one number or one per step, shape ({steps},); got {per_step.shape}."
        )
    if not np.isfinite(per_step).all():
        raise ValueError(f"{name} must be finite; got {per_step.tolist()}.")
    return per_step


def update_weights(
    lr: Float[Array, " steps"], momentum: float = 0.0, decay: float = 0.0
) -> Float[Array, "times steps"]:
    """``w[t, s]``: the weight at step t has moved by ``-w[t, s]`` times step s's gradient.

    ``w[t, s] = sum_{tau=s}^{t-1} lr[tau] momentum^(tau-s)`` for s < t, else 0; shape
    (steps + 1, steps), the last row being the weights after training. With a constant rate and
    no momentum it is ``lr`` below the diagonal. Decay multiplies a weight by ``1 - lr[t] decay``
    before it moves, and with it what it carries from the past.

    *Source:* heavy-ball SGD as ``torch.optim.SGD`` computes it (no dampening, no Nesterov),
    unrolled, with the decoupled decay of ``torch.optim.AdamW``. The paper has a constant rate and
    neither momentum nor decay.
    """
    steps = len(lr)
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"momentum must lie in [0, 1); got {momentum}.")
    left = _left_by_decay(lr, decay)
    weights = np.zeros((steps + 1, steps))
    for t in range(1, steps + 1):
        # Step t - 1 applies what momentum left of every gradient so far; its own whole, as 0^0 = 1.
        reach = momentum ** np.arange(t - 1, -1, -1.0)
        weights[t, :t] = left[t - 1] * weights[t - 1, :t] + lr[t - 1] * reach
    return weights


def remaining(lr: Float[Array, " steps"], decay: float) -> Float[Array, " times"]:
    """The part of its initial value that decay leaves of a weight at each step: (steps + 1,)."""
    return np.cumprod(np.append(1.0, _left_by_decay(lr, decay)))


def _left_by_decay(lr: Array, decay: float) -> Array:
    if not (np.isfinite(decay) and decay >= 0):
        raise ValueError(f"decay must be finite and not negative; got {decay}.")
    return 1.0 - decay * lr
