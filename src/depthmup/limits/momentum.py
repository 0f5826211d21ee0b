"""How much of each past update a weight still carries: learning rates, schedules and momentum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from depthmup.limits.losses import Array

Rate = float | Sequence[float] | Array


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
    lr: Rate, steps: int, momentum: float = 0.0, name: str = "lr", decay: float = 0.0
) -> Float[Array, "times steps"]:
    """``w[t, s]``: the weight at step t has moved by ``-w[t, s]`` times step s's gradient.

    ``w[t, s] = sum_{tau=s}^{t-1} lr[tau] momentum^(tau-s)`` for s < t, else 0; shape
    (steps + 1, steps), the last row being the weights after training. With a constant rate and
    no momentum it is ``lr`` below the diagonal. Decay multiplies a weight by ``1 - lr[t] decay``
    before it moves, and with it what it carries from the past.

    >>> update_weights([1.0, 0.5], 2, momentum=0.9)[2]
    array([1.45, 0.5 ])

    *Source:* heavy-ball SGD as ``torch.optim.SGD`` computes it (no dampening, no Nesterov),
    unrolled, with the decoupled decay of ``torch.optim.AdamW``. The paper has a constant rate and
    neither momentum nor decay.
    """
    per_step = rates(lr, steps, name)
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"momentum must lie in [0, 1); got {momentum}.")
    left = _left_by_decay(per_step, decay)
    weights = np.zeros((steps + 1, steps))
    for t in range(1, steps + 1):
        reach = momentum ** np.arange(t - 1, -1, -1.0) if momentum else np.eye(t)[-1]
        weights[t, :t] = left[t - 1] * weights[t - 1, :t] + per_step[t - 1] * reach
    return weights


def remaining(lr: Rate, steps: int, decay: float, name: str = "lr") -> Float[Array, " times"]:
    """The part of its initial value that decay leaves of a weight at each step: (steps + 1,).

    >>> remaining(0.5, 2, decay=0.2)
    array([1.  , 0.9 , 0.81])
    """
    return np.cumprod(np.append(1.0, _left_by_decay(rates(lr, steps, name), decay)))


def _left_by_decay(per_step: Array, decay: float) -> Array:
    if not (np.isfinite(decay) and decay >= 0):
        raise ValueError(f"decay must be finite and not negative; got {decay}.")
    return 1.0 - decay * per_step
