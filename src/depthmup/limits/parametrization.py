"""How a branch and its updates scale with depth, as the limits need it: exact exponents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real

from depthmup.rules import Exponent, exponent


@dataclass(frozen=True, kw_only=True)
class Parametrization:
    """The branch is multiplied by ``a L^-alpha``; a weight in it moves by ``L^-gamma``.

    ``x^l = x^{l-1} + a L^-alpha W^l x^{l-1}`` and, at step t,
    ``W^l <- W^l - lr a L^-gamma (1/n) d^l x^{l-1,T}``, where ``d = n dloss/dx`` is of order one.
    Plain SGD on W with learning rate ``lr L^(alpha-gamma)`` is this update: lr for Depth-muP.

    *Source:* arXiv 2310.02244, Definition 6.1 (raw gradients, Q the identity).
    """

    multiplier: float
    alpha: Fraction
    gamma: Fraction

    def branch(self, depth: int) -> float:
        """``c = a L^-alpha``, the factor in front of every branch."""
        result: float = self.multiplier * depth ** -float(self.alpha)
        return result

    def kick(self, depth: int) -> float:
        """``a L^-gamma``, the size of an update of W per unit of learning rate."""
        result: float = self.multiplier * depth ** -float(self.gamma)
        return result

    def noise_rate(self, depth: float) -> float:
        """``a^2 L^(1-2 alpha)``: how fast the random initial weights move x, per unit depth."""
        return self.multiplier**2 * _power(depth, 1 - 2 * self.alpha)

    def drift_rate(self, depth: float) -> float:
        """``a^2 L^(1-alpha-gamma)``: how fast updates move x, per unit depth and learning rate."""
        return self.multiplier**2 * _power(depth, 1 - self.alpha - self.gamma)


def parametrization(multiplier: float, alpha: Exponent, gamma: Exponent) -> Parametrization:
    """The exponents made exact (``0.3`` means 3/10) and the multiplier checked."""
    if not math.isfinite(multiplier):
        raise ValueError(f"The branch multiplier must be finite; got {multiplier}.")
    return Parametrization(
        multiplier=float(multiplier),
        alpha=exponent(alpha, name="alpha"),
        gamma=exponent(gamma, name="gamma"),
    )


def require_infinite_depth(scaling: Parametrization) -> None:
    """Raise unless training has a stable, nontrivial, faithful limit as depth goes to infinity.

    *Source:* arXiv 2310.02244, Claims 7.1 to 7.4.
    """
    alpha, gamma = scaling.alpha, scaling.gamma
    # A branch multiplies |x|^2 by 1 + a^2 L^(-2 alpha): L of them by exp(a^2 L^(1 - 2 alpha)).
    if alpha < Fraction(1, 2):
        raise ValueError(
            f"alpha={alpha} < 1/2 has no infinite-depth limit: at initialization |x|^2 explodes "
            f"like exp(a^2 L^({1 - 2 * alpha})). Use alpha >= 1/2, or a finite depth."
        )
    # L branches, each moved by L^-alpha L^-gamma in one direction: they add up.
    growth = 1 - alpha - gamma
    if growth > 0:
        raise ValueError(
            f"alpha+gamma={alpha + gamma} < 1 has no infinite-depth limit: the first update moves "
            f"the output by L^({growth}), which is divergent. Use gamma={1 - alpha}, or a "
            "finite depth."
        )
    if growth < 0:
        raise ValueError(
            f"alpha+gamma={alpha + gamma} > 1 makes the infinite-depth limit trivial: every update "
            f"moves the output by L^({growth}), so the network stays as initialized. "
            f"Use gamma={1 - alpha}, or a finite depth."
        )
    if alpha > 1:
        raise ValueError(
            f"alpha={alpha} > 1 is unfaithful: preactivations grow like L^({-gamma}), so only "
            "alpha in [1/2, 1] has an infinite-depth limit. Use a finite depth."
        )


def check_depth(depth: float) -> int | float:
    """A positive whole number of layers, or infinity."""
    # A bool is a number to Python: depth=True would be one layer.
    if isinstance(depth, bool) or not isinstance(depth, Real):
        raise TypeError(
            f"depth must be a positive integer or math.inf; got {type(depth).__name__}."
        )
    if depth == math.inf:
        return math.inf
    if not (depth >= 1 and float(depth).is_integer()):
        raise ValueError(
            f"depth counts residual branches: a positive integer or math.inf; got {depth}."
        )
    return int(depth)


def _power(depth: float, exponent: Fraction) -> float:
    # At infinite depth 0, 1 or inf: the exact exponent decides, so 1 is met only where it is 0.
    return float(depth ** float(exponent))
