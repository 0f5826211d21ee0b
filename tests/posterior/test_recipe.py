"""The joint minima of several tuned values, against closed forms and finite differences."""

import math
from dataclasses import replace

import numpy as np
import pytest

from depthmup.posterior import bowl_fit, slope_row
from depthmup.posterior.bowl import Bowl, heights, lowest
from depthmup.posterior.priors import POWER
from depthmup.posterior.recipe import recipe_posterior
from depthmup.posterior.trials import Trials, first_guess
from depthmup.posterior.valley import rise

QUADRATIC = np.array([[0.2, 0.12], [0.12, 0.1]])
SIZES = 4
S = np.arange(float(SIZES))[:, None]


def trials(minima, curvature=QUADRATIC, *, noise=0.001, runs=30, seed=0, reach=2.5):
    """A random search of quadratic valleys about these minima, (sizes, values)."""
    rng = np.random.default_rng(seed)
    count, values = minima.shape
    x = rng.uniform(-reach, reach, (count, runs, values))
    away = x - minima[:, None]
    y = 0.5 * np.einsum("irj,jk,irk->ir", away, curvature, away)
    y = y - 0.1 * np.arange(count)[:, None] + noise * rng.standard_normal(y.shape)
    return Trials(
        x=x.reshape(-1, values),
        y=y.ravel(),
        size=np.repeat(np.arange(count), runs),
        seed=np.zeros(count * runs, np.int64),
        s=np.arange(float(count))[:, None],
    )


MINIMA = np.array([0.4, -0.3]) + S * np.array([0.1, -0.2])


@pytest.fixture(scope="module")
def found():
    return recipe_posterior(trials(MINIMA))


def random_bowl(values, rng):
    shape = np.tile(
        [-2.0, -2.4, 0.6, 0.5, 0.1, -0.1, -1.6, 0.05, 0.02, 0.01, -0.01, 0.02], (values, 1)
    )
    planes = values * (values - 1) // 2
    first, _ = np.linalg.qr(rng.normal(size=(values, values)))
    return Bowl(
        k=rng.normal(size=(SIZES, values)),
        shape=shape + 0.1 * rng.normal(size=shape.shape),
        angles=0.3 * rng.normal(size=(planes, 2)),
        first=first,
        bends=0.1 * rng.normal(size=(values, values - 1)),
    )


@pytest.mark.parametrize("values", [2, 3])
def test_derivatives_are_those_of_finite_differences(values):
    rng = np.random.default_rng(values)
    bowl = random_bowl(values, rng)
    away = rng.uniform(-2, 2, (20, values))
    s = rng.uniform(0, 3, (20, 1))
    found, step = heights(bowl, away, s), 1e-6
    for value in range(values):
        moved = step * np.eye(values)[value]
        ahead, behind = (heights(bowl, away + sign * moved, s).height for sign in (1, -1))
        np.testing.assert_allclose(found.slope[:, value], (ahead - behind) / (2 * step), atol=1e-7)
    minima = bowl.k.size
    for entry in range(len(bowl.vector) - minima):
        moved = np.zeros(len(bowl.vector))
        moved[minima + entry] = step
        ahead, behind = (heights(bowl.moved(sign * moved), away, s).height for sign in (1, -1))
        numeric = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(found.by_shape[:, entry], numeric, atol=1e-7)


def test_one_coordinate_is_the_valley_of_one_value():
    bowl = random_bowl(1, np.random.default_rng(0))
    bowl = replace(bowl, first=np.eye(1))
    u = np.linspace(-2, 2, 9)
    from depthmup.posterior.bowl import full

    alone = rise(u[None, None], full(bowl.shape, 1), np.zeros((1, 1)))
    found = heights(bowl, u[:, None], np.zeros((9, 1)))
    np.testing.assert_array_equal(found.height, alone.height[0, 0])
    np.testing.assert_allclose(found.slope[:, 0], alone.slope[0, 0], rtol=1e-12)


def test_the_least_height_with_one_value_aside_is_the_brute_force_one():
    bowl = random_bowl(2, np.random.default_rng(3))
    away = np.array([-1.0, -0.3, 0.5, 1.2])
    grid = np.linspace(-4, 4, 4001)
    found = lowest(bowl, (0,), away[:, None], np.ones((4, 1)))
    for at, height in zip(away, found, strict=True):
        places = np.column_stack([np.full_like(grid, at), grid])
        brute = heights(bowl, places, np.ones((len(grid), 1))).height.min()
        assert height == pytest.approx(brute, rel=0.01)


def test_the_least_height_with_two_of_three_values_aside_is_the_brute_force_one():
    bowl = random_bowl(3, np.random.default_rng(4))
    away = np.array([[-1.0, 0.4], [0.5, 1.2], [0.7, -0.8]])
    grid = np.linspace(-4, 4, 4001)
    found = lowest(bowl, (0, 2), away, np.ones((3, 1)))
    for (first, last), height in zip(away, found, strict=True):
        places = np.column_stack([np.full_like(grid, first), grid, np.full_like(grid, last)])
        brute = heights(bowl, places, np.ones((len(grid), 1))).height.min()
        assert height == pytest.approx(brute, rel=0.01)
    every = lowest(bowl, (0, 1, 2), np.column_stack([away, away[:, 0]]), np.ones((3, 1)))
    whole = heights(bowl, np.column_stack([away, away[:, 0]]), np.ones((3, 1)))
    np.testing.assert_array_equal(every, whole.height)


def test_information_at_a_known_shape_is_that_of_least_squares(monkeypatch):
    """Where nothing but the minima is unknown: the slopes' normal matrix, levels eliminated."""
    monkeypatch.setattr(bowl_fit, "MISFITS", ((1e-9, 1.0),))
    runs, sigma = trials(MINIMA), 0.01
    guess = first_guess(runs)
    mean, _ = bowl_fit.prior_of_shape(guess, 1, 0)
    bowl = bowl_fit.start(guess, MINIMA, mean, 1)
    problem = bowl_fit.BowlProblem(
        runs=runs,
        errors=bowl_fit.errors_of(runs, MINIMA, *[guess.rise(runs)] * 2, sigma),
        walls=bowl_fit.walls_of(runs, guess),
        mean=mean,
        scale=np.full(len(mean), 1e-7),
        own=(0.0, 0.0),
        weight=np.ones(len(runs.y)),
        origin=np.zeros(2),
    )
    precision = bowl_fit.nodes_at(problem, bowl, np.array([sigma])).nodes.precision[0, 0]
    for i in range(SIZES):
        own = runs.size == i
        slope = heights(bowl, runs.x[own] - MINIMA[i], runs.s[runs.size[own]]).slope
        slope = slope - slope.mean(0)
        block = precision[2 * i : 2 * i + 2, 2 * i : 2 * i + 2]
        np.testing.assert_allclose(block, slope.T @ slope / sigma**2, rtol=1e-4)


def test_the_joint_minimum_of_an_exact_quadratic(found):
    np.testing.assert_allclose(found.middle, MINIMA, atol=0.05)
    row = np.kron(slope_row(S[:, 0]), np.eye(2))
    np.testing.assert_allclose(found.minima.of_sizes(row).value, [0.1, -0.2], atol=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_a_ridge_that_bends_leaves_its_minimum_where_it_is(seed):
    """Taken for straight, the valley is lowest an octave aside."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (SIZES, 40, 2))
    away = (x - MINIMA[:, None]) @ np.array([[1, 1], [1, -1]]) / math.sqrt(2)
    u, v = np.moveaxis(away, -1, 0)
    y = 0.1 * (u - 0.15 * v**2) ** 2 + 0.006 * v**2 + 0.003 * rng.standard_normal(u.shape)
    runs = replace(trials(MINIMA, runs=40), x=x.reshape(-1, 2), y=y.ravel())
    low, middle, high = recipe_posterior(runs).minima.of_sizes(np.eye(2 * SIZES)).interval(0.95)
    assert (low <= MINIMA.ravel()).all()
    assert (MINIMA.ravel() <= high).all()
    assert np.abs(middle - MINIMA.ravel()).max() < 0.25  # half of an interval


def test_turned_coordinates_turn_the_minima(found):
    """Neither the law nor the errors prefer the axes of the values."""
    turn = np.array([[np.cos(0.7), np.sin(0.7)], [-np.sin(0.7), np.cos(0.7)]])
    runs = trials(MINIMA)
    turned = recipe_posterior(replace(runs, x=runs.x @ turn.T))
    np.testing.assert_allclose(turned.middle, found.middle @ turn.T, atol=0.01)
    wanted = turn @ found.covariance @ turn.T
    np.testing.assert_allclose(turned.covariance, wanted, atol=0.1 * np.abs(wanted).max())


def test_the_order_of_the_values_changes_nothing(found):
    runs = trials(MINIMA)
    swapped = recipe_posterior(replace(runs, x=runs.x[:, ::-1].copy()))
    np.testing.assert_allclose(swapped.middle[:, ::-1], found.middle, atol=1e-3)
    np.testing.assert_allclose(
        swapped.covariance[:, ::-1, ::-1], found.covariance, rtol=0.02, atol=1e-6
    )


def test_a_direction_without_effect_is_wide_and_leaves_the_other_narrow():
    way = np.array([1.0, 1.0]) / np.sqrt(2)
    ridge = recipe_posterior(trials(MINIMA, 0.2 * np.outer(way, way), noise=0.005))
    along = np.array([1.0, -1.0]) / np.sqrt(2)
    known, free = (ridge.minima.of_sizes(np.kron(np.eye(SIZES), row[None])) for row in (way, along))
    low, _, high = known.interval(0.95)
    assert ((low <= MINIMA @ way) & (MINIMA @ way <= high)).all()
    assert (np.sqrt(free.variance) > 1.0).all()
    assert (high - low < 0.5).all()
    # As narrow as that of the one value that matters, tuned alone.
    runs = trials(MINIMA, 0.2 * np.outer(way, way), noise=0.005)
    alone = recipe_posterior(replace(runs, x=runs.x @ way[:, None]))
    of_alone = np.sqrt(alone.minima.of_sizes(np.eye(SIZES)).variance)
    assert np.sqrt(known.variance) == pytest.approx(of_alone, rel=0.6)


def test_seeds_with_levels_of_their_own_are_no_noise():
    runs = trials(MINIMA, noise=0.002, runs=60)
    rng = np.random.default_rng(1)
    seed = rng.integers(0, 3, len(runs.y))
    level = rng.normal(0, 0.05, (SIZES, 3))[runs.size, seed]
    shifted = replace(runs, y=runs.y + level, seed=seed)
    assert recipe_posterior(shifted).noise < 0.004
    assert recipe_posterior(replace(shifted, seed=0 * seed)).noise > 0.02


def test_the_minimum_lies_before_runs_that_diverge():
    """A cliff that begins before the parabola's own minimum holds it back."""
    runs = trials(MINIMA, runs=60)
    cliff = MINIMA[runs.size, 0] - 0.5
    walled = replace(runs, y=np.where(runs.x[:, 0] > cliff, np.inf, runs.y))
    held = recipe_posterior(walled)
    assert (held.middle[:, 0] < MINIMA[:, 0] - 0.3).all()


def test_heights_of_errors_do_not_hold_the_noise():
    """With many runs a turn of each size would explain the noise in its heights."""
    found = recipe_posterior(trials(MINIMA, noise=0.005, runs=60))
    assert 0.002 < found.noise < 0.009


def test_steepness_begins_at_the_first_guess():
    guess = first_guess(trials(MINIMA))
    np.testing.assert_allclose(guess.curvature, QUADRATIC, atol=0.02)
    mean, _ = bowl_fit.prior_of_shape(guess, 1, 0)
    far = bowl_fit.FAR
    rises = np.exp(mean[0]) * far ** np.exp(POWER)
    assert rises == pytest.approx(guess.directions[0][0] * far**2 / 2)


def test_what_rises_far_above_the_other_side_says_little():
    """As of one value: a wall tells little of where the minimum lies."""
    runs, noise = trials(MINIMA, runs=20), 0.01
    rise = first_guess(runs).rise(runs)
    alike = bowl_fit.errors_of(runs, MINIMA, rise, rise, noise)[0].misfit
    walled = bowl_fit.errors_of(runs, MINIMA, rise, rise / 10, noise)[0].misfit
    ratio = np.sqrt(np.diag(walled) / np.diag(alike))
    np.testing.assert_allclose(ratio, np.sqrt(101 / 2))
