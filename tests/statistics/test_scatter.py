"""The posterior of how sizes scatter: against the full likelihood, by simulation, at its ends."""

import math

import numpy as np
import pytest
from pytest import approx

from depthmup.statistics.intervals import Array
from depthmup.statistics.scatter import ALIKE, SCATTERED, USUAL, Scatter, scatter_of

Z = 1.959964


def line(sizes: int, step: float = 1.0) -> tuple[Array, Array, Array, Array]:
    """Positions, 1 - H, the scatter's correlation, and the weights of the slope."""
    x = step * (np.arange(sizes) - (sizes - 1) / 2)
    design = np.column_stack([np.ones(sizes), x])
    inverse = np.linalg.pinv(design)
    apart = np.eye(sizes) - design @ inverse
    return x, apart, ALIKE ** np.abs(x[:, None] - x[None]), inverse[1]


def test_without_scatter_a_half_width_is_that_of_the_others():
    none = Scatter(taus=np.array([0.0, 0.1]), weights=np.array([1.0, 0.0]))
    assert none.half(np.asarray(0.3), np.asarray(0.2), 0.95) == approx(0.3, rel=1e-6)
    assert none.half(np.asarray(math.inf), np.asarray(0.2), 0.95) == math.inf


def test_of_one_tau_variances_add():
    one = Scatter(taus=np.array([0.0, 0.1]), weights=np.array([0.0, 1.0]))
    half = one.half(np.asarray(0.3), np.asarray(0.25), 0.95)
    assert half == approx(math.hypot(0.3, Z * 0.1 * 0.5), rel=1e-4)


def test_of_a_mixture_five_percent_lie_outside():
    mixed = Scatter(taus=np.array([0.0, 0.1, 1.0]), weights=np.array([0.6, 0.3, 0.1]))
    half = float(mixed.half(np.asarray(0.2), np.asarray(1.0), 0.95))
    rng = np.random.default_rng(0)
    tau = rng.choice(mixed.taus, 200_000, p=mixed.weights)
    drawn = np.hypot(0.2 / Z, tau) * rng.standard_normal(len(tau))
    # Its standard error is 0.05% of 200,000 draws.
    assert (np.abs(drawn) > half).mean() == approx(0.05, abs=0.002)


@pytest.mark.parametrize("sizes", [3, 4])
def test_the_posterior_is_that_of_the_full_likelihood(sizes):
    """One residual has one degree of freedom, and the approximation is exact; two, nearly."""
    _, apart, alike, _ = line(sizes)
    known = 0.03**2 * np.eye(sizes)
    pair = line(2)
    prior = scatter_of(np.zeros(2), pair[1], 1e-4 * np.eye(2), pair[2], None, USUAL).weights
    basis = np.linalg.svd(apart)[0][:, : sizes - 2]
    for size in (0.02, 0.1, 0.5):
        values = size * basis @ np.ones(sizes - 2)
        found = scatter_of(values, apart, known, alike, None, USUAL)
        log = []
        for tau in found.taus:
            total = basis.T @ (known + tau**2 * alike) @ basis
            seen = basis.T @ values
            log.append(-(seen @ np.linalg.solve(total, seen) + np.linalg.slogdet(total)[1]) / 2)
        exact = prior * np.exp(np.array(log) - max(log))
        exact = exact / exact.sum()
        means = [weights @ found.taus for weights in (found.weights, exact)]
        assert means[0] == approx(means[1], rel=1e-6 if sizes == 3 else 0.25)


def test_two_sizes_show_nothing_and_have_the_prior():
    _, apart, alike, weights = line(2)
    scatter = scatter_of(np.zeros(2), apart, 1e-4 * np.eye(2), alike, None, USUAL)
    assert scatter.weights[0] == approx(1 - SCATTERED)
    half = float(scatter.half(np.asarray(0.0), np.asarray(weights @ alike @ weights), 0.95))
    assert 0.2 < half < 0.5  # two sizes a doubling apart decide nothing within 0.15


def test_a_smooth_bend_is_no_scatter_and_a_jump_is():
    x, apart, alike, weights = line(6)
    spread = np.asarray(weights @ alike @ weights)
    jump = np.where(np.arange(6) == 3, 1.0, 0.0)
    halves = []
    for values in (0.03 * x**2, 0.4 * jump, 6 * jump):
        scatter = scatter_of(values @ apart, apart, 1e-4 * np.eye(6), alike, x**2, USUAL)
        halves.append(float(scatter.half(np.asarray(0.02), spread, 0.95)))
    assert halves[0] < 0.05 < halves[1] / 2
    assert halves[2] > 10 * halves[1] / 2  # a size octaves off leaves nothing known


@pytest.mark.parametrize(("sizes", "step"), [(2, 3.0), (3, 2.0), (4, 1.0), (6, 1.0)])
def test_slopes_of_sizes_that_scatter_as_usual_are_covered(sizes, step):
    """Sizes that scatter by what tables commonly show: from two sizes on, nine in ten at least.

    Of two and three sizes half-widths hold by the prior alone; without it, 20 to 85%.
    """
    x, apart, alike, weights = line(sizes, step)
    rng, draws, noise = np.random.default_rng(sizes), 2000, 0.03
    for tau, correlated in ((0.0, alike), (0.1, np.eye(sizes)), (0.1, alike)):
        root = np.linalg.cholesky(correlated)
        scattered = tau * rng.standard_normal((draws, sizes)) @ root.T
        values = scattered + noise * rng.standard_normal((draws, sizes))
        bend = x**2 if sizes > 4 else None
        known = np.broadcast_to(noise**2 * np.eye(sizes), (draws, sizes, sizes))
        scatter = scatter_of(values @ apart, apart, known, alike, bend, USUAL)
        others = np.full(draws, Z * noise * np.sqrt(weights @ weights))
        half = scatter.half(others, np.full(draws, weights @ alike @ weights), 0.95)
        covered = (np.abs(values @ weights) <= half).mean()
        assert covered > 0.9 - 3 * math.sqrt(0.9 * 0.1 / draws)
