"""What parts runs from their valley: two ways to one inverse covariance, and far points."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from depthmup.posterior.errors import CurvePoints


def points(seed, batch=2, sizes=3, rates=7):
    """Valleys with noise, of which some points are missing."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-4, 4, (batch, sizes, rates)), -1)
    y = np.where(x < 0, 0.05, 0.1) * x**2 + 0.01 * rng.standard_normal(x.shape)
    count = rng.integers(1, 4, x.shape) * (rng.random(x.shape) < 0.85)
    return CurvePoints(x=x, y=y, count=count.astype(float)), rng.uniform(0.3, 1, x.shape)


SCALES = np.array([0.02, 0.05]), np.array([0.01, 0.03]), np.array([0.02, 0.01])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_spectrum_and_the_precision_are_of_one_covariance(seed):
    """T' diag(1 / (sigma^2 + e)) T with the level eliminated, as in ``precision``."""
    some, weight = points(seed)
    sigma = np.array([0.01, 0.03])
    direct = some.precision(sigma, *SCALES, weight)
    values, turned, _ = some.spectrum(*SCALES, weight)
    scaled = turned / (sigma[:, None, None, None] ** 2 + values[..., :, None])
    inverse = np.swapaxes(turned, -1, -2) @ scaled
    ones = inverse.sum(-1)
    total = np.maximum(ones.sum(-1), 1e-300)[..., None, None]
    inverse = inverse - ones[..., :, None] * ones[..., None, :] / total
    assert inverse == approx(direct, rel=1e-6, abs=1e-4)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_the_precision_is_the_inverse_of_differences_from_a_level(seed):
    """Directly: of points that are there, the inverse of Q' C Q, with Q orthogonal to 1."""
    some, weight = points(seed)
    sigma = np.array([0.01, 0.03])
    direct = some.precision(sigma, *SCALES, weight)
    structured = some.structured(*SCALES)
    for b in range(2):
        for i in range(3):
            there = some.there[b, i]
            n = int(there.sum())
            if n < 2:
                continue
            noise = sigma[b] ** 2 / (some.count * weight)[b, i, there]
            covariance = structured[b, i][np.ix_(there, there)] + np.diag(noise)
            q = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
            expected = q @ np.linalg.inv(q.T @ covariance @ q) @ q.T
            found = direct[b, i][np.ix_(there, there)]
            assert found == approx(expected, rel=1e-6, abs=1e-3)
            assert direct[b, i][~there].sum() == 0


def test_the_determinant_is_that_of_the_covariance():
    some, weight = points(0)
    sigma = 0.02
    values, _, logs = some.spectrum(*SCALES, weight)
    missing = (~some.there).sum(-1)
    found = np.log(sigma**2 + values).sum(-1) - 2 * missing * np.log(sigma) + logs
    structured = some.structured(*SCALES)
    for b in range(2):
        for i in range(3):
            there = some.there[b, i]
            noise = sigma**2 / (some.count * weight)[b, i, there]
            covariance = structured[b, i][np.ix_(there, there)] + np.diag(noise)
            assert found[b, i] == approx(np.linalg.slogdet(covariance)[1])


def one(y, spacing=1.0):
    y = np.asarray(y, float)
    x = spacing * np.arange(len(y))[None, None]
    return CurvePoints(x=x, y=y[None, None], count=np.ones((1, 1, len(y))))


def test_places_of_a_parabola():
    some = one((np.arange(5) - 2.2) ** 2)
    assert some.lowest[0, 0] == 2
    assert some.centre[0, 0] == approx(2.2)
    assert some.spacing[0, 0] == 1.0
    assert some.side[0, 0].tolist() == [-1, -1, -1, 1, 1]


def test_the_mirrored_height_is_that_of_the_other_side():
    """V with slopes 1 on the left and 3 on the right of a point at its minimum."""
    x = np.arange(-3.0, 4.0)
    some = one(np.where(x < 0, -x, 3 * x))
    assert some.centre[0, 0] - 3 == approx(0, abs=0.51)
    assert some.mirrored[0, 0][-1] < some.height[0, 0][-1]
    assert some.mirrored[0, 0][0] > some.height[0, 0][0]


def test_points_far_out_or_high_or_far_above_the_other_side_say_less():
    """H over h is the product of three factors."""
    x = np.arange(-4.0, 5.0)
    plain, walled = one(0.07 * x**2), one(0.07 * x**2 + 3 * np.maximum(x - 1.5, 0))
    relative = [
        np.sqrt(np.diagonal(some.misfit[0, 0])) / np.maximum(some.height[0, 0], 1e-9)
        for some in (plain, walled)
    ]
    assert relative[0][-1] > 1.5 * relative[0][5]
    assert relative[1][-2] > 5 * relative[0][-2]
    height = plain.height[0, 0]
    expected = np.sqrt(2) * (1 + (height / 0.3) ** 2) * (1 + (x / 2) ** 2)
    assert relative[0][height > 0] == approx(expected[height > 0])


def test_a_misfit_persists_on_one_side_and_not_across():
    some = one(0.07 * (np.arange(7) - 3.1) ** 2)
    deviation = np.sqrt(np.diagonal(some.misfit[0, 0]))
    known = deviation > 0
    correlation = some.misfit[0, 0][np.ix_(known, known)] / np.outer(
        deviation[known], deviation[known]
    )
    side = some.side[0, 0][known]
    x = some.x[0, 0][known]
    expected = (side[:, None] == side[None]) * np.exp(-np.abs(x[:, None] - x[None]))
    assert correlation == approx(expected)


@pytest.mark.parametrize("mirrored", [False, True])
def test_what_lies_beyond_the_first_point_of_a_wall_is_left_out(mirrored):
    y = np.array([0.28, 0.07, 0.0, 0.07, 3.0, 9.0, 9.1])
    some = one(y[::-1] if mirrored else y)
    inner = some.inner().there[0, 0]
    assert (inner[::-1] if mirrored else inner).tolist() == [True] * 5 + [False] * 2
