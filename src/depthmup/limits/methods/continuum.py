"""Linear networks of infinite depth: the invariant imbedding as differential equations in p = l/L.

With P, Q, C = <x|x>, D = <d|d>, K = <x|d> as in ``imbedding``, now functions of p in [0, 1],

    P' = m + P n P      m = r P (I-QP)^-1 - k w * C     P(0) = 0
   -Q' = n + Q m Q      n = r Q (I-PQ)^-1 - k w * D     Q(1) = 0
    K' = k (C (w * D)^T - (w * C) D)
    C' = r (C (I-PQ)^-T + P Q (I-PQ)^-1 C) + m K^T + K m^T      (rows of step t against earlier)
   -D' = r (D (I-QP)^-T + Q P (I-QP)^-1 D) + n K + K^T n^T

with C(0) the inputs' Gram matrix, D(1) that of chi, and the outputs P(1) chi. The rate of the
initial weights' noise is r = a^2 L^(1-2 alpha), that of the updates' drift is
k = a^2 L^(1-alpha-gamma); w are the weights of past updates. At infinite depth k = a^2, and r is
a^2 for Depth-muP (alpha = 1/2) or 0 in the ODE limit (1/2 < alpha <= 1). Keeping both finite gives
the continuum of a network of finite depth, to order 1/L for every alpha >= 1/2.

All functions are analytic in p, so Chebyshev collocation converges spectrally. As at finite depth
a step is one sweep up and one down, each a *linear* equation for the new rows.

*Source:* equivalent to arXiv 2310.02244, Proposition 4.4 / C.2 (``propagators`` checks its five
integral equations); the differential form is not in the paper.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from depthmup.limits.methods.sides import (
    Imbedding,
    Kept,
    Memory,
    Pull,
    Side,
    Starts,
    States,
    SweptRows,
)
from depthmup.limits.numerics.chebyshev import Rule, rule
from depthmup.limits.numerics.volterra import solve_volterra
from depthmup.limits.problem import Problem
from depthmup.limits.solution import Solution
from depthmup.limits.step import Array
from depthmup.limits.training import train, unresolved

# Each half as many again as the last: few solves fail before one succeeds, and none has many more
# points than it needs.
_DEGREES = (16, 24, 36, 54, 80, 120)
_PART = 64  # held-out rows solved at a time


def solve_continuum(problem: Problem) -> Solution:
    """Train the continuum, with as many collocation points as the tolerance needs."""
    before = np.inf
    for degree in _DEGREES:
        solution = train(Continuum(problem, rule(degree)))
        error = solution.error_estimate
        if solution.status.kind == "exploded" or error <= problem.tol:
            return solution
        if 0.1 * before < error < 1e-3:  # truncation would have fallen: this is rounding
            break
        before = error
    advice = (
        "Pass a larger tol, a smaller learning rate or multiplier, or fewer steps: chaotic "
        "training amplifies rounding errors too."
    )
    return unresolved(solution, f"{degree + 1} Chebyshev points", advice)


class Continuum(Imbedding):
    """An imbedding whose error is that of their points in depth, too."""

    def __init__(self, problem: Problem, points: Rule) -> None:
        x = Depths(problem, points)
        d = Depths(problem, points, x)
        pull = problem.drift_rate * problem.hidden
        super().__init__(problem, x, d, pull=pull, positions=points.points)
        self.sweeps = x, d

    def error(self) -> float:
        return max(super().error(), max(side.tail for side in self.sweeps) * self.scale)


class Depths(Side):
    """x or d at every collocation point, in the order of its sweep.

    Written for x (for d the roles are exchanged), stacks of (points, N, N): ``returned`` = n P,
    ``gain`` = r (Q (I - PQ)^-1 <x|x> + (I - QP)^-1 <d|x>), from a new response to its covariance.
    ``tail`` estimates the first Chebyshev coefficients not kept, relative to ``size``, the largest
    response, covariance and cross covariance met.
    """

    def __init__(self, problem: Problem, points: Rule, partner: Self | None = None) -> None:
        super().__init__(problem, len(points.points), len(points.points), partner)
        self.points, self.rate = points, problem.noise_rate
        self.tail, self.size = 0.0, np.zeros(3)
        self.returned, self.gain = np.zeros((2, *self.kick.shape))

    def sweep(
        self, other: Self, start: Starts, pull: Pull, memory: Memory, keep: int
    ) -> tuple[Kept, Starts]:
        """Integrate the new rows over p by collocation: one linear equation, the old rows known."""
        n = len(pull)
        old = (slice(None), slice(n), slice(n))
        beyond = other.cov[::-1][old]
        own = self.rate * self.resolvent[old] - self.cross[old] * pull
        response_to_response = self.rate * other.resolvent[::-1][old] + self.returned[old]
        response_to_cov = self.gain[old]
        cov_to_cov = own.transpose(0, 2, 1)
        cov_to_cross = (memory[:n, :n].T - pull[:, None]) * beyond
        cross_to_cov = self.kick[old].transpose(0, 2, 1)

        def derivative(states: Array) -> Array:
            response, cov, cross = (states[:, :, i * n : (i + 1) * n] for i in range(3))
            out = np.empty_like(states)
            out[:, :, :n] = response @ response_to_response - cov * pull
            out[:, :, n : 2 * n] = response @ response_to_cov + cov @ cov_to_cov
            out[:, :, n : 2 * n] += cross @ cross_to_cov
            out[:, :, 2 * n :] = cov @ cov_to_cross
            return out

        states, last = np.empty((len(beyond), 0, 3 * n)), []
        # Held-out rows go in parts: the solver holds some twenty copies of what it works on.
        for part in np.split(start, range(keep, len(start), _PART)):
            solved = solve_volterra(self.points.integral, derivative, part)
            self._judge(solved.reshape(len(beyond), len(part), 3, n))
            last.append(solved[-1])
            if len(last) == 1:
                states = solved
        return states, np.concatenate(last)

    def _judge(self, states: Array) -> None:
        """Update the truncation estimate with a sweep's states (points, rows, 3, n)."""
        self.size = np.maximum(self.size, np.abs(states).max(axis=(0, 1, 3), initial=0.0))
        neglected = self.points.neglected(states) / np.where(self.size > 0, self.size, 1.0)
        self.tail = max(self.tail, float(neglected.max()))

    def follow(self, other: Self, states: States, start: Array, pull: Pull) -> SweptRows:
        n = pull.shape[-1]
        response, cov, cross = (states[:, :, i * n : (i + 1) * n] for i in range(3))
        feedback = response @ other.resolvent[::-1, :n, :n]
        kick = self.rate * feedback - cov * pull  # r P (I - QP)^-1 - k w * C
        echo = response @ other.feedback[::-1, :n, :n]
        half = kick @ cross.transpose(0, 2, 1) + self.rate * cov @ echo.transpose(0, 2, 1)
        # C' = r C + drive: collocated it is one small system, the same for every pair of rows.
        integral, drive = self.points.integral, half + half.transpose(0, 2, 1)
        inverse = np.linalg.inv(np.eye(len(integral)) - self.rate * integral)
        among = np.tensordot(inverse, start + np.tensordot(integral, drive, 1), 1)
        return SweptRows(feedback, kick, among)

    def extend(self, other: Self, rows: slice) -> None:
        """Append a step's rows to ``returned`` and ``gain``, both sweeps done."""
        n, every = rows.start, slice(rows.stop)
        old = slice(n)
        back, feedback = other.kick[::-1], other.feedback[::-1]
        cross, inverse = self.cross.transpose(0, 2, 1), other.resolvent[::-1]
        self.returned[:, rows, old] = back[:, rows, old] @ self.response[:, old, old]
        self.gain[:, old, rows] = self.rate * (
            feedback[:, old, old] @ self.cov[:, old, rows]
            + inverse[:, old, old] @ cross[:, old, rows]
        )
        self.gain[:, rows, every] = self.rate * (
            feedback[:, rows, old] @ self.cov[:, old, every]
            + inverse[:, rows, old] @ cross[:, old, every]
            + cross[:, rows, every]
        )
