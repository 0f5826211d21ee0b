"""Linear residual networks: training at infinite width, at any depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from depthmup.limits.problem import Branch, problem
from depthmup.limits.sgd import SGD, Rate
from depthmup.limits.solution import Solution
from depthmup.limits.solve import solve_linear
from depthmup.limits.step import Step
from depthmup.rules import Exponent

Method = Literal["imbedding", "continuum"]


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
        steps, depth, lr, alpha, gamma, held_out, tol, history: as in ``limits.problem``.
        multiplier: the branch multiplier a.
        optimizer: ``limits.SGD`` with ``momentum``, ``lr_input`` or ``lr_readout``; plain SGD on
            the W^l alone unless given.
        method: "imbedding" (default) is exact at finite depth; "continuum" replaces layers by a differential equation in p = l/L with noise
            rate a^2 L^(1-2 alpha), an error of order 1/L at finite depth for alpha >= 1/2 and
            exact at infinite depth, where it is the only method. ``tol`` is its truncation error.

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
    Theorem 4.1 is printed with the wrong last index (see docs/studies/limits.md).
    """  # noqa: E501
    asked = problem(
        steps,
        depth=depth,
        lr=lr,
        branch=Branch(multiplier=multiplier),
        alpha=alpha,
        gamma=gamma,
        optimizer=optimizer,
        held_out=held_out,
        tol=tol,
        history=history,
    )
    return solve_linear(asked, method)
