"""What is known of a nonlinear network of infinite depth: the functions of p of earlier vectors.

The names: ``p``, ``q``, ``r``, ``s``, ``m``, ``n`` as at the head of ``nonlinear``; ``x``, ``d``,
``k`` are C = <x|x>, D = <d|d> and <x|d>; ``mh`` is Mh; ``e``, ``h`` are (I-PQ)^-1, (I-QP)^-1. In a
sweep, "old" are the earlier training vectors.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from jaxtyping import Float

from depthmup.limits.gaussian import Activation, Pair
from depthmup.limits.problem import Problem
from depthmup.limits.step import Array


class State:
    """Every function of p known so far, (points, N, N)."""

    def __init__(self, problem: Problem, points: int) -> None:
        self.problem, self.phi = problem, problem.activation
        self.second = problem.branch.width_ratio * problem.second
        self.a = problem.branch.multiplier
        self.nu = 1.0 if problem.alpha == Fraction(1, 2) else 0.0
        shape = (points, problem.vectors, problem.vectors)
        self.p, self.q, self.r, self.s = np.zeros((4, *shape))
        self.x, self.d, self.k = np.zeros((3, *shape))
        self.m, self.n, self.mh = np.zeros((3, *shape))
        self.k0, self.v1, self.noise = np.zeros((3, *shape))  # noise: covariance of phi'(h) d
        self.e, self.h = np.zeros((2, *shape))
        self.chi = np.zeros((problem.vectors, problem.d_out))
        self.xi = np.concatenate([step.inputs for step in problem.steps])
        self.pairs: Pair  # of the last minibatch with the vectors before it


def pairs_among(phi: Activation, cov: Float[Array, "points batch batch"]) -> tuple[Array, Array]:
    """k0 and V1 of a minibatch with itself, from its covariances (points, B, B)."""
    square = np.einsum("pbb->pb", cov)
    single = phi.single(square)
    eye = np.arange(cov.shape[1])
    # One sample has no pair, and is spared the quadrature.
    if len(eye) == 1:
        return single.variance[..., None], single.v1[..., None]
    first, second = np.triu_indices(len(eye), 1)
    pair = phi.pair(square[:, first], cov[:, first, second], square[:, second])
    k0, v1 = np.empty((2, *cov.shape))
    k0[:, first, second] = k0[:, second, first] = pair.k0
    v1[:, first, second] = v1[:, second, first] = pair.v1
    k0[:, eye, eye], v1[:, eye, eye] = single.variance, single.v1
    return k0, v1
