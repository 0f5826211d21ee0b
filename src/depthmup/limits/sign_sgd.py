"""signSGD on one sample per step: every entry of a weight moves by the same amount.

With one sample the sign of a gradient's entry is the product of the signs of its two factors, so
that updates stay of rank one and the law of one entry of the stream can be carried by particles.
With more samples, or for Adam, it is not: the update of an entry is a function of all the factors
it has seen, and no reduction below a network of comparable size is known: see
docs/studies/limits.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from depthmup.limits.averages import Particles
from depthmup.limits.gaussian import Activation
from depthmup.limits.problem import Branch, problem
from depthmup.limits.sgd import SGD, Rate
from depthmup.limits.solution import Solution
from depthmup.limits.solve import solve
from depthmup.limits.step import Step
from depthmup.rules import Exponent


def sign_sgd(
    steps: Sequence[Step],
    *,
    activation: str | Activation,
    depth: float,
    lr: Rate,
    lr_second: Rate | None = None,
    block_depth: int = 2,
    branch: Branch | None = None,
    alpha: Exponent = "1/2",
    gamma: Exponent = "1/2",
    held_out: ArrayLike | None = None,
    particles: Particles | None = None,
    tol: float = 5e-3,
) -> Solution:
    """Train an infinitely wide residual network by signSGD with one sample per step.

    Every entry of a matrix inside a block moves by ``lr a L^-gamma / n`` times minus the sign of
    its gradient; U and V are frozen. Blocks are those of ``limits.two_matrix``, or, for
    ``block_depth=1``, of ``limits.nonlinear``.

    Args:
        steps: one sample each.
        activation, block_depth, alpha, gamma, held_out, tol: as in ``limits.problem``.
        depth: a positive integer, or ``math.inf`` at alpha = 1, gamma = 0 and block depth 2, where
            it is extrapolated from entries that need no Gaussians of their own.
        lr: learning rate of W (or of W1), one number or one per step.
        lr_second: that of W2; the same as ``lr`` by default.
        branch: ``limits.Branch``: the multiplier a and the width ratio rho; no norm.
        particles: how many, by default 8 populations of 2^14.

    Returns:
        A solution; its status is ``unresolved`` where its error estimate is above ``tol``.

    Raises:
        ValueError: a step has more than one sample, a branch has a norm, or the depth is infinite
            where no limit is derived.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> few = limits.Particles(count=1024, populations=2)
        >>> s = limits.sign_sgd(steps, activation="identity", depth=4, lr=0.5, particles=few)
        >>> bool(s.outputs[1][0, 0] > 0.2)  # towards the target
        True

    *Source:* derived here; see docs/studies/limits.md for what is verified and how.
    """
    asked = problem(
        steps,
        depth=depth,
        lr=lr,
        activation=activation,
        block_depth=block_depth,
        branch=branch,
        alpha=alpha,
        gamma=gamma,
        optimizer=SGD(lr_second=lr_second),
        sign=True,
        held_out=held_out,
        tol=tol,
    )
    return solve(asked, particles)
