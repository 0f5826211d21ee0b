"""Slopes: exact on exact powers, intervals that cover, tests that rarely fail what is right."""

import numpy as np
import pytest
from pytest import approx

from depthmup.statistics import Slope, holm, local_slopes, log_slopes, moderated
from studies import intervals
from studies.intervals import TRUTH, World

GRID, OF = intervals.grid(3)
SAME = World(name="seeds share their slopes")


def one(rng, world=SAME, **options):
    """The slopes of width and depth of one simulated observable."""
    return intervals.simulated(rng, world, seeds=3, observables=1, **options)[0]


def test_exact_powers_are_found_exactly_whatever_the_seeds_constants():
    found = one(np.random.default_rng(0), World(name="no noise", noise=0.0))
    assert [s.value for s in found] == approx(TRUTH, abs=1e-12)
    assert all(s.error < 1e-12 and s.scatter < 1e-12 for s in found)


def test_a_single_seed_equals_the_textbook_regression():
    rng = np.random.default_rng(1)
    x = np.array([4.0, 8.0, 16.0, 32.0, 64.0])
    y = x**0.3 * np.exp(0.1 * rng.standard_normal(5))
    (slope,) = log_slopes([(v,) for v in x], y, [0] * 5)
    coefficients, covariance = np.polyfit(np.log(x), np.log(y), 1, cov=True)
    assert slope.value == approx(coefficients[0], rel=1e-10)
    assert slope.error == approx(covariance[0, 0] ** 0.5, rel=1e-10)
    assert (slope.freedom, slope.repeats) == (3, 0)


def test_the_scatter_is_that_of_a_regression_for_each_seed():
    rng = np.random.default_rng(2)
    x, y = np.log([4.0, 8.0, 16.0, 32.0]), rng.standard_normal((3, 4))
    (slope,) = log_slopes(
        [(v,) for v in np.tile(np.exp(x), 3)], np.exp(y).ravel(), np.repeat(range(3), 4)
    )
    lines = [np.polyfit(x, each, 1) for each in y]
    own = np.array([line[0] for line in lines])
    residual = sum(
        ((each - np.polyval(line, x)) ** 2).sum() for each, line in zip(y, lines, strict=True)
    )
    assert slope.value == approx(own.mean())
    assert slope.scatter == approx(own.std(ddof=1) / 3**0.5)
    assert slope.error == approx((residual / 6 / (3 * ((x - x.mean()) ** 2).sum())) ** 0.5)
    assert (slope.freedom, slope.repeats) == (6, 2)


COVERAGE = [
    # At least so many of nominal 95% intervals, less 3 standard errors of 1000 trials.
    (0.0, 0.95 - 0.02),
    (0.06, 0.90),
    (0.1, 0.90),
    (0.3, 0.90 - 0.03),  # exactly 90% where nothing but the seeds' own slopes scatters
]


@pytest.mark.parametrize(("own_slopes", "at_least"), COVERAGE)
def test_intervals_of_one_slope_cover_the_truth(own_slopes, at_least):
    rng, world = np.random.default_rng(2), World(name="", own=(own_slopes,))
    hits = np.mean([intervals.covered(intervals.simulated(rng, world, seeds=3, observables=500))])
    assert hits >= at_least


@pytest.mark.long
@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("own", [(0.0,), (0.1,), (0.3,), (0.0, 0.1)])
def test_intervals_of_a_check_cover_the_truth(seeds, own):
    rng, world = np.random.default_rng(3), World(name="", own=own)
    hits = [
        intervals.covered(intervals.together(intervals.simulated(rng, world, seeds=seeds)))
        for _ in range(20)
    ]
    # 90%, as exponents of a check share their estimate of the scatter and so hit or miss together.
    assert np.mean(hits) >= 0.90


def test_intervals_are_not_needlessly_wide():
    """80% intervals miss: coverage is that of the confidence asked for, not 100%."""
    rng, hits = np.random.default_rng(3), []
    for _ in range(20):
        slopes = intervals.together(intervals.simulated(rng, SAME, seeds=3))
        hits += [
            (e := slope.estimate(0.8)).low <= truth <= e.high
            for pair in slopes
            for slope, truth in zip(pair, TRUTH, strict=True)
        ]
    assert 0.76 < np.mean(hits) < 0.90


EVERY_OTHER = World(name="every other observable scatters", own=(0.0, 0.1))


@pytest.mark.long(slice=False)
@pytest.mark.parametrize("world", [SAME, EVERY_OTHER], ids=lambda world: world.name)
def test_a_full_check_fails_a_correct_model_at_most_one_time_in_twenty(world):
    """At the worst that still is correct: every exponent off by exactly the margin."""
    rng, checks = np.random.default_rng(4), 600
    wrong = sum(
        intervals.fails(
            intervals.together(intervals.simulated(rng, world, seeds=3, offset=intervals.MARGIN))
        )
        for _ in range(checks)
    )
    assert intervals.bound(wrong, checks) < 0.05  # not just the rate that was seen


def test_the_bound_on_a_rate_is_exact():
    # (1 - p)^n = 0.05 where nothing was seen: 3/n, nearly.
    assert intervals.bound(0, 100) == approx(1 - 0.05 ** (1 / 100))


def test_seeds_that_share_their_slopes_need_no_correction():
    slopes = [
        s
        for pair in intervals.simulated(np.random.default_rng(5), SAME, seeds=3, observables=300)
        for s in pair
    ]
    better = moderated(slopes)
    assert np.mean([b.error / s.error for s, b in zip(slopes, better, strict=True)]) == approx(
        1, abs=0.05
    )
    # trigamma(d0 / 2) is 0, give or take 0.14 with 600 logarithms, and one such error is added:
    # three and that one are 0.57, which is d0 = 4.4, and the seeds' own 2 are added.
    assert np.median([b.freedom for b in better]) > 6.4


def test_moderation_finds_how_much_seeds_scatter_beyond_their_residuals():
    """With own slopes of one size, every error becomes the true one."""
    rng, world = np.random.default_rng(6), World(name="", own=(0.1,))
    slopes = [s for pair in intervals.simulated(rng, world, seeds=3, observables=300) for s in pair]
    true = np.array([0.1**2 / 3 + s.error**2 for s in slopes])
    found = np.array([s.error**2 for s in moderated(slopes)])
    # 600 variances of two degrees of freedom each: their mean is known to 4%; log-means less well.
    assert np.mean(found) == approx(true.mean(), rel=0.2)


def test_where_seeds_scatter_unequally_each_slope_must_show_its_own():
    rng, world = np.random.default_rng(7), World(name="", own=(0.0, 0.0, 0.0, 1.0))
    slopes = [s for pair in intervals.simulated(rng, world, seeds=3) for s in pair]
    better = moderated(slopes)
    assert max(s.freedom for s in better) < 5  # 2 of its own, little from the others
    for s, b in zip(slopes, better, strict=True):
        assert b.error >= s.error


def test_unequal_scatter_is_seldom_taken_for_equal():
    """Half of the slopes with 3.4 times the variance of the others, 60 in all.

    The variance of their logarithms is found 0.37 too large, give or take 0.5: found alone, it says
    that all are alike in about one check of four.
    """
    rng = np.random.default_rng(9)
    alike = 0
    for _ in range(60):
        better = intervals.together(intervals.simulated(rng, EVERY_OTHER, seeds=3))
        alike += np.median([s.freedom for pair in better for s in pair]) > 20
    assert alike <= 5  # two of 60 expected, at 0.37 + 0.5 and less than -1.7 errors from it


def test_few_slopes_are_left_as_they_are():
    few = [slope for _ in range(3) for slope in one(np.random.default_rng(8))]
    assert moderated(few) == tuple(few)


def test_one_slope_is_failed_only_if_its_seeds_say_so_as_well():
    sure = {"value": 1.0, "error": 0.01, "freedom": 30}
    assert Slope(**sure).p_outside(0.0, 0.25) < 1e-6
    assert Slope(**sure, scatter=0.5, repeats=2).p_outside(0.0, 0.25) > 0.05
    assert Slope(**sure, scatter=0.01, repeats=2).p_outside(0.0, 0.25) == approx(
        0.0001, abs=0.0001
    )  # t of 75 with 2 degrees of freedom: 0.9e-4


def test_without_a_correction_for_many_tests_correct_checks_would_fail():
    rng, wrong = np.random.default_rng(5), 0
    for _ in range(50):
        slopes = intervals.together(
            intervals.simulated(rng, SAME, seeds=3, offset=intervals.MARGIN)
        )
        wrong += any(pair[0].p_outside(TRUTH[0], intervals.MARGIN) < 0.05 for pair in slopes)
    assert wrong > 25


def test_an_exponent_off_by_a_half_is_found_every_time():
    rng = np.random.default_rng(6)
    assert all(
        intervals.fails(intervals.together(intervals.simulated(rng, SAME, seeds=3, offset=0.5)))
        for _ in range(20)
    )


def test_holm_rejects_more_than_bonferroni_and_stops_at_the_first_that_holds():
    p = {"a": 0.001, "b": 0.015, "c": 0.020, "d": 0.5}
    assert holm(p) == {"a", "b", "c"}  # thresholds .0125, .0167, .025, .05
    assert holm({"a": 0.02, "b": 0.02, "c": 0.02}) == set()
    assert holm({}) == set()


def test_local_slopes_of_a_power_are_the_power():
    x = [1.0, 3.0, 10.0]
    assert local_slopes(x, [v**0.5 for v in x]) == approx([0.5, 0.5])


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_values_without_logarithm_are_refused(bad):
    with pytest.raises(ValueError, match="positive finite"):
        log_slopes([(1.0,), (2.0,), (4.0,)], [1.0, bad, 1.0], [0, 0, 0])


def test_too_few_measurements_are_refused():
    with pytest.raises(ValueError, match="three sizes or more"):
        log_slopes([(1.0,), (2.0,)], [1.0, 2.0], [0, 0])
