"""Networks whose blocks have two matrices, ``x + a L^-alpha W2 phi(W1 x)``: one way in.

Which equations hold depends on depth, exponent and activation; each has a file of its own:

    finite depth     linear       ``two_matrix_imbedding``   exact, nothing is sampled
                     nonlinear    ``two_matrix_sampled``     averages over one neuron per block
    infinite depth   alpha < 1    ``nonlinear``              h moves by L^-1/2: W1 is linearized
                     alpha = 1    ``mean_ode``               neurons move by order one

At infinite depth and alpha < 1 a linear network with two matrices is one with a single matrix and
the learning rate ``lr + width_ratio lr_second``: its product W2 W1 moves by the sum of what both
move, and the product of the two updates vanishes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from depthmup.limits.continuum import solve_continuum
from depthmup.limits.gaussian import Activation, resolve, uncentred
from depthmup.limits.mean_ode import heavy_ball, solve_mean_ode
from depthmup.limits.momentum import SGD, Rate
from depthmup.limits.neurons import Neurons, Quadratic, Sobol
from depthmup.limits.nonlinear import solve_nonlinear
from depthmup.limits.parametrization import check_depth, require_infinite_depth
from depthmup.limits.problem import Branch, TwoMatrices, check_tol, two_matrices
from depthmup.limits.solution import Solution
from depthmup.limits.step import Step
from depthmup.limits.two_matrix_imbedding import solve_two_matrix_imbedding
from depthmup.limits.two_matrix_sampled import solve_sampled
from depthmup.rules import Exponent

_EXACT, _AVERAGED = 1e-9, 1e-3
"""Tolerances where nothing is sampled, and where averages over neurons are."""


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
        steps: minibatches, with any loss.
        depth: a positive integer or ``math.inf``.
        lr: learning rate of W1, one number or one per step.
        activation: a name or a ``limits.smooth(...)``.
        branch: ``limits.Branch``: the multiplier a, the width ratio rho, a norm.
        alpha: exponent of the branch multiplier.
        gamma: exponent of an update's size.
        optimizer: ``limits.SGD``: W2's own rate, those of U and V, momentum, decay.
        held_out: inputs (rows, d_in) to evaluate at every step and after the last.
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

    *Source:* derived here; see docs/limits.md for what is verified and how.
    """  # noqa: E501
    depth, phi = check_depth(depth), resolve(activation)
    branch, optimizer = branch or Branch(), optimizer or SGD()
    matrices = two_matrices(
        steps,
        lr=lr,
        alpha=alpha,
        gamma=gamma,
        branch=branch,
        optimizer=optimizer,
        held_out=held_out,
    )
    scaling, rms_norm = matrices.problem.scaling, branch.rms_norm
    linear, infinite = phi.name == "identity", depth == math.inf
    if infinite:
        require_infinite_depth(scaling)
    at_one = infinite and scaling.alpha == 1
    averaged = not linear and (at_one or not infinite)
    if tol is None:
        tol = _AVERAGED if averaged else _EXACT
    check_tol(tol)
    if neurons is not None and not averaged:
        raise ValueError(
            "This limit has no averages over neurons, so there is nothing for `neurons` to do: "
            "leave it out. Nonlinear networks have them, at finite depth and at alpha=1."
        )
    if at_one:
        if history:
            raise ValueError(
                "The mean ODE has no covariances to keep: leave history out, or use a finite depth."
            )
        ball = heavy_ball(len(matrices.problem.steps), lr, optimizer)
        return solve_mean_ode(matrices, phi, ball, rms_norm=rms_norm, neurons=neurons, tol=tol)
    if infinite:
        return _infinite_depth(matrices, phi, rms_norm=rms_norm, tol=tol, history=history)
    if linear and not rms_norm and not optimizer.decay:
        return solve_two_matrix_imbedding(matrices, int(depth), history=history)
    if neurons is None:
        neurons = Quadratic() if linear else Sobol()
    return solve_sampled(
        matrices, phi, int(depth), neurons, rms_norm=rms_norm, tol=tol, history=history
    )


def _infinite_depth(
    matrices: TwoMatrices, phi: Activation, *, rms_norm: bool, tol: float, history: bool
) -> Solution:
    """1/2 <= alpha < 1, where W1's updates move preactivations by order L^-1/2 only."""
    todo, linear = matrices.problem, phi.name == "identity"
    refused = {
        "rms_norm": rms_norm,
        "decay": bool((matrices.remains != 1).any() or (matrices.second_remains != 1).any()),
        "lr_input": not linear and bool(todo.input.any()),
        "lr_readout": not linear and bool(todo.readout.any()),
    }
    if any(refused.values()):
        names = ", ".join(name for name, asked in refused.items() if asked)
        raise ValueError(
            f"The limit of infinite depth at alpha={todo.scaling.alpha} is not derived with "
            f"{names}. Use a finite depth (whose distance from it falls as 1/depth), or alpha=1."
        )
    second = matrices.width_ratio * matrices.second
    if linear:
        todo = replace(todo, hidden=todo.hidden + second)
        return solve_continuum(todo, math.inf, tol=tol, history=history)
    return solve_nonlinear(todo, uncentred(phi), tol=tol, history=history, second=second)
