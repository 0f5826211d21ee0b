"""Training at infinite width, by kind of network: each states its problem and solves it.

signSGD takes one sample per step. The sign of a gradient's entry is then the product of the signs
of its two factors, so that updates stay of rank one and the law of one entry of the stream can be
carried by particles. With more samples, or for Adam, the update of an entry is a function of all
the factors it has seen, and no reduction below a network of comparable size is known: see
docs/studies/limits.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from depthmup.limits.averages import Neurons, Particles
from depthmup.limits.gaussian import Activation
from depthmup.limits.problem import Branch, problem
from depthmup.limits.sgd import SGD, Rate
from depthmup.limits.solution import Solution
from depthmup.limits.solve import solve, solve_linear, solve_one_matrix, solve_two_matrices
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
