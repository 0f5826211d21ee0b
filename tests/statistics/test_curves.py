"""Curves: three kinds of nothing, ragged grids, and averages that no missing run moves."""

from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from depthmup.statistics import Curves

universal = settings(max_examples=40, deadline=None)

X = np.arange(-4.0, 2.0)


def additive(rng, rates=6, seeds=4):
    """Losses exp(of the rate + of the seed), and the averages of their logarithms."""
    of_rate, of_seed = rng.standard_normal(rates), rng.standard_normal(seeds)
    return np.exp(of_rate[:, None] + of_seed), of_rate + of_seed.mean()


class TestAverages:
    def test_of_complete_curves_are_means_of_log_losses(self):
        losses = np.random.default_rng(0).uniform(1, 2, (2, 6, 3))
        assert Curves.of(X, losses).averages() == approx(np.log(losses).mean(-1))

    def test_a_rate_at_which_one_seed_diverged_is_infinite(self):
        losses = np.ones((6, 3))
        losses[4, 1] = inf
        averages = Curves.of(X, [losses]).averages()[0]
        assert averages[4] == inf
        assert averages[[0, 1, 2, 3, 5]] == approx(0)

    def test_a_run_that_was_not_made_is_no_divergence(self):
        losses = np.ones((6, 3))
        losses[4, 1] = nan
        assert Curves.of(X, [losses]).averages()[0] == approx(0)

    def test_among_missing_runs_a_divergence_is_one_still(self):
        losses = np.ones((6, 3))
        losses[4, 1], losses[4, 0], losses[2, 2] = inf, nan, nan
        averages = Curves.of(X, [losses]).averages()[0]
        assert averages[4] == inf
        assert averages[[0, 1, 2, 3, 5]] == approx(0)

    def test_a_rate_without_any_run_is_unknown(self):
        losses = np.ones((6, 3))
        losses[4] = nan
        averages = Curves.of(X, [losses]).averages()[0]
        assert isnan(averages[4])
        assert averages[:4] == approx(0)

    @universal
    @given(st.integers(0, 10**6), st.floats(0.1, 0.6))
    def test_missing_runs_move_nothing_where_seeds_differ_by_a_level(self, seed, missing):
        """Exact by least squares, whatever is missing, as long as seeds overlap."""
        rng = np.random.default_rng(seed)
        losses, expected = additive(rng)
        gone = rng.random(losses.shape) < missing
        gone[:, 0] = gone[0] = False  # one seed has all rates, and one rate all seeds
        averages = Curves.of(X, [np.where(gone, nan, losses)]).averages()[0]
        assert averages == approx(expected, abs=1e-9)

    def test_seeds_that_overlap_in_a_chain(self):
        """Each seed has two neighbouring rates: levels pass from one to the next."""
        losses, expected = additive(np.random.default_rng(1), seeds=5)
        chain = np.abs(np.arange(6)[:, None] - np.arange(5) - 0.5) < 1
        averages = Curves.of(X, [np.where(chain, losses, nan)]).averages()[0]
        assert np.ptp(averages - expected) < 1e-9

    def test_seeds_that_share_no_rate_are_taken_as_they_are(self):
        """A seed for each run, as in most tables of other people."""
        losses = np.exp(0.1 * (X + 1) ** 2)
        alone = np.where(np.eye(6) > 0, losses[:, None], nan)
        assert Curves.of(X, [alone]).averages()[0] == approx(np.log(losses))


class TestRagged:
    RATES = ([-3.0, -2.0, -1.0], [-2.5, -2.0, -1.5, -1.0])
    LOSSES = (np.full((3, 2), 2.0), np.full((4, 3), 3.0))

    def test_sizes_fill_up_with_what_was_not_run(self):
        curves = Curves.of(self.RATES, self.LOSSES)
        assert curves.log2_lrs.shape == (2, 4)
        assert np.isnan(curves.log2_lrs[0]).tolist() == [False, False, False, True]
        assert np.isnan(curves.losses[0, :, 2]).all()
        assert (curves.fewest_seeds, curves.seeds.sum(-1).tolist()) == (2, [2, 3])

    def test_groups_are_of_seeds_trained_at_the_same_sizes(self):
        curves = Curves.of(self.RATES, self.LOSSES)
        assert [group.tolist() for group in curves.groups] == [[0, 1], [2]]

    def test_a_missing_run_is_no_missing_seed(self):
        losses = [np.ones((3, 2)), np.ones((3, 2))]
        losses[0][1, 1] = nan
        assert len(Curves.of(self.RATES[0], losses).groups) == 1

    def test_some_sizes_of_them(self):
        curves = Curves.of(self.RATES, self.LOSSES)[[1]]
        assert curves.losses.shape == (1, 4, 3)
        assert (curves.losses == 3).all()

    def test_one_grid_for_all_sizes(self):
        curves = Curves.of([-2, -1], [np.ones((2, 1))] * 3)
        assert curves.log2_lrs.tolist() == [[-2, -1]] * 3


@pytest.mark.parametrize(
    ("rates", "losses", "message"),
    [
        (X, [np.ones((3, 2))], r"for 6 learning rates; got an array of shape \(3, 2\)"),
        (X, [np.ones(6)], r"losses \(learning rates, seeds\)"),
        (X, [-np.ones((6, 2))], "positive losses.*got -1"),
        (X, [np.zeros((6, 2))], "positive losses.*got 0"),
        (X[::-1], [np.ones((6, 2))], "increasing log2 learning rates"),
        ([-1, -1, 0], [np.ones((3, 2))], "increasing log2 learning rates"),
        ([nan, -1, 0], [np.ones((3, 2))], "increasing log2 learning rates"),
        ([[-1, 0]], [np.ones((2, 1)), np.ones((2, 1))], "each size"),
        ([[-1, 0], [-1, 0]], [np.ones((2, 1))], "each size"),
        (X, [], "at least one size"),
    ],
)
def test_what_is_no_curve_is_an_error(rates, losses, message):
    with pytest.raises(ValueError, match=message):
        Curves.of(rates, losses)
