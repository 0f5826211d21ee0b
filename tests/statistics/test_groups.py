"""Groups pooled by random effects, against simulation."""

import numpy as np
import pytest

from depthmup.posterior.intervals import around
from depthmup.records import UNKNOWN, Estimate
from depthmup.statistics.groups import across_groups


def groups(rng, *, count, between, inflated=1.0, slope=0.2):
    """Slopes of groups with unequal errors, whose intervals are too wide by a factor."""
    errors = rng.uniform(0.05, 0.3, count)
    truths = slope + between * rng.standard_normal(count)
    measured = truths + errors * rng.standard_normal(count)
    return [around(y, 1.96 * inflated * e) for y, e in zip(measured, errors, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("count", [4, 10, 34])
@pytest.mark.parametrize("between", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("inflated", [0.7, 1.0, 2.0])
def test_the_mean_is_covered_whatever_the_width_of_single_intervals(count, between, inflated):
    """Nominal 95% of 400, less three standard errors of 1.1%.

    And less 3% for weights that follow wrong errors: they leave the mean right, and not its scatter
    what the formula takes it for.
    """
    rng, held = np.random.default_rng(count), 0
    for _ in range(400):
        mean = across_groups(groups(rng, count=count, between=between, inflated=inflated)).mean
        held += mean.low <= 0.2 <= mean.high
    assert held / 400 >= 0.95 - 3 * 0.011 - 0.03


@pytest.mark.parametrize("between", [0.1, 0.3])
def test_a_new_group_lies_within_its_interval(between):
    rng, held = np.random.default_rng(1), 0
    for _ in range(600):
        new = across_groups(groups(rng, count=20, between=between)).new_group
        held += new.low <= 0.2 + between * rng.standard_normal() <= new.high
    assert held / 600 >= 0.95 - 3 * 0.009 - 0.03


def test_many_undecided_groups_decide_together():
    """Each interval holds zero; together they exclude it, as 34 coins do that all show heads."""
    rng = np.random.default_rng(0)
    alone = groups(rng, count=34, between=0.0)
    together = across_groups(alone)
    assert sum(e.low < 0 < e.high for e in alone) > 17
    assert together.mean.low > 0.1
    assert together.groups == 34


def test_groups_that_differ_do_not_decide():
    """Half rise and half fall: the mean is near zero and says so, and a new group may be either."""
    together = across_groups([around(v, 0.1) for v in (0.5, -0.5) * 5])
    assert together.mean.low < 0 < together.mean.high
    assert together.scatter == pytest.approx(0.5, abs=0.06)
    assert together.new_group.low < -0.5
    assert together.new_group.high > 0.5


def test_unknown_groups_are_left_out_and_two_are_too_few():
    open_ended = Estimate(value=0.1, low=-np.inf, high=np.inf)
    known = [around(0.2, 0.1), around(0.3, 0.1)]
    assert not across_groups([*known, UNKNOWN, open_ended]).mean.known
    assert across_groups([*known, around(0.25, 0.1), UNKNOWN]).groups == 3


def test_groups_that_agree_exactly_have_a_mean():
    together = across_groups([around(0.25, 0.1)] * 5)
    assert together.mean.value == pytest.approx(0.25)
    assert together.new_group.low < 0.25 < together.new_group.high
