"""Slopes: exact on exact powers, intervals that cover, tests that rarely fail what is right."""

import numpy as np
import pytest
from pytest import approx

from depthmup.diagnostics import holm, local_slopes, log_slopes

WIDTHS, DEPTHS, SEEDS = (32, 64, 128, 256), (4, 8, 16, 32), 3
GRID = [(float(w), float(d)) for _ in range(SEEDS) for w in WIDTHS for d in DEPTHS]
OF = [seed for seed in range(SEEDS) for _ in range(len(WIDTHS) * len(DEPTHS))]
TRUTH = np.array([0.5, -1.0])


def simulated(rng, *, noise=0.2, own_slopes=0.0, truth=TRUTH):
    """A power law with a constant per seed, noise, and (if asked) a slope of each seed's own."""
    logs = np.log(GRID)
    slopes = truth + own_slopes * rng.standard_normal((SEEDS, 2))
    constants = rng.standard_normal(SEEDS)
    seeds = np.array(OF)
    y = constants[seeds] + (logs * slopes[seeds]).sum(1) + noise * rng.standard_normal(len(OF))
    return np.exp(y)


def test_exact_powers_are_found_exactly_whatever_the_seeds_constants():
    values = simulated(np.random.default_rng(0), noise=0.0)
    found = log_slopes(GRID, values, OF)
    assert [s.value for s in found] == approx(TRUTH, abs=1e-12)
    assert all(s.error < 1e-12 for s in found)


def test_a_single_seed_equals_the_textbook_regression():
    rng = np.random.default_rng(1)
    x = np.array([4.0, 8.0, 16.0, 32.0, 64.0])
    y = x**0.3 * np.exp(0.1 * rng.standard_normal(5))
    (slope,) = log_slopes([(v,) for v in x], y, [0] * 5)
    coefficients, covariance = np.polyfit(np.log(x), np.log(y), 1, cov=True)
    assert slope.value == approx(coefficients[0], rel=1e-10)
    assert slope.error == approx(covariance[0, 0] ** 0.5, rel=1e-10)
    assert slope.freedom == 3


@pytest.mark.parametrize(
    ("own_slopes", "at_least"),
    [
        (0.0, 0.93),  # 95%, less 3 standard errors of 1000 trials
        (0.06, 0.90),  # seeds with slopes of their own, twice the error of a slope without them
    ],
)
def test_intervals_cover_the_truth(own_slopes, at_least):
    rng = np.random.default_rng(2)
    hits = []
    for _ in range(1000):
        for slope, truth in zip(
            log_slopes(GRID, simulated(rng, own_slopes=own_slopes), OF), TRUTH, strict=True
        ):
            found = slope.estimate(0.95)
            hits.append(found.low <= truth <= found.high)
    assert np.mean(hits) >= at_least


def test_intervals_are_not_needlessly_wide():
    """80% intervals miss: coverage is that of the confidence asked for, not 100%."""
    rng = np.random.default_rng(3)
    hits = [
        (e := log_slopes(GRID, simulated(rng), OF)[0].estimate(0.8)).low <= TRUTH[0] <= e.high
        for _ in range(1000)
    ]
    assert 0.76 < np.mean(hits) < 0.93


def failed(rng, *, offset, exponents=60, margin=0.25):
    """Whether a check of so many observables, all off by ``offset``, fails any."""
    p_values = {}
    for i in range(exponents // 2):
        slopes = log_slopes(GRID, simulated(rng, truth=TRUTH + offset), OF)
        for axis, (slope, truth) in enumerate(zip(slopes, TRUTH, strict=True)):
            p_values[i, axis] = slope.p_outside(float(truth), margin)
    return bool(holm(p_values))


def test_a_full_check_fails_a_correct_model_at_most_one_time_in_twenty():
    """At the worst that still is correct: every exponent off by exactly the margin."""
    rng = np.random.default_rng(4)
    rate = np.mean([failed(rng, offset=0.25) for _ in range(200)])
    assert rate <= 0.05 + 3 * (0.05 * 0.95 / 200) ** 0.5


def test_without_a_correction_for_many_tests_it_would():
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(50):
        slopes = [log_slopes(GRID, simulated(rng, truth=TRUTH + 0.25), OF)[0] for _ in range(30)]
        wrong += any(s.p_outside(TRUTH[0], 0.25) < 0.05 for s in slopes)
    assert wrong > 25


def test_an_exponent_off_by_a_half_is_found_every_time():
    rng = np.random.default_rng(6)
    assert all(failed(rng, offset=0.5) for _ in range(20))


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
