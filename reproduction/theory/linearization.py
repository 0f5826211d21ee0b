"""Linearization: how far phi(W1 x) is from its first order in what training has added to W1.

With h0 = W1_0 x and dh = (W1 - W1_0) x of a branch's first matrix, over its neurons,

    distance = |phi(h0 + dh) - phi(h0) - phi'(h0) dh| / |phi(h0 + dh) - phi(h0)| .

At infinite depth and 1/2 <= alpha < 1 updates move h by a vanishing amount,

    dh_r = - a L^-gamma sum_{s<r} w_rs C_rs phi'(u_s) v_s ,    u ~ N(0, C),  v ~ N(0, D / rho),

with h0 -> u, so that the distance is the root of a ratio of Gaussian expectations over u and v. It
falls as L^-gamma where phi is smooth (phi'' dh / 2 phi'), as L^(-gamma/2) where it has a kink (a
part dh of the neurons cross it and are wrong by dh). That is why W1 may be linearized in the limit:
what is left out of a branch's update vanishes beside it. At alpha = 1, gamma = 0 it never does.

*Source:* arXiv 2310.02244, Definition 7.7 and Claim 7.6, of networks; the expectations are derived
here.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from depthmup.limits import Activation, Neurons, Sobol, Solution, rule
from depthmup.statistics import Array


def linearization(
    solution: Solution,
    depth: int,
    *,
    at: float = 0.5,
    width_ratio: float = 1.0,
    neurons: Neurons | None = None,
) -> Float[Array, " vectors"]:
    """The relative distance of a branch's first matrix from its linearization, by training vector.

    To leading order in 1/depth, of networks with one matrix per block (their only one) or two.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> s = limits.two_matrix(steps, depth=math.inf, lr=1.0, activation="tanh", history=True)
        >>> near, far = (linearization(s, depth)[1] for depth in (2**20, 2**22))
        >>> round(float(near / far), 2)  # L^-1/2
        2.0

    *Source:* TP6 (arXiv 2310.02244) Definition 7.7 and Claim 7.6, of networks; the expectations
    are derived here.
    """
    h, problem = solution.history, solution.problem
    if h is None:
        raise ValueError("Linearization needs every covariance: pass history=True.")
    if len(h.m) < len(h.x):
        raise ValueError(
            "Linearization is computed from the limit of infinite depth, for networks of any "
            "depth: solve with depth=math.inf."
        )
    if not (depth >= 1 and 0 <= at <= 1 and 0 < width_ratio < math.inf):
        raise ValueError(
            "Expected a depth of at least 1, at in [0, 1] and a positive width_ratio; got "
            f"{depth=}, {at=}, {width_ratio=}."
        )
    whole = rule(len(solution.positions) - 1)
    if not np.allclose(whole.points, solution.positions):
        raise ValueError(
            "Linearization is not available on graded panels (relu or abs with collinear inputs): "
            "perturb the inputs, or take a smooth activation."
        )
    cov, cov_d = (whole.evaluate(values, np.array([at]))[0] for values in (h.x, h.d))
    times = np.repeat(np.arange(len(problem.steps)), [len(step.inputs) for step in problem.steps])
    # Strictly causal: what the weights of a vector's step carry of earlier gradients.
    moves = -replace(problem, depth=depth).kick * problem.hidden[times] * cov
    neurons = neurons or Sobol()
    distances = [
        _distance(problem.activation, points, weights, cov, cov_d / width_ratio, moves)
        for points, weights in neurons.samples(2 * len(cov))
    ]
    return neurons.estimate(np.array(distances))[0]


def _distance(
    phi: Activation, points: Array, weights: Array, cov: Array, cov_g: Array, moves: Array
) -> Array:
    size = len(cov)
    u = _root(cov) @ points[:, :size].T
    e = phi.slope(u) * (_root(cov_g) @ points[:, size:].T)
    shift = moves @ e
    change = phi.function(u + shift) - phi.function(u)
    missing, whole = ((x**2) @ weights for x in (change - phi.slope(u) * shift, change))
    # A vector of the first step has moved nothing yet: its ratio is 0 / 0, and nan says so.
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sqrt(missing / np.where(whole > 0, whole, np.nan)))


def _root(cov: Array) -> Array:
    """A square root of a covariance that may be singular."""
    values, vectors = np.linalg.eigh(cov)
    result: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return result
