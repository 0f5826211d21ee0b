"""Intervals against closed forms, and how often they hold the truth."""

from itertools import pairwise
from math import inf, isinf, nan, sqrt

import numpy as np
import pytest
from hypothesis import settings
from pytest import approx
from scipy import stats

from depthmup.statistics import geometric_mean, jackknife_error, mean, student

universal = settings(max_examples=40, deadline=None)


class TestGroups:
    """Seeds that were trained at the same sizes are exchangeable; others are not."""

    def test_a_difference_of_means_has_welchs_interval(self):
        """Two unrelated groups: variance s_1^2/m_1 + s_2^2/m_2, Welch's degrees of freedom."""
        one, other = np.array([1.0, 2.0, 4.0]), np.array([0.0, 7.0, 3.0, 5.0, 1.5])
        both = np.concatenate([one, other])
        index = [np.arange(3), np.arange(3, 8)]

        def difference(skip):
            rest = [np.setdiff1d(group, [skip]) for group in index]
            return both[rest[1]].mean() - both[rest[0]].mean()

        without = np.array([difference(s) for s in range(8)])
        error, freedom = jackknife_error(without, index)
        welch = stats.ttest_ind(other, one, equal_var=False)
        assert float(error) == approx((other.mean() - one.mean()) / welch.statistic)
        assert float(freedom) == approx(welch.df)

    def test_one_group_of_all_is_the_plain_jackknife(self):
        without = np.random.default_rng(0).standard_normal((3, 5))
        plain, grouped = jackknife_error(without), jackknife_error(without, [np.arange(5)])
        assert plain[0] == approx(grouped[0])
        assert plain[1] == approx(4)

    def test_a_seed_without_fellows_counts_as_one_of_the_others(self):
        """Three seeds scatter, the fourth cannot: its variance is taken to be theirs."""
        without = np.array([1.0, 2.0, 3.0, 9.0])
        (error, freedom), (three, _) = (
            jackknife_error(without, [np.arange(3), np.array([3])]),
            jackknife_error(without[:3]),
        )
        assert (float(error), float(freedom)) == approx((float(three) * sqrt(4 / 3), 2.0))

    def test_seeds_without_any_fellows_know_nothing(self):
        assert jackknife_error(np.arange(4.0), [np.array([s]) for s in range(4)])[0] == inf

    def test_seeds_that_do_not_scatter_have_the_freedom_of_a_group(self):
        error, freedom = jackknife_error(np.ones(4))
        assert (float(error), float(freedom)) == (0.0, 3.0)

    @pytest.mark.parametrize("counts", [(3, 3), (2, 5), (4, 2, 3)])
    def test_coverage_of_a_sum_over_groups(self, counts):
        """A sum of means of unrelated groups, each with its own scatter.

        Satterthwaite's freedom is an approximation: 93% of 2000, less 3 standard errors of 0.6%.
        """
        rng, experiments = np.random.default_rng(sum(counts)), 2000
        bounds = np.cumsum([0, *counts])
        groups = [np.arange(a, b) for a, b in pairwise(bounds)]
        scale = np.repeat(1.0 + np.arange(len(counts)), counts)
        x = scale * rng.standard_normal((experiments, bounds[-1]))
        value, without = np.zeros(experiments), np.zeros_like(x)
        for group in groups:
            of_group, rest = x[:, group].mean(1), len(group) - 1
            value += of_group
            without += of_group[:, None]
            without[:, group] += (of_group[:, None] - x[:, group]) / rest
        error, freedom = jackknife_error(without, groups)
        held = np.abs(value) <= student(freedom) * error
        assert held.mean() >= 0.93 - 3 * 0.006


class TestMeans:
    def test_coverage_of_students_interval(self):
        """Exactly 95% at any number of seeds: 4000 experiments, 3 standard errors are 1%."""
        rng = np.random.default_rng(0)
        for seeds in (2, 3, 6):
            values = rng.standard_normal((4000, seeds))
            intervals = [mean(row.tolist()) for row in values]
            held = np.mean([i.low <= 0 <= i.high for i in intervals])
            assert held == approx(0.95, abs=0.0104)

    def test_another_confidence(self):
        narrow, wide = (mean([1.0, 2.0, 4.0], confidence=c) for c in (0.9, 0.99))
        assert wide.low < narrow.low < narrow.value < narrow.high < wide.high

    @pytest.mark.parametrize("values", [[], [1.0, nan], [1.0, inf]])
    def test_what_has_no_mean_is_unknown(self, values):
        assert not mean(values).known

    def test_one_value_has_no_interval(self):
        assert isinf(mean([1.0]).high)
        assert isinf(geometric_mean([2.0]).high)
        assert geometric_mean([2.0]).low == 0

    def test_a_geometric_mean_has_the_interval_of_the_logarithm(self):
        values = [1.0, 2.0, 5.0]
        log, geometric = mean(list(np.log(values))), geometric_mean(values)
        assert np.log([geometric.low, geometric.value, geometric.high]) == approx(
            [log.low, log.value, log.high]
        )
