"""Nonlinear residual networks with one matrix per block: training at infinite width."""

from __future__ import annotations

import math
from collections.abc import Sequence

from numpy.typing import ArrayLike

from depthmup.limits.averages import Particles
from depthmup.limits.gaussian import Activation
from depthmup.limits.problem import Branch, problem
from depthmup.limits.sgd import SGD, Rate
from depthmup.limits.solution import Solution
from depthmup.limits.solve import solve_one_matrix
from depthmup.limits.step import Step
from depthmup.rules import Exponent


def nonlinear(
    steps: Sequence[Step],
    *,
    activation: str | Activation,
    lr: Rate,
    multiplier: float = 1.0,
    alpha: Exponent = "1/2",
    gamma: Exponent = "1/2",
    optimizer: SGD | None = None,
    held_out: ArrayLike | None = None,
    depth: float = math.inf,
    tol: float | None = None,
    history: bool = False,
    particles: Particles | None = None,
) -> Solution:
    """Train an infinitely wide nonlinear residual network by SGD, at any depth.

    U and V are frozen. At infinite depth, 1/2 <= alpha < 1, nothing is sampled; relu and abs with
    collinear inputs (repeated samples, scalar inputs) are singular at p = 0 and are solved on
    panels graded towards it. At finite depth, for any alpha and gamma, the law of an entry is
    carried by particles, with an error of about a thousandth that is estimated.

    Args:
        steps, activation, lr, alpha, gamma, held_out, depth, history: as in ``limits.problem``;
            ``history`` at infinite depth alone.
        multiplier: the branch multiplier a.
        optimizer: ``limits.SGD`` with ``momentum``; plain SGD unless given.
        tol: the error asked for, of outputs: by default 1e-9 at infinite depth, 5e-3 else.
        particles: how many at finite depth, by default 8 populations of 2^14.

    Returns:
        A solution; its status is ``unresolved`` where its error estimate is above ``tol``, and
        ``exploded`` where values overflow.

    Raises:
        ValueError: exponents without a known limit of infinite depth, an optimizer with more than
            momentum, or arguments that belong to the other kind of depth.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]])), limits.Step([[-0.5]], limits.mse([[1.0]]))]
        >>> round(float(limits.nonlinear(steps, activation="erf", lr=1.0).outputs[1][0, 0]), 6)
        -0.267186

    *Source:* arXiv 2310.02244, Claim E.1, corrected: see docs/studies/limits.md.
    """  # noqa: E501
    asked = problem(
        steps,
        depth=depth,
        lr=lr,
        activation=activation,
        branch=Branch(multiplier=multiplier),
        alpha=alpha,
        gamma=gamma,
        optimizer=optimizer,
        held_out=held_out,
        # The identity goes through these equations too, with their errors.
        tol=(1e-9 if depth == math.inf else 5e-3) if tol is None else tol,
        history=history,
    )
    if asked.infinite and particles is not None:
        raise ValueError(
            "particles are for a finite depth; at infinite depth nothing is sampled: leave them."
        )
    return solve_one_matrix(asked, particles)
