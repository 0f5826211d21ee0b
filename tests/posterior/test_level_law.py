"""Levels and gaps over sizes: against a Gaussian process written out, and against what is exact."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from depthmup.posterior.level_law import Beliefs, Course, LevelLaw, gaps, levels
from depthmup.posterior.own_levels import SeedContrasts
from depthmup.posterior.priors import BETWEEN, OWN_LEVELS

SILENT = SeedContrasts(count=np.full(4, np.inf), square=0.0, freedom=0.0, noise=0.0, run=1e-6)
"""Seeds without a level of their own."""

S = np.arange(4.0)[:, None]


def course(value, error, beliefs, seeds=SILENT):
    covariance = np.diag(np.broadcast_to(np.square(error), 4)).astype(float)
    return Course(s=S, value=np.asarray(value), fitted=covariance, seeds=seeds, beliefs=beliefs)


def at(place):
    return np.append(np.zeros(4), 1.0)[None], np.array([[place]])


def test_one_law_is_a_gaussian_process_written_out():
    law = LevelLaw(place=0.3, slope=0.05, amplitude=0.2, ratio=(0.5,), weight=1.0)
    value, error, tau = np.array([0.1, 0.06, 0.05, 0.02]), 0.01, 0.02
    beliefs = Beliefs(laws=(law,), scatters=((tau, 1.0),))
    found = course(value, error, beliefs).of(*at(5.0))

    def covariance(s, t):
        power = 0.5 ** (s + t)
        return 0.3**2 + 0.05**2 * s * t + 0.2**2 * power * (1 + BETWEEN**2 * s * t)

    s = np.append(S[:, 0], 5.0)
    whole = covariance(s[:, None], s[None]) + tau**2 * np.eye(5)
    gain = whole[4, :4] @ np.linalg.inv(whole[:4, :4] + error**2 * np.eye(4))
    assert found.mean[0] == pytest.approx(gain @ value)
    assert found.deviation[0] == pytest.approx(math.sqrt(whole[4, 4] - gain @ whole[:4, 4]))


def test_laws_weigh_by_how_likely_they_make_what_was_measured():
    laws = (LevelLaw(place=0.3, weight=0.5), LevelLaw(amplitude=0.3, ratio=(0.5,), weight=0.5))
    value, error = np.array([0.1, 0.052, 0.024, 0.011]), 0.004
    beliefs = Beliefs(laws=laws, scatters=((0.01, 1.0),))
    noise = (error**2 + 0.01**2) * np.eye(4)
    likely = [multivariate_normal(cov=law.covariance(S) + noise).pdf(value) for law in beliefs.laws]
    alone = [Beliefs(laws=(law,), scatters=((0.01, 1.0),)) for law in beliefs.laws]
    means = [float(course(value, error, one).of(*at(5.0)).value[0]) for one in alone]
    expected = np.average(means, weights=likely)
    found = float(course(value, error, beliefs).of(*at(5.0)).value[0])
    # Nodes that have a half of a thousandth of the weight are left out.
    assert found == pytest.approx(expected, abs=1e-3 * abs(means[0] - means[1]))
    assert abs(found - means[0]) > 1e-2 * abs(means[0] - means[1])


COURSES = {
    "stays": lambda s: 0.08 + 0 * s,
    "fades": lambda s: 0.08 * 0.5**s,
    "crosses": lambda s: 0.08 - 0.03 * s,
    "grows": lambda s: 0.08 * 1.3**s,
    "fades to a constant": lambda s: 0.02 + 0.1 * 0.6**s,
}


@pytest.mark.parametrize("name", COURSES)
def test_an_exact_gap_is_carried_on(name):
    """Known to 1e-4, the next doubling lies within its interval, which is not wide."""
    gap = COURSES[name]
    found = course(gap(S[:, 0]), 1e-4, gaps(1)).of(*at(4.0)).estimate(0.95)
    assert found.low <= gap(4.0) <= found.high
    assert found.high - found.low < 0.06


def test_intervals_open_with_distance():
    found = course([0.08, 0.07, 0.08, 0.07], 0.005, gaps(1))
    halves = [e.high - e.low for e in (found.of(*at(p)).estimate(0.9) for p in (4.0, 6.0, 9.0))]
    assert halves[0] < halves[1] < halves[2]


def test_a_common_level_moves_levels_and_nothing_else():
    value = np.log([2.0, 1.7, 1.5, 1.4])
    one = course(value, 0.01, levels(1)).of(*at(5.0)).estimate(0.9)
    other = course(value + 3.0, 0.01, levels(1)).of(*at(5.0)).estimate(0.9)
    assert other.value - one.value == pytest.approx(3.0, abs=1e-6)
    assert other.high - other.low == pytest.approx(one.high - one.low, rel=1e-6)


def test_seeds_that_agree_have_little_of_their_own():
    """Contrasts of many seeds tell o: their weight is that of chi-squared, by hand."""
    run, noise, freedom = 1e-4, 2e-5, 8.0
    for own in (0.0, 1e-4, 1e-3):
        square = own + noise
        seeds = SeedContrasts(
            count=np.ones(4), square=square, freedom=freedom, noise=noise, run=run
        )
        variance, log = seeds.nodes
        prior = np.array(OWN_LEVELS)[:, 1]
        expected = variance + noise
        by_hand = prior * expected ** (-freedom / 2) * np.exp(-freedom * square / 2 / expected)
        assert np.exp(log - log.max()) == pytest.approx(by_hand / by_hand.max(), rel=1e-9)


def test_values_that_are_none_stay_none():
    found = course([0.01, 0.05, 0.06, 0.08], 0.01, gaps(1)).none_at([0])
    base = found.of(np.eye(4)[:1]).estimate(0.95)
    assert abs(base.value) < 1e-5
    assert base.high - base.low < 1e-5


def test_a_law_that_grows_beyond_all_measure_is_no_error():
    """Its variance 22 doublings on is 1e13, of which the rounding is larger than all else."""
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), -1).reshape(-1, 2)[::4]
    laws = tuple(
        LevelLaw(place=0.3, slope=0.02, amplitude=0.2, ratio=(ratio, ratio), weight=0.5)
        for ratio in (0.5, 2.0)
    )
    found = Course(
        s=grid,
        value=0.3 - 0.01 * grid.sum(-1),
        fitted=1e-6 * np.eye(len(grid)),
        seeds=replace(SILENT, count=np.full(len(grid), np.inf)),
        beliefs=Beliefs(laws=laws, scatters=((0.0, 1.0),)),
    ).of(np.eye(len(grid)))
    mean = (found.weight * found.mean).sum(-1)
    np.testing.assert_allclose(mean, 0.3 - 0.01 * grid.sum(-1), atol=0.01)
