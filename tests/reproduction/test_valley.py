"""The slope of a valley, on valleys whose slope is known, and Figure 7."""

import math
from functools import partial

import numpy as np
import pytest
from planted import SMALL, planted, scatter
from pytest import approx

from reproduction import Setting, named
from reproduction.claims.valley import slope_of_valley
from reproduction.evidence import Reproduction

RATES, LOG2_AS = np.arange(-7.0, 1.0), np.arange(-2.0, 3.0)


def valley(slope, *, bend=0.0, noise=None, seeds=4):
    """Losses (a, eta, seeds): a parabola across the line of this slope, or across a bent one."""
    x, y = RATES[None, :, None], LOG2_AS[:, None, None]
    floor = -3.3 + y / slope + bend * y**2 + np.zeros(seeds)
    if noise is not None:
        floor = floor + 0.05 * noise.standard_normal((len(LOG2_AS), 1, seeds))
    return np.exp(0.1 * (x - floor) ** 2 - 0.1 * y)


@pytest.mark.parametrize("slope", [-2.0, -1.0, -0.8])
def test_a_straight_valley_is_found_exactly(slope):
    result = slope_of_valley(RATES, LOG2_AS, valley(slope))
    assert (result.value, result.low, result.high) == approx((slope, slope, slope))


def test_a_bent_valley_has_an_interval_though_all_seeds_agree():
    result = slope_of_valley(RATES, LOG2_AS, valley(-2.0, bend=0.05))
    assert result.value == approx(-2.0, abs=1e-6)
    assert result.high - result.low > 0.1


def test_the_interval_holds_the_truth_at_least_as_often_as_it_says():
    """200 draws at 95%: fewer than 182 hits has a chance of 1% if the coverage is right."""
    rng = np.random.default_rng(0)
    result = [slope_of_valley(RATES, LOG2_AS, valley(-1.0, noise=rng)) for _ in range(200)]
    assert sum(f.low <= -1.0 <= f.high for f in result) >= 182


def test_optima_at_the_edge_are_no_optima():
    few = slope_of_valley(RATES[:2], LOG2_AS, valley(-1.0)[:, :2])
    assert not few.known


def turning(cell, *, deep):
    """A valley of slope -2 at depth 2 and of ``deep`` at the deepest."""
    depth = cell.network.depth
    slope = {2: -2.0, 8: -1.4, 64: deep}[depth]
    log2_a = math.log2(cell.network.multiplier * math.sqrt(depth / 8))
    log2_lr = math.log2(cell.optimizer.lr * 64 * math.sqrt(depth / 8))
    away = log2_lr + 3.3 - log2_a / slope - scatter(cell, 0)
    return math.exp(0.1 * away**2)


@pytest.mark.parametrize(
    ("deep", "verdict"),
    [(-1.0, Reproduction.REPRODUCED), (-2.0, Reproduction.NOT_REPRODUCED)],
    ids=["turns", "does not turn"],
)
def test_the_turn_of_the_valley(deep, verdict, tmp_path):
    (claim,) = named(["fig7"])
    experiment = claim.experiment(Setting(sizes=SMALL))
    # The same scatter at every multiplier: seeds shift the whole valley.
    with planted(experiment, tmp_path, partial(turning, deep=deep)) as store:
        assert claim.finding(experiment, store).verdict is verdict
