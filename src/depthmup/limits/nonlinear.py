"""Nonlinear residual networks with one matrix per block: training at infinite width.

``x^l = x^{l-1} + a L^-alpha MS(phi(h^l))``, ``h^l = W^l x^{l-1}``, MS subtracting the mean over
entries, f and W's updates as in ``linear``. With the letters of ``continuum``, z_r, z_s Gaussian of
covariance C(p), and the expectations k0, V1, k2, k11, k31, vp of ``gaussian``:

    Mh_rs = G01_rs - a w_rs C_rs                                             (s < r)
    m_rs  = a V1_rs Mh_rs                                                    (s < r)
    n_rs  = a [V1_rs (G10_rs - a w_rs D_rs) + k2_rs Mh_rs D_rs]              (s < r)
    n_rr  = a [sum_{s<r} (k11_rs G10_rs + k31_rs Mh_rs D_rs) + vp_r G10_rr]
    G01 = a nu P (I - QP)^-1,   G10 = a nu Q (I - PQ)^-1
    P' = m + P n P, P(0) = 0,   -Q' = n + Q m Q, Q(1) = 0

P is strictly causal, Q includes its diagonal: x_r itself feeds its own backward pass. Covariances
come from those of the sources below (R) and above (S), x = (I-PQ)^-1 (u + P v),
d = (I-QP)^-1 (Q u + v) with R = <u|u>, S = <v|v>, <u|v> = 0:

    R'  = a^2 nu k0 + a^2 nu P (V1 * D) P^T + P n R + R n^T P^T,   R(0) = Gram matrix of the inputs
    -S' = a^2 nu (V1 * D) + a^2 nu Q k0 Q^T + Q m S + S m^T Q^T,   S(1) = chi chi^T

nu = 1 for Depth-muP (alpha = 1/2), 0 for 1/2 < alpha < 1; k2 and k31 survive there. At alpha = 1
preactivations move by order one and no closed system is known. At finite depth x is not Gaussian,
as phi(h) enters it: ``particles``.

*Source:* arXiv 2310.02244, Claim E.1 and Appendix F.3.2. The forward equation is Definition E.1's;
the backward one is not: as printed it is not the gradient of the forward pass.
``printed_nonlinear`` solves the printed one. See docs/limits.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from depthmup.limits.gaussian import Activation, resolve
from depthmup.limits.losses import Array
from depthmup.limits.mesh import Mesh, graded
from depthmup.limits.momentum import SGD, Rate, require_derived
from depthmup.limits.neurons import combined
from depthmup.limits.nonlinear_passes import Training
from depthmup.limits.parametrization import check_depth, require_infinite_depth
from depthmup.limits.particles import OneMatrix, Particles
from depthmup.limits.problem import Problem, check_tol, problem
from depthmup.limits.solution import Solution, Status
from depthmup.limits.step import Step
from depthmup.rules import Exponent

# Smooth problems: one panel, more points. Singular at p = 0: more panels and more points.
_DEGREES = (16, 22, 30, 42, 60, 84)
_GRADED = ((3, 10), (5, 12), (7, 14), (9, 17), (11, 20))


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
        steps: minibatches, with any loss.
        activation: a name (identity, erf, sin, cos, relu, abs, tanh, gelu, softplus) or a
            ``limits.smooth(phi, phi', phi'', phi''')``.
        lr: learning rate, one number or one per step.
        multiplier: the branch multiplier a.
        alpha: exponent of the branch multiplier.
        gamma: exponent of an update's size.
        optimizer: ``limits.SGD`` with ``momentum``; plain SGD unless given.
        held_out: inputs (rows, d_in) to evaluate at every step and after the last.
        depth: a positive integer or ``math.inf``.
        tol: the error asked for, of outputs: by default 1e-9 at infinite depth, 5e-3 else.
        history: keep every covariance, at infinite depth.
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

    *Source:* arXiv 2310.02244, Claim E.1, corrected: see the head of this file.
    """  # noqa: E501
    depth = check_depth(depth)
    if depth != math.inf and history:
        raise ValueError("history is for depth=math.inf: leave it out at a finite depth.")
    if depth == math.inf and particles is not None:
        raise ValueError(
            "particles are for a finite depth; at infinite depth nothing is sampled: leave them."
        )
    phi, optimizer = resolve(activation), optimizer or SGD()
    require_derived(optimizer, ("momentum",), "nonlinear networks with one matrix per block")
    todo = problem(
        steps,
        multiplier=multiplier,
        lr=lr,
        alpha=alpha,
        gamma=gamma,
        optimizer=optimizer,
        held_out=held_out,
    )
    tol = tol if tol is not None else (1e-9 if depth == math.inf else 5e-3)
    check_tol(tol)
    if depth != math.inf:
        return _finite_depth(todo, phi, int(depth), particles or Particles(), tol)
    _require_closed(todo, phi)
    return solve_nonlinear(todo, phi, tol=tol, history=history)


def printed_nonlinear(
    steps: Sequence[Step],
    *,
    activation: str | Activation,
    lr: Rate,
    multiplier: float = 1.0,
    alpha: Exponent = "1/2",
    gamma: Exponent = "1/2",
    held_out: ArrayLike | None = None,
    tol: float = 1e-9,
    history: bool = False,
) -> Solution:
    """The paper's Definition E.1 as printed, which is in error: for comparison with ``nonlinear``.

    Its backward equation is not the gradient of the forward pass. The sum that the printed
    equation lacks to parse is restored, and the first update's terms are left under their integral.

    Args:
        steps: minibatches, with any loss.
        activation: as in ``limits.nonlinear``.
        lr: learning rate, one number or one per step.
        multiplier: the branch multiplier a.
        alpha: exponent of the branch multiplier, in [1/2, 1).
        gamma: exponent of an update's size.
        held_out: inputs (rows, d_in) to evaluate at every step and after the last.
        tol: the error asked for, of outputs.
        history: keep every covariance.

    Returns:
        The solution of the printed equations.

    Raises:
        ValueError: exponents without a known limit of infinite depth.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 3
        >>> for solve in (limits.nonlinear, limits.printed_nonlinear):
        ...     print(round(float(solve(steps, activation="sin", lr=1.0).outputs[2][0, 0]), 6))
        0.480131
        0.485713

    *Source:* arXiv 2310.02244, Definition E.1 and (F.32); see docs/limits.md.
    """
    phi = resolve(activation)
    todo = problem(steps, multiplier=multiplier, lr=lr, alpha=alpha, gamma=gamma, held_out=held_out)
    check_tol(tol)
    _require_closed(todo, phi)
    return solve_nonlinear(todo, phi, tol=tol, printed=True, history=history)


def _require_closed(todo: Problem, phi: Activation) -> None:
    """Raise unless a closed limit of infinite depth is known."""
    require_infinite_depth(todo.scaling)
    if todo.scaling.alpha == 1 and phi.name != "identity":
        raise ValueError(
            "At alpha=1 an update moves every preactivation by order one, and no closed "
            "infinite-depth limit of a nonlinear network with one matrix per block is known. Use "
            "1/2 <= alpha < 1, a finite depth, or two matrices per block (limits.mean_ode)."
        )


def _finite_depth(
    todo: Problem, phi: Activation, depth: int, particles: Particles, tol: float
) -> Solution:
    solutions = [
        OneMatrix(todo, phi, depth, np.positive, particles, seed).solve()
        for seed in particles.seeds()
    ]
    return combined(solutions, particles, tol, "Pass more particles, or a larger tol.")


def solve_nonlinear(
    todo: Problem,
    phi: Activation,
    *,
    tol: float,
    printed: bool = False,
    history: bool = False,
    second: Array | None = None,
) -> Solution:
    """Train the limit, with as many points in depth as the tolerance needs.

    Args:
        todo: the steps, scaling and weights of past updates.
        phi: the activation.
        tol: the error asked for, of outputs.
        printed: solve Definition E.1 as printed.
        history: keep every covariance.
        second: weights of past updates of a second matrix, times the width ratio.
    """
    # A kink's k2 is 1/q, and between collinear inputs q grows like p from 0 at p = 0.
    singular = phi.kinked and _collinear(todo)
    meshes = [graded(*g) for g in _GRADED] if singular else [Mesh((0.0, 1.0), n) for n in _DEGREES]
    before: Array | None = None
    for mesh in meshes:
        solution = Training(todo, phi, mesh, printed=printed, second=second).solve(history)
        if solution.status.kind == "exploded":
            return solution
        outputs = np.concatenate(solution.outputs)
        error = solution.error_estimate
        if singular:  # coefficients say little about a singular function: compare two meshes
            error = math.inf if before is None else float(np.abs(outputs - before).max())
        before = outputs
        solution = replace(solution, error_estimate=error)
        if error <= tol and solution.status.ok:
            return solution
    reason = (
        "inputs are collinear, so the solution is singular at p = 0"
        if singular
        else "the solution is not resolved"
    )
    status = Status(
        kind="unresolved",
        message=(
            f"{reason}; {len(mesh.points)} points leave an error of about {error:.1e} > "
            f"tol={tol:.1e}. Pass a larger tol, or a smaller learning rate or multiplier."
        ),
    )
    return replace(solution, status=status)


def _collinear(todo: Problem) -> bool:
    """Whether any two inputs (held-out ones included) are multiples of each other."""
    inputs = [step.inputs for step in todo.steps]
    if todo.held_out is not None:
        inputs.append(todo.held_out)
    rows = np.concatenate(inputs)
    sizes = np.linalg.norm(rows, axis=1)
    unit = rows[sizes > 0] / sizes[sizes > 0, None]
    gram = np.abs(unit @ unit.T)
    np.fill_diagonal(gram, 0.0)
    return bool((sizes == 0).any() or (gram**2 > 1 - 1e-6).any())
