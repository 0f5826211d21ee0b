"""signSGD of blocks with two matrices at infinite depth and alpha = 1, from three finite depths.

No Gaussian of a block survives there: an entry is a function of U's and V's alone, layers are
Euler steps of it, and errors are b/L + c/L^2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from depthmup.limits.averages import Particles
from depthmup.limits.methods.particles import TwoMatrix
from depthmup.limits.problem import Problem
from depthmup.limits.solution import Solution
from depthmup.limits.training import combined, train

_LAYERS = (16, 32, 64)
"""Depths from which infinite depth is extrapolated."""


def solve_extrapolated(problem: Problem, particles: Particles) -> Solution:
    """Train each population at every depth, and extrapolate it."""
    solutions = []
    for seed in particles.seeds():
        coarse, middle, fine = (
            train(TwoMatrix(replace(problem, depth=layers), particles, seed, deterministic=True))
            for layers in _LAYERS
        )
        bad = next((s for s in (coarse, middle, fine) if not s.status.ok), None)
        if bad is not None:
            return bad
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
                problem=problem,
                outputs=tuple(extrapolated),
                held_out=held_out,
                kernel=2 * fine.kernel - middle.kernel,
                # Every second depth of the finer one is a depth of the other.
                positions=middle.positions,
                rms=tuple(2 * f[::2] - m for m, f in zip(middle.rms, fine.rms, strict=True)),
                error_estimate=moved,
            )
        )
    return combined(solutions, particles, "Pass more particles, or a larger tol.")
