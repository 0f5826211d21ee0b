"""Intervals of single claims against closed forms, and how often chance alone exceeds them."""

from math import inf, isinf, isnan, nan, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from scipy import stats

from depthmup.statistics import mean
from reproduction.intervals import exact, jackknife, share, standard_errors, surprising

universal = settings(max_examples=40, deadline=None)


def average(some):
    return float(some.mean())


class TestJackknife:
    def test_of_a_mean_is_the_t_interval(self):
        """The closed form: mean +- t_{S-1} s / sqrt(S)."""
        sample = np.array([1.0, 2.0, 4.0, 4.5])
        interval = jackknife(average, sample)
        half = 3.182446305284263 * sample.std(ddof=1) / 2
        assert (interval.value, interval.low, interval.high) == approx(
            (sample.mean(), sample.mean() - half, sample.mean() + half)
        )

    @universal
    @given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
    def test_of_any_mean_is_that_of_mean(self, values):
        by_hand, closed = jackknife(average, np.array(values)), mean(values)
        expected = (closed.value, closed.low, closed.high)
        assert (by_hand.value, by_hand.low, by_hand.high) == approx(expected, abs=1e-9)

    def test_one_seed_gives_no_interval(self):
        interval = jackknife(average, np.array([1.0]))
        assert (interval.value, interval.low, interval.high) == (1.0, -inf, inf)

    def test_a_seed_that_decides_whether_it_exists_leaves_it_unbounded(self):
        interval = jackknife(
            lambda some: average(some) if len(some) > 2 else nan, np.array([1.0, 2.0, 3.0])
        )
        assert interval.value == 2.0
        assert isinf(interval.low)

    def test_what_is_unknown_stays_unknown(self):
        assert isnan(jackknife(lambda _: nan, np.ones(3)).value)


def test_a_computed_number_has_an_interval_without_width():
    assert (exact(2.0).low, exact(2.0).high) == (2.0, 2.0)


def test_standard_errors_are_distances_in_units_of_the_mean_s_scatter():
    runs = np.random.default_rng(0).standard_normal((50, 4)) * [1, 2, 3, 4] + 1
    expected = np.abs(stats.ttest_1samp(runs, 1.0).statistic)
    assert standard_errors(runs, np.ones(4)) == approx(expected)


def test_chance_alone_surprises_in_one_case_of_twenty():
    rng = np.random.default_rng(1)
    one, together = rng.standard_normal((2, 2000, 8, 5))
    alone = [float(standard_errors(runs[:, :1], np.zeros(1))[0]) > surprising(8) for runs in one]
    assert np.mean(alone) == approx(0.05, abs=3 * sqrt(0.05 * 0.95 / 2000))
    any_of_five = [
        standard_errors(runs, np.zeros(5)).max() > surprising(8, tests=5) for runs in together
    ]
    # Bonferroni's level for five independent tests: 1 - 0.99^5.
    assert np.mean(any_of_five) == approx(1 - 0.99**5, abs=3 * sqrt(0.05 * 0.95 / 2000))


class TestShare:
    @pytest.mark.parametrize(("count", "trials"), [(0, 6), (3, 7), (6, 6)])
    def test_it_is_that_of_clopper_and_pearson(self, count, trials):
        interval = share(count, trials)
        expected = stats.binomtest(count, trials).proportion_ci(method="exact")
        assert (interval.low, interval.high) == approx((expected.low, expected.high))

    @pytest.mark.parametrize("truth", [0.02, 0.3, 0.9])
    def test_coverage_is_never_below_its_confidence(self, truth):
        """Summed over all that can be counted: exact, no simulation."""
        trials = 12
        chances = stats.binom.pmf(np.arange(trials + 1), trials, truth)
        held = [share(k, trials).low <= truth <= share(k, trials).high for k in range(trials + 1)]
        assert float(chances @ held) >= 0.95
