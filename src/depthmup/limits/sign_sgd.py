"""signSGD on one sample per step: every entry of a weight moves by the same amount.

With one sample the sign of a gradient's entry is the product of the signs of its two factors, so
that updates stay of rank one and the law of one entry of the stream can be carried by particles.
With more samples, or for Adam, it is not: the update of an entry is a function of all the factors
it has seen, and no reduction below a network of comparable size is known. See docs/limits.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from depthmup.limits.gaussian import Activation, resolve
from depthmup.limits.momentum import SGD, Rate
from depthmup.limits.neurons import combined
from depthmup.limits.parametrization import check_depth
from depthmup.limits.particles import OneMatrix, Particles, Population, TwoMatrix
from depthmup.limits.problem import Branch, TwoMatrices, check_tol, two_matrices
from depthmup.limits.solution import Solution
from depthmup.limits.step import Step
from depthmup.rules import Exponent

_LAYERS = (16, 32, 64)
"""Depths from which infinite depth is extrapolated; errors are b/L + c/L^2."""


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
        activation: a name or a ``limits.smooth(...)``.
        depth: a positive integer, or ``math.inf`` at alpha = 1, gamma = 0 and block depth 2, where
            it is extrapolated from entries that need no Gaussians of their own.
        lr: learning rate of W (or of W1), one number or one per step.
        lr_second: that of W2; the same as ``lr`` by default.
        block_depth: matrices per block, 1 or 2.
        branch: ``limits.Branch``: the multiplier a and the width ratio rho; no norm.
        alpha: exponent of the branch multiplier.
        gamma: exponent of an update's size.
        held_out: inputs (rows, d_in) to evaluate at every step and after the last.
        particles: how many, by default 8 populations of 2^14.
        tol: the error asked for, of outputs.

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

    *Source:* derived here; see docs/limits.md for what is verified and how.
    """
    depth, phi, branch = check_depth(depth), resolve(activation), branch or Branch()
    matrices = two_matrices(
        steps,
        lr=lr,
        alpha=alpha,
        gamma=gamma,
        branch=branch,
        optimizer=SGD(lr_second=lr_second),
        held_out=held_out,
    )
    check_tol(tol)
    if block_depth not in (1, 2):
        raise ValueError(f"block_depth is 1 or 2 matrices per block; got {block_depth}.")
    if block_depth == 1 and (lr_second is not None or branch.width_ratio != 1.0):
        raise ValueError("lr_second and width_ratio are of blocks with two matrices.")
    if branch.rms_norm:
        raise ValueError("The limit of signSGD is not derived with rms_norm: leave it out.")
    sizes = [len(step.inputs) for step in matrices.problem.steps]
    if max(sizes) > 1:
        raise ValueError(
            f"steps[{int(np.argmax(sizes))}] has {max(sizes)} samples: the sign of a sum is not a "
            "product of signs, and no limit of it is known. Use one sample per step, or SGD."
        )
    scaling = matrices.problem.scaling
    if depth == math.inf and (block_depth, scaling.alpha, scaling.gamma) != (
        2,
        Fraction(1),
        Fraction(0),
    ):
        raise ValueError(
            "The limit of infinite depth of signSGD is derived for two matrices per block at "
            f"alpha=1, gamma=0 alone; got block_depth={block_depth}, alpha={scaling.alpha}, "
            f"gamma={scaling.gamma}. Use several finite depths and extrapolate in 1/depth."
        )
    particles = particles or Particles()
    if depth == math.inf:
        solutions = _infinite_depth(matrices, phi, particles)
    else:
        solutions = [
            _population(matrices, phi, int(depth), particles, seed, block_depth).solve()
            for seed in particles.seeds()
        ]
    return combined(solutions, particles, tol, "Pass more particles, or a larger tol.")


def _population(
    matrices: TwoMatrices,
    phi: Activation,
    depth: int,
    particles: Particles,
    seed: np.random.SeedSequence,
    block_depth: int,
    *,
    deterministic: bool = False,
) -> Population:
    arguments = matrices.problem, phi, depth, np.sign, particles, seed
    if block_depth == 1:
        return OneMatrix(*arguments)
    return TwoMatrix(
        *arguments,
        deterministic=deterministic,
        second=matrices.second,
        width_ratio=matrices.width_ratio,
    )


def _infinite_depth(matrices: TwoMatrices, phi: Activation, particles: Particles) -> list[Solution]:
    """Entries that are functions of U's and V's alone: layers are Euler steps, extrapolated."""
    solutions = []
    for seed in particles.seeds():
        coarse, middle, fine = (
            _population(matrices, phi, layers, particles, seed, 2, deterministic=True).solve()
            for layers in _LAYERS
        )
        bad = next((s for s in (coarse, middle, fine) if not s.status.ok), None)
        if bad is not None:
            return [bad]
        extrapolated = [
            2 * np.array(f) - m for m, f in zip(middle.outputs, fine.outputs, strict=True)
        ]
        before = [2 * np.array(m) - c for c, m in zip(coarse.outputs, middle.outputs, strict=True)]
        # The next correction is of order 1/L^2: what is left is a third of what it moved.
        moved = max(float(np.abs(e - b).max()) for e, b in zip(extrapolated, before, strict=True))
        held_out = None
        if fine.held_out is not None and middle.held_out is not None:
            held_out = 2 * fine.held_out - middle.held_out
        solutions.append(
            replace(
                fine,
                outputs=tuple(extrapolated),
                held_out=held_out,
                kernel=2 * fine.kernel - middle.kernel,
                # Every second depth of the finer one is a depth of the other.
                positions=middle.positions,
                rms=tuple(2 * f[::2] - m for m, f in zip(middle.rms, fine.rms, strict=True)),
                error_estimate=moved,
            )
        )
    return solutions
