"""How much of each past update a weight still carries: learning rates, schedules and momentum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from depthmup.limits.losses import Array

Rate = float | Sequence[float] | Array


def update_weights(lr: Rate, steps: int, momentum: float = 0.0, name: str = "lr") -> Array:
    """``w[t, s]``: the weight at step t has moved by ``-w[t, s]`` times step s's gradient.

    ``w[t, s] = sum_{tau=s}^{t-1} lr[tau] momentum^(tau-s)`` for s < t, else 0; shape
    (steps + 1, steps), the last row being the weights after training. With a constant rate and
    no momentum it is ``lr`` below the diagonal.

    >>> update_weights([1.0, 0.5], 2, momentum=0.9)[2]
    array([1.45, 0.5 ])

    *Source:* heavy-ball SGD as ``torch.optim.SGD`` computes it (no dampening, no Nesterov),
    unrolled. The paper has a constant rate and no momentum.
    """
    rates = np.asarray(lr, dtype=np.float64)
    if rates.ndim == 0:
        rates = np.full(steps, float(rates))
    if rates.shape != (steps,):
        raise ValueError(
            f"{name} must be one number or one per step, shape ({steps},); got {rates.shape}."
        )
    if not np.isfinite(rates).all():
        raise ValueError(f"{name} must be finite; got {rates.tolist()}.")
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"momentum must lie in [0, 1); got {momentum}.")
    weights = np.zeros((steps + 1, steps))
    for t in range(1, steps + 1):
        reach = momentum ** np.arange(t - 1, -1, -1.0) if momentum else np.eye(t)[-1]
        weights[t, :t] = weights[t - 1, :t] + rates[t - 1] * reach
    return weights
