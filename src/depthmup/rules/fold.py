"""Folding: moving a forward multiplier into the weight, leaving the trajectory unchanged."""

import math
from dataclasses import dataclass

from depthmup.rules.family import Family


@dataclass(frozen=True, kw_only=True, slots=True)
class Folded:
    """Factors on a weight's own settings that stand for a forward multiplier A.

    Attributes:
        init, lr, epsilon, decay: factors after folding.
    """

    init: float
    lr: float
    epsilon: float
    decay: float


def fold(multiplier: float, family: Family) -> Folded:
    """Replace A * W by V = A * W, trained without a multiplier, on the same trajectory.

    The gradient of V is 1/A times that of W, and V, A times as large, must move A times as far. An
    update of degree k in the gradient and j in the weight (``Response``) therefore needs

        init  -> A * init,           lr    -> A**(1 + k - j) * lr,
        epsilon -> epsilon / A**e,   decay -> decay / A**(1 + k - j)   (lr * decay is unchanged),

    where e is the degree of what epsilon is added to, and decay is decoupled
    (w <- w - lr * decay * w), or L2 coupled to SGD. Exact for every A > 0 when nothing nonlinear or
    normalizing stands between the weight and the multiplication.

    Args:
        multiplier: A, of the forward pass.
        family: of the optimizer that trains the parameter.

    Returns:
        What A multiplies in initialization, learning rate, epsilon and decay.

    Raises:
        ValueError: the multiplier is not positive and finite.

    Example:
        >>> fold(0.5, Family.RAW)
        Folded(init=0.5, lr=0.25, epsilon=2.0, decay=4.0)

    *Source:* TP5 (arXiv 2203.03466) Lemma J.1, extended to epsilon, decay and spectral updates.
    """
    if not (math.isfinite(multiplier) and multiplier > 0):
        raise ValueError(
            f"A multiplier can be folded when it is positive and finite; got {multiplier!r}. "
            "Keep any other one explicit."
        )
    step = multiplier ** (1 + family.degree - family.weight_degree)
    epsilon = multiplier**-family.response.epsilon_degree
    return Folded(init=multiplier, lr=step, epsilon=epsilon, decay=1 / step)
