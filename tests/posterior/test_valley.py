"""The valley's rise: its derivatives by finite differences, and the special shapes it contains."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from depthmup.posterior.valley import (
    BENDS,
    LEVELS,
    PLACE,
    POWERS,
    ROUND,
    SHARED,
    WALL,
    parameters,
    rise,
)

STEP = 1e-6
S = np.array([[0.0, 1.0], [1.0, 0.5], [2.0, 3.0]])


def drawn(seed, axes=2):
    """A shape of every kind: sides that differ, that bend, and a wall; trends along all axes."""
    rng = np.random.default_rng(seed)
    shape = np.zeros((1, parameters(axes)))
    shape[:, LEVELS] = np.log(0.07) + 0.5 * rng.standard_normal(2)
    shape[:, POWERS] = np.log(1.8) + 0.2 * rng.standard_normal(2)
    shape[:, BENDS] = 0.2 * rng.standard_normal(2)
    shape[:, ROUND], shape[:, WALL], shape[:, PLACE] = np.log(0.2), -0.5, 1.0
    shape[:, SHARED:] = 0.05 * rng.standard_normal(parameters(axes) - SHARED)
    return shape


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_derivatives_are_those_of_finite_differences(seed):
    shape = drawn(seed)
    u = np.linspace(-3.1, 3.2, 14) + np.zeros((1, len(S), 1))
    found = rise(u, shape, S)
    up, down = (rise(u + way * STEP, shape, S).height for way in (1, -1))
    assert found.slope == approx((up - down) / (2 * STEP), rel=1e-5, abs=1e-8)
    for number in range(shape.shape[1]):
        moved = STEP * (np.arange(shape.shape[1]) == number)
        up, down = (rise(u, shape + way * moved, S).height for way in (1, -1))
        expected = (up - down) / (2 * STEP)
        assert found.by_shape[..., number] == approx(expected, rel=1e-5, abs=1e-8), number


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_minimum_lies_at_zero_and_has_height_zero(seed):
    shape = drawn(seed)
    u = np.concatenate([-np.geomspace(3, 1e-3, 20), [0.0], np.geomspace(1e-3, 3, 20)])
    height = rise(u + np.zeros((1, len(S), 1)), shape, S).height
    assert height[..., 20] == approx(0, abs=1e-12)
    assert (height >= -1e-12).all()


def plain(power, level, bend=0.0, wall=-30.0):
    shape = np.zeros((1, parameters(1)))
    shape[:, LEVELS], shape[:, POWERS], shape[:, BENDS] = np.log(level), np.log(power), bend
    shape[:, ROUND], shape[:, WALL], shape[:, PLACE] = np.log(1e-4), wall, 1.0
    return shape


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_it_contains_powers(power):
    u = np.linspace(-3, 3, 13)
    height = rise(u[None, None], plain(power, 0.07), np.zeros((1, 1))).height[0, 0]
    assert height == approx(0.07 * np.abs(u) ** power, abs=1e-4)


def test_a_bend_below_zero_is_a_plateau_and_above_zero_a_wall():
    far = np.array([2.0, 4.0, 8.0])
    sinks, straight, climbs = (
        rise(far[None, None], plain(2.0, 0.07, bend), np.zeros((1, 1))).height[0, 0]
        for bend in (-0.66, 0.0, 0.3)
    )
    assert sinks[2] < 2 * sinks[0] < straight[2]
    assert climbs[2] / climbs[1] > 2 * straight[2] / straight[1]


def test_a_wall_begins_where_its_place_is_and_rises_by_its_slope():
    u = np.array([0.0, 0.3, 4.0, 5.0])
    at = np.zeros((1, 1))
    with_wall = rise(u[None, None], plain(2.0, 0.07, wall=1.0), at).height[0, 0]
    without = rise(u[None, None], plain(2.0, 0.07), at).height[0, 0]
    rest = with_wall - without
    assert rest[0] == approx(0, abs=1e-12)
    assert rest[1] < 0.01
    assert rest[3] - rest[2] == approx(0.07 * np.e, rel=1e-6)
    left = rise(-u[None, None], plain(2.0, 0.07, wall=1.0), at).height[0, 0]
    assert left == approx(without)


def test_trends_turn_one_side_against_the_other():
    """T = 0.2 per doubling: after two the right side is e^0.4 as steep, the left e^-0.4."""
    shape = plain(2.0, 0.07)
    shape[:, SHARED + 1] = 0.2
    u = np.array([-1.0, 1.0]) + np.zeros((1, 2, 1))
    height = rise(u, shape, np.array([[0.0], [2.0]])).height
    assert height[0, 1] / height[0, 0] == approx(np.exp([-0.4, 0.4]))
