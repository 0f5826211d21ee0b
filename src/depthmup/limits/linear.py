"""Linear residual networks: training at infinite width, at any depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from depthmup.limits.continuum import solve_continuum
from depthmup.limits.imbedding import solve_imbedding
from depthmup.limits.momentum import SGD, Rate, require_derived
from depthmup.limits.parametrization import check_depth, require_infinite_depth
from depthmup.limits.problem import check_tol, problem
from depthmup.limits.recursion import solve_recursion
from depthmup.limits.solution import Solution
from depthmup.limits.step import Step
from depthmup.rules import Exponent

Method = Literal["imbedding", "recursion", "continuum"]


def linear(
    steps: Sequence[Step],
    *,
    depth: float,
    lr: Rate,
    multiplier: float = 1.0,
    alpha: Exponent = "1/2",
    gamma: Exponent = "1/2",
    optimizer: SGD | None = None,
    held_out: ArrayLike | None = None,
    method: Method | None = None,
    tol: float = 1e-10,
    history: bool = False,
) -> Solution:
    """Train an infinitely wide linear residual network by SGD; nothing is sampled.

    ``x^0 = U xi``, ``x^l = x^{l-1} + a L^-alpha W^l x^{l-1}`` and ``f = V^T x^L``, with entries of
    U of variance 1, of W^l 1/n, of V 1/n^2, as n goes to infinity first. Step t subtracts
    ``lr[t] a L^-gamma (1/n) d^l x^{l-1,T}`` from W^l, summed over the minibatch, where
    d^l = n dloss/dx^l: plain SGD on W^l with learning rate ``lr[t] L^(alpha-gamma)``.
    U and V stay frozen unless the optimizer has rates for them.

    Args:
        steps: minibatches, with any loss.
        depth: a positive integer or ``math.inf``.
        lr: learning rate, one number or one per step.
        multiplier: the branch multiplier a.
        alpha: exponent of the branch multiplier.
        gamma: exponent of an update's size.
        optimizer: ``limits.SGD`` with ``momentum``, ``lr_input`` or ``lr_readout``; plain SGD on
            the W^l alone unless given.
        held_out: inputs (rows, d_in) to evaluate at every step and after the last.
        method: "imbedding" (default) and "recursion" (the paper's, O(depth^2)) are exact at finite
            depth; "continuum" replaces layers by a differential equation in p = l/L with noise
            rate a^2 L^(1-2 alpha), an error of order 1/L at finite depth for alpha >= 1/2 and
            exact at infinite depth, where it is the only method.
        tol: for the continuum, the truncation error asked for.
        history: keep every covariance.

    Returns:
        A solution; its status is ``unresolved`` where its error estimate is above ``tol``, and
        ``exploded`` where values overflow.

    Raises:
        ValueError: exponents without a limit of infinite depth, a method that cannot have this
            depth, or an optimizer with decay or a second matrix.

    Example:
        >>> import math
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]])), limits.Step([[-0.5]], limits.mse([[1.0]]))]
        >>> s = limits.linear(steps, depth=math.inf, lr=1.0)
        >>> round(float(s.outputs[1][0, 0]), 6), round(-math.e / 4, 6)
        (-0.67957, -0.67957)

    *Source:* arXiv 2310.02244, Section 4.1-4.2, Lemma C.1 and D.3, Proposition C.2. The paper's
    setting is batch size 1, scalar input and output, a = lr = 1 and frozen U and V; its kernel in
    Theorem 4.1 is printed with the wrong last index (see docs/limits.md).
    """  # noqa: E501
    depth, optimizer = check_depth(depth), optimizer or SGD()
    require_derived(optimizer, ("momentum", "lr_input", "lr_readout"), "linear networks")
    todo = problem(
        steps,
        multiplier=multiplier,
        lr=lr,
        alpha=alpha,
        gamma=gamma,
        optimizer=optimizer,
        held_out=held_out,
    )
    # At finite depth the imbedding is exact and linear in depth, so nothing else is needed.
    chosen = method or ("continuum" if depth == math.inf else "imbedding")
    if depth == math.inf:
        require_infinite_depth(todo.scaling)
        if chosen != "continuum":
            raise ValueError(
                f"method={chosen!r} goes through every layer, so it needs a finite depth; "
                "leave method out for depth=math.inf."
            )
    check_tol(tol)
    if chosen == "continuum":
        return solve_continuum(todo, depth, tol=tol, history=history)
    if chosen == "imbedding":
        return solve_imbedding(todo, int(depth), history=history)
    if chosen == "recursion":
        if history:
            raise ValueError("method='recursion' keeps no history; use method='imbedding'.")
        return solve_recursion(todo, int(depth))
    raise ValueError(f"method must be 'imbedding', 'recursion' or 'continuum'; got {chosen!r}.")
