"""The paper's Definition E.1 of nonlinear networks as printed, which is in error.

Its backward equation has the covariance of phi at <d|d> where the gradient has V1 * <d|d>, no terms
in higher derivatives of phi, and E MS(phi') phi' in place of E phi' phi' in the response. The
library's equations, and their letters, are those of ``depthmup.limits.methods.nonlinear``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from depthmup import limits
from depthmup.limits.methods import Backward, Nonlinear, pairs_among, solve_nonlinear
from depthmup.rules import Exponent
from depthmup.statistics import Array


def printed_nonlinear(
    steps: Sequence[limits.Step],
    *,
    activation: str | limits.Activation,
    lr: float | Sequence[float],
    multiplier: float = 1.0,
    alpha: Exponent = "1/2",
    gamma: Exponent = "1/2",
    held_out: ArrayLike | None = None,
    tol: float = 1e-9,
    history: bool = False,
) -> limits.Solution:
    """The paper's Definition E.1 as printed, which is in error: for comparison with ``nonlinear``.

    Its backward equation is not the gradient of the forward pass. The sum that the printed
    equation lacks to parse is restored, and the first update's terms are left under their integral.

    Args:
        steps, activation, lr, multiplier, alpha, gamma, held_out, tol, history: as in
            ``limits.nonlinear``, at infinite depth.

    Returns:
        The solution of the printed equations.

    Raises:
        ValueError: exponents without a known limit of infinite depth.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 3
        >>> for solve in (limits.nonlinear, printed_nonlinear):
        ...     print(round(float(solve(steps, activation="sin", lr=1.0).outputs[2][0, 0]), 6))
        0.480131
        0.485713

    *Source:* arXiv 2310.02244, Definition E.1 and (F.32); see docs/studies/limits.md.
    """
    asked = limits.problem(
        steps,
        depth=math.inf,
        lr=lr,
        activation=activation,
        branch=limits.Branch(multiplier=multiplier),
        alpha=alpha,
        gamma=gamma,
        held_out=held_out,
        tol=tol,
        history=history,
    )
    return solve_nonlinear(asked, PrintedBackward)


class PrintedBackward(Backward):
    """The backward equation as printed."""

    def __init__(self, network: Nonlinear, rows: slice, t: int) -> None:
        super().__init__(network, rows, t)
        known = network.phi.single(np.einsum("pii->pi", network.x[self.old])).mean_slope
        self.slope = self.v1 - self.single.mean_slope[..., None] * known[:, None, :]
        self.known_square = np.einsum("pii->pi", network.d[self.old])[:, None, :]

    def noises(self, where: slice, cov: Array, among: Array) -> tuple[Array, Array]:
        phi, square = self.network.phi, np.einsum("pbb->pb", among)
        pair = phi.pair(square[..., None], cov, self.known_square[where])
        return pair.k0, pairs_among(phi, among)[0]

    def curvature(self, where: slice, g10: Array, cov: Array, own: Array) -> tuple[Array, Array]:
        return np.zeros_like(g10), np.zeros_like(own)
