"""What seeds have of their own: averages that a stray run does not bend, and shared errors."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from depthmup.posterior import Curves
from depthmup.posterior.curve import two_way
from depthmup.posterior.seeds import NODES, averages, seed_weights, shared_errors

X = np.arange(-3.0, 4.0, 0.5)


def curves(seed, *, own=0.0, shared=0.0, noise=0.005, seeds=6, sizes=4):
    """Parabolas whose minima seeds shift, (1, sizes, rates, seeds), and the true slope there."""
    rng = np.random.default_rng(seed)
    shift = shared * rng.standard_normal(seeds) + own * rng.standard_normal((sizes, 1, seeds))
    y = 0.07 * (X[:, None] - shift) ** 2 + noise * rng.standard_normal((sizes, len(X), seeds))
    grid = np.broadcast_to(X, (1, sizes, len(X)))
    return Curves(log2_lrs=grid, losses=np.exp(y)[None]), np.broadcast_to(0.14 * X, grid.shape)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_of_complete_runs_averages_are_means(seed):
    some, _ = curves(seed, noise=1e-6)
    found = averages(some)
    assert found.y == approx(some.log_losses.mean(-1), abs=1e-5)
    level = some.log_losses.mean(-2) - some.log_losses.mean((-2, -1))[..., None]
    assert found.level == approx(level, abs=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 30), st.sampled_from([0.15, 0.9]))
def test_two_way_least_squares_are_those_of_the_whole_design(seed, rates, seeds, share):
    """Whichever is more numerous is eliminated; parts that share nothing keep their own zero."""
    rng = np.random.default_rng(seed)
    weight = (rng.random((rates, seeds)) < share) * rng.uniform(0.2, 1.0, (rates, seeds))
    values = rng.standard_normal((rates, seeds))
    mean, level = two_way(values[None], weight[None])
    rate, column = (index.ravel() for index in np.indices((rates, seeds)))
    design = np.hstack([np.eye(rates)[rate], np.eye(seeds)[column]])
    root = np.sqrt(weight.ravel())[:, None]
    fitted = design @ np.linalg.lstsq(root * design, root[:, 0] * values.ravel(), rcond=1e-12)[0]
    there = weight > 0
    assert (mean[0][:, None] + level[0])[there] == approx(fitted.reshape(rates, seeds)[there])
    for part in np.unique((np.linalg.matrix_power(there.T @ there + np.eye(seeds), 9) > 0), axis=0):
        assert level[0][part].mean() == approx(0.0, abs=1e-9)


def test_a_thousand_seeds_take_memory_in_proportion():
    """A matrix of seeds by seeds would have 64 MB for each of four sizes."""
    rng = np.random.default_rng(0)
    y = 0.05 * X[:, None] ** 2 + 0.01 * rng.standard_normal((1, 4, len(X), 2000))
    some = Curves(log2_lrs=np.broadcast_to(X, y.shape[:-1]), losses=np.exp(y))
    tracemalloc.start()
    averages(some)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * y.nbytes


def test_noise_has_the_freedom_of_replicates():
    """Runs less rates less seeds: (14 - 1) (6 - 1) of each size."""
    some, _ = curves(0, noise=0.02)
    assert averages(some).freedom[0] == 4 * 13 * 5


@pytest.mark.parametrize("seeds", [3, 8])
@pytest.mark.parametrize("tails", [4.0, np.inf])
def test_averages_are_known_as_well_as_replicates_say(tails, seeds):
    """Of normal noise, and of Student's with 4 degrees of freedom: 40 tables of 56 rates."""
    rng = np.random.default_rng(0)
    shape = (40, 4, len(X), seeds)
    noise = rng.standard_normal(shape) if np.isinf(tails) else rng.standard_t(tails, shape)
    grid = np.broadcast_to(X, shape[:-1])
    found = averages(Curves(log2_lrs=grid, losses=np.exp(0.01 * noise)))
    claimed = (found.square / found.freedom)[:, None, None] / found.count
    errors = found.y - found.y.mean(-1, keepdims=True)
    ratio = claimed.mean() / (errors**2).mean()
    assert 0.75 < ratio < 1.35


def test_a_run_that_strays_counts_little():
    some, _ = curves(1)
    losses = some.losses.copy()
    losses[0, 1, 5, 2] *= np.exp(0.3)
    found = averages(Curves(log2_lrs=some.log2_lrs, losses=losses))
    assert found.weight[0, 1, 5, 2] < 0.1 * np.median(found.weight)
    assert found.y[0, 1, 5] == approx(averages(some).y[0, 1, 5], abs=0.02)


def test_one_seed_shows_no_noise():
    some, _ = curves(2, seeds=1)
    found = averages(some)
    assert found.freedom[0] == 0
    assert found.y == approx(some.log_losses[..., 0])


def test_a_louder_size_counts_less():
    some, _ = curves(3, noise=0.005)
    loud = some.losses.copy()
    loud[0, 3] *= np.exp(0.03 * np.random.default_rng(0).standard_normal(loud[0, 3].shape))
    found = averages(Curves(log2_lrs=some.log2_lrs, losses=loud))
    assert found.count[0, 3].mean() < 0.3 * found.count[0, :3].mean()


def test_errors_that_averages_keep():
    """(a^2 + d^2 t t' + w^2 I) / S where all sizes have the same seeds; none shared where none."""
    t = np.arange(3.0)
    a, w, d, _ = NODES[4]
    whole = a**2 + d**2 * np.outer(t - 1, t - 1) + w**2 * np.eye(3)
    assert shared_errors(np.ones((3, 5)), t)[4] == approx(whole / 5)
    apart = np.kron(np.eye(3), np.ones(5))
    assert shared_errors(apart, t)[4] == approx(np.diag(np.diag(whole)) / 5)


def test_contrasts_of_seeds_tell_what_they_have_of_their_own():
    """Shifts of 0.2 that sizes share, or 0.15 of each size, and none."""

    def likeliest(**options):
        some, slope = curves(5, seeds=8, **options)
        found = averages(some)
        weight = seed_weights(some, found, slope, np.array([0.005]), np.arange(4.0))
        return NODES[int(weight[0].argmax())]

    assert likeliest()[:2] == (0.02, 0.01)
    assert likeliest(shared=0.2)[:2] == (0.2, 0.01)
    assert likeliest(own=0.15)[1] == 0.15


def test_weights_of_what_seeds_may_have_add_up_to_one():
    assert sum(weight for *_, weight in NODES) == approx(1)
