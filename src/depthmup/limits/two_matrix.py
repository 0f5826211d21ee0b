"""Residual networks whose blocks have two matrices: training at infinite width."""

from __future__ import annotations

import math
from collections.abc import Sequence

from numpy.typing import ArrayLike

from depthmup.limits.averages import Neurons
from depthmup.limits.gaussian import Activation
from depthmup.limits.problem import Branch, problem
from depthmup.limits.sgd import SGD, Rate
from depthmup.limits.solution import Solution
from depthmup.limits.solve import solve, solve_two_matrices
from depthmup.limits.step import Step
from depthmup.rules import Exponent


def two_matrix(
    steps: Sequence[Step],
    *,
    depth: float,
    lr: Rate,
    activation: str | Activation = "identity",
    branch: Branch | None = None,
    alpha: Exponent = "1/2",
    gamma: Exponent = "1/2",
    optimizer: SGD | None = None,
    held_out: ArrayLike | None = None,
    neurons: Neurons | None = None,
    tol: float | None = None,
    history: bool = False,
) -> Solution:
    """Train an infinitely wide residual network whose blocks have two matrices, by SGD.

    ``x^l = x^{l-1} + a L^-alpha W2 phi(W1 x^{l-1})``, ``f = V^T x^L``; W1 has rho n rows and
    entries of variance 1/n, W2 entries of variance 1/(rho n). W1 moves by
    ``lr a L^-gamma (1/n) e x^T`` and W2 by ``lr a L^-gamma (1/n) d phi(h)^T`` (or with a rate of
    its own), where d = n dloss/dx and e = phi'(h) W2^T d: plain SGD with learning rate
    ``lr L^(alpha-gamma)``.
    Depth-muP is alpha = gamma = 1/2, CompleteP alpha = 1, gamma = 0.

    Args:
        steps, depth, activation, branch, alpha, gamma, held_out: as in ``limits.problem``.
        lr: learning rate of W1, one number or one per step.
        optimizer: ``limits.SGD``: W2's own rate, those of U and V, momentum, decay.
        neurons: what averages over neurons are taken with, where there are any: a nonlinear
            network at finite depth (2 N dimensions for N training vectors) or at alpha = 1
            (2 (d_in + d_out) dimensions). By default 4 scrambles of 4096 Sobol points.
        tol: the error asked for, of outputs: by default 1e-9 where nothing is sampled, 1e-3 else.
        history: keep every covariance (not at alpha = 1 and infinite depth).

    Returns:
        A solution; its status is ``unresolved`` where its error estimate is above ``tol``.

    Raises:
        ValueError: at infinite depth and alpha < 1, for decay or rms_norm, and for trained U or V
            in a nonlinear network: those limits are not derived.

    Example:
        >>> import math
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]])), limits.Step([[-0.5]], limits.mse([[1.0]]))]
        >>> s = limits.two_matrix(steps, depth=math.inf, lr=1.0)
        >>> round(float(s.outputs[1][0, 0]), 6), round(-math.e / 2, 6)
        (-1.359141, -1.359141)

    *Source:* derived here; see docs/studies/limits.md for what is verified and how.
    """  # noqa: E501
    asked = problem(
        steps,
        depth=depth,
        lr=lr,
        activation=activation,
        block_depth=2,
        branch=branch,
        alpha=alpha,
        gamma=gamma,
        optimizer=optimizer,
        held_out=held_out,
        tol=tol,
        history=history,
    )
    return solve(asked, neurons)


def mean_ode(
    steps: Sequence[Step],
    *,
    activation: str | Activation,
    lr: Rate,
    branch: Branch | None = None,
    optimizer: SGD | None = None,
    held_out: ArrayLike | None = None,
    neurons: Neurons | None = None,
    tol: float = 1e-3,
) -> Solution:
    """Train an infinitely wide and deep network whose blocks have two matrices under CompleteP.

    ``x^l = x^{l-1} + (a/L) W2 phi(W1 x^{l-1})`` with SGD whose learning rates inside blocks are
    ``lr L``: alpha = 1, gamma = 0.

    Args:
        steps, activation, lr, branch, optimizer, held_out, tol: as in ``limits.two_matrix``.
        neurons: ``limits.Sobol(...)`` (by default 4 scrambles of 4096 points) or, for smooth
            activations in few dimensions, ``limits.Hermite(...)``. Averages are over 2 D
            dimensions, D = d_in + d_out. The identity needs none: its averages are exact.

    Returns:
        A solution at Chebyshev points in depth. Its status is ``unresolved`` where the estimated
        error of points in depth or of neurons is above ``tol``.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> s = limits.mean_ode(steps, activation="identity", lr=1.0)
        >>> round(float(s.outputs[1][0, 0]), 9)  # -a^2 (lr + lr_second rho) xi_1 xi_0 chi_0
        1.0

    *Source:* derived here, see docs/studies/limits.md; CompleteP: arXiv 2505.01618.
    """
    asked = problem(
        steps,
        depth=math.inf,
        lr=lr,
        activation=activation,
        block_depth=2,
        branch=branch,
        alpha=1,
        gamma=0,
        optimizer=optimizer,
        held_out=held_out,
        tol=tol,
    )
    return solve_two_matrices(asked, neurons)
