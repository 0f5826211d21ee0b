"""Where a pair (alpha, gamma) lies, computed: depth exponents of the exact recursion.

Claims 7.1 to 7.6 of the paper say how initialization, training and features scale with depth. Here
each is a measured exponent of a linear network of infinite width and growing finite depth, with no
network trained and none of the claims assumed:

- ``x_0``: RMS of the last layer at initialization. Stable at init: does not grow.
- ``x_1``: how far one step moves the last layer, relative to its RMS. Feature learning: does not
  vanish.
- ``f_1``: the output after one step. Stable in training: does not grow. Nontrivial: nor vanish.
- ``h_1``: RMS of preactivations W_t x after one step. Faithful: does not grow.
- ``linearization``: the update's share of the preactivations, RMS of (W_t - W_0) x over that of
  W_0 x. Layerwise linear: vanishes.
- ``kappa``: x at depths p and p + eps differs by eps^(1 - kappa) after one step, L first to
  infinity (the continuum of ``continuum`` at an L beyond all corrections).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from depthmup.limits import Solution, Step, linear, mse
from depthmup.rules import Exponent, exponent, region
from depthmup.statistics import Array
from reproduction.theory.diversity import feature_diversity


@dataclass(frozen=True, kw_only=True)
class DepthExponents:
    """Powers of depth, as computed: the quantity named grows like ``L**value``.

    ``x_0`` is infinite where x_0 explodes faster than any power. ``kappa`` is nan unless the
    limit of infinite depth exists. ``margin`` is how far from 0 an exponent must be to count.

    Attributes:
        alpha, gamma: the exponents that were asked for.
        x_1: how far one step moves the last layer, relative to its size.
        f_1: the output after one step.
        h_1: preactivations after one step.
        linearization: the share of the update in the preactivations.
    """

    alpha: Fraction
    gamma: Fraction
    x_0: float
    x_1: float
    f_1: float
    h_1: float
    linearization: float
    kappa: float
    margin: float

    @property
    def stable_at_init(self) -> bool:
        return self.x_0 <= self.margin

    @property
    def stable_in_training(self) -> bool:
        return self.stable_at_init and self.f_1 <= self.margin

    @property
    def nontrivial(self) -> bool:
        return self.f_1 >= -self.margin

    @property
    def faithful(self) -> bool:
        return self.h_1 <= self.margin

    @property
    def layerwise_linear(self) -> bool:
        return self.linearization <= -self.margin

    @property
    def region(self) -> str:
        """The region of Figure 1 that these exponents are in; kappa is 1/2 or 0."""
        return region(
            stable_at_init=self.stable_at_init,
            stable_in_training=self.stable_in_training,
            nontrivial=self.nontrivial,
            faithful=self.faithful,
            diverse=self.kappa > 1 / 4,
        )


@np.errstate(over="ignore", invalid="ignore")  # an explosion is an answer here
def depth_exponents(
    alpha: Exponent,
    gamma: Exponent,
    *,
    multiplier: float = 1.0,
    lr: float = 1.0,
    depths: Sequence[int] = (512, 1024, 2048, 4096, 8192),
    margin: float = 0.04,
) -> DepthExponents:
    """Exponents from networks of the given depths (each twice the one before).

    A quantity that is a power of L up to corrections that are smaller powers has local slopes
    that approach its exponent geometrically; the exponent is their extrapolated limit. Corrections
    of order L^(1 - 2 alpha) are slow near alpha = 1/2: with these depths, points at least 0.1 away
    from a boundary between regimes (or on it) are told apart.

    Example:
        >>> from depthmup import limits
        >>> e = depth_exponents("3/4", 0)
        >>> e.stable_in_training, round(e.f_1, 2)
        (False, 0.25)

    *Source:* the quantities are those of TP6 (arXiv 2310.02244) Section 7; they are computed by
    this package's own recursion.
    """
    if len(depths) < 4 or any(b != 2 * a for a, b in pairwise(depths)):
        raise ValueError(f"depths must be at least four, each twice the last; got {list(depths)}.")
    if not 0 < lr < math.inf:
        raise ValueError(
            f"lr must be positive and finite, as exponents are those of one step; got {lr}."
        )
    a, g = exponent(alpha, name="alpha"), exponent(gamma, name="gamma")
    todo = [Step([[1.0]], mse([[0.5]])), Step([[-0.5]], mse([[1.0]]))]
    table = [
        _quantities(
            linear(todo, depth=d, lr=lr, multiplier=multiplier, alpha=a, gamma=g, history=True), lr
        )
        for d in depths
    ]
    with np.errstate(all="ignore"):
        slopes = np.diff(np.log2(np.array(table)), axis=0)
    overflowed = bool(np.isinf(table).any())
    x_0, x_1, f_1, h_1, linearization = (
        _limit(column, margin) if overflowed or np.isfinite(column).all() else math.nan
        for column in slopes.T
    )
    resolved = np.array(table)[:, 1] > _ROUNDING
    if not resolved.all():  # vanishing so fast that only the shallower networks show it
        x_1 = float(slopes[resolved.sum() - 2, 1]) if resolved.sum() > 1 else -math.inf
    kappa = math.nan
    exponents = {"x_0": x_0, "x_1": x_1, "f_1": f_1, "h_1": h_1, "linearization": linearization}
    if x_0 <= margin and abs(f_1) <= margin:
        kappa = exponents["kappa"] = _kappa(todo, a, g, multiplier, lr)
    if lost := [name for name, value in exponents.items() if math.isnan(value)]:
        raise ValueError(
            f"The exponents of {', '.join(lost)} at alpha={a}, gamma={g} are not numbers: what "
            f"they are of is 0 or not computed at depths {list(depths)} with lr={lr}, "
            f"multiplier={multiplier}. Take a larger learning rate or multiplier, or other depths."
        )
    return DepthExponents(
        alpha=a,
        gamma=g,
        x_0=x_0,
        x_1=x_1,
        f_1=f_1,
        h_1=h_1,
        linearization=linearization,
        kappa=kappa,
        margin=margin,
    )


# A relative change is the root of a difference of numbers of order one: 1e-5 is known to 1e-5.
_ROUNDING = 1e-5


def _quantities(s: Solution, lr: float) -> list[float]:
    """x_0, x_1, f_1, h_1 and the linearization of one depth, infinite where training overflowed.

    The two inputs are 1 and -1/2, one step each.
    """
    if not s.status.ok:  # overflow is growth faster than any power
        return [math.inf] * 5
    h = s.history
    assert h is not None
    c, kick = s.problem.factor, s.problem.kick
    # A linear network makes of -1/2 what it makes of 1, times -1/2: x moved by x[1] + x[0] / 2.
    shift = h.x[-1, 1, 1] + h.x[-1, 0, 1] + h.x[-1, 0, 0] / 4
    moved = h.x[:-1, 1, 0] ** 2 * h.d[1:, 0, 0]  # squared, per (lr kick)^2
    initial, total = h.x[:-1, 1, 1], _preactivations(s, c)[:, 1]
    return [
        s.rms[0][-1, 0],
        math.sqrt(max(shift, 0.0) / (h.x[-1, 0, 0] / 4)),
        abs(s.outputs[1][0, 0]),
        math.sqrt(total.mean()),
        lr * kick * math.sqrt((moved / initial).mean()),
    ]


def _preactivations(solution: Solution, c: float) -> Array:
    """E h^2 of ``h^l = W_t^l x^{l-1}`` for every layer and vector: (L, N).

    h = (x^l - x^{l-1}) / c = F + M d / c, with <F|d> = <x^{l-1}|x^{l-1}> G10^T.
    """
    h = solution.history
    assert h is not None
    eye = np.eye(h.x.shape[1])
    below, d, m = h.x[:-1], h.d[1:], h.m / c
    g10 = c * h.q[1:] @ np.linalg.inv(eye - h.p[1:] @ h.q[1:])
    own = np.einsum("lii->li", below)
    with_noise = np.einsum("lij,ljk,lki->li", m, g10, below)
    result: Array = own + 2 * with_noise + np.einsum("lij,ljk,lik->li", m, d, m)
    return result


# Deep enough that a power L^-0.1 of depth is below 1e-3; the continuum costs the same at any depth.
_ENDLESS = 2**100


def _kappa(steps: list[Step], alpha: Fraction, gamma: Fraction, a: float, lr: float) -> float:
    """1 - slope of log |x(p + eps) - x(p)| in log eps after one step, at endless depth."""
    s = linear(
        steps,
        depth=_ENDLESS,
        method="continuum",
        lr=lr,
        multiplier=a,
        alpha=alpha,
        gamma=gamma,
        history=True,
    )
    near, middle, far = feature_diversity(s, [1 / 32, 1 / 16, 1 / 8])[:, 1]
    # Corrections to the slope are of relative order eps: extrapolate to eps -> 0.
    return float(1 - (2 * math.log2(middle / near) - math.log2(far / middle)))


def _limit(slopes: Array, margin: float) -> float:
    """Where local slopes at doubling depths are heading; inf if they keep growing."""
    if not np.isfinite(slopes).all():
        return math.inf
    step, last = float(slopes[-2] - slopes[-3]), float(slopes[-1] - slopes[-2])
    ratio = last / step if step else 0.0
    # Differences of slopes that fall by ``ratio`` sum to a geometric series; near 1 it has no sum.
    if 0 < ratio < 0.98:
        return float(slopes[-1] + last * ratio / (1 - ratio))
    if ratio >= 1 and last > 0 and slopes[-1] > margin:
        return math.inf  # growth whose exponent itself grows: faster than any power
    return float(slopes[-1])
