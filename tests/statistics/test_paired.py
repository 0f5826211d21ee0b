"""Small changes by paired runs: exact on parabolas, and intervals that hold over seeds."""

import math

import numpy as np
import pytest

from depthmup.posterior import Curves
from depthmup.records.ablation import Need
from depthmup.statistics.ablation import MARGIN, ablations
from depthmup.statistics.paired import carried, paired, pairs
from depthmup.statistics.runs import Runs

RATES = np.arange(-3.0, 4.0)
SIZES = ({"width": 32}, {"width": 256})
LARGEST = SIZES[1]


def runs_of(*, moved=0.0, lower=0.0, noise=None, own=0.0, seeds=4, name="b", steep=0.2, seed=0):
    """Two sizes of a parabola; the changes are those of the largest."""
    noise = np.zeros((2, len(RATES), seeds)) if noise is None else noise
    rng = np.random.default_rng(seed)
    u = RATES[None, :, None] - np.array([0.0, moved])[:, None, None]
    log = steep * u**2 - np.array([0.0, lower])[:, None, None] + noise[..., :seeds]
    log = log + rng.normal(0, own, log.shape) * np.array([0.0, 1.0])[:, None, None]
    return Runs(
        name=name,
        title=name,
        sizes=SIZES,
        curves=Curves.of([RATES] * 2, np.exp(log)),
        base=SIZES[0],
        seeds=tuple(map(str, range(seeds))),
    )


def noise_of(seed, deviation=0.02, seeds=4):
    rng = np.random.default_rng(seed)
    return rng.normal(0, deviation, (2, len(RATES), seeds)) + rng.normal(0, 0.05, (2, 1, seeds))


def test_common_noise_cancels_and_parabolas_are_exact():
    """-b / 2c and a - b^2 / 4c of d(u) = c (u - m)^2 - g - c u^2, with m = 0.2 and g = 0.03."""
    noise = noise_of(1, deviation=0.0)
    whole, one = runs_of(noise=noise, name="a"), runs_of(moved=0.2, lower=0.03, noise=noise)
    found = paired(one, whole, LARGEST)
    # The whole's own minimum and steepness are those of its posterior.
    assert found.change.value == pytest.approx(0.2, rel=0.02)
    at = float(whole.minima.at[1])
    assert found.tuned.value == pytest.approx(0.03 + 2 * 0.2 * 0.2 * at, rel=0.02)
    assert found.tuned.low < 0.03 < found.tuned.high
    # At the same rate: 0.03 less what 0.2 octaves cost there.
    assert carried(one, whole, LARGEST, 0.0).value == pytest.approx(0.03 - 0.2 * 0.2**2, rel=1e-6)


def test_differences_of_pairs_alone():
    noise = noise_of(2)
    rates, differences = pairs(runs_of(lower=0.5, noise=noise), runs_of(noise=noise), LARGEST)
    assert rates.tolist() == RATES.tolist()
    assert differences == pytest.approx(np.full((7, 4), -0.5))


@pytest.mark.parametrize("seeds", [2, 4, 8])
def test_intervals_hold(seeds):
    """Own noise of 1% of the loss, 150 pairs: 95% of intervals hold, to 3 standard errors of a
    share of 150; more may, as scatter counts as at least that of all rates.
    """
    held = {"change": 0, "tuned": 0, "carried": 0}
    count = 150
    for k in range(count):
        noise = noise_of(k, seeds=seeds)
        whole = runs_of(noise=noise, seeds=seeds, name="a")
        one = runs_of(moved=0.1, lower=0.01, noise=noise, own=0.01, seeds=seeds, seed=1000 + k)
        found = paired(one, whole, LARGEST)
        held["change"] += found.change.low <= 0.1 <= found.change.high
        held["tuned"] += found.tuned.low <= 0.01 <= found.tuned.high
        at_rate = carried(one, whole, LARGEST, 0.0)
        truth = 0.01 - 0.2 * 0.1**2
        held["carried"] += at_rate.low <= truth <= at_rate.high
    least = 0.95 - 3 * math.sqrt(0.95 * 0.05 / count)
    assert min(held.values()) / count > least, held


def test_large_changes_and_few_rates_are_left_to_the_posterior():
    assert not paired(runs_of(moved=1.2), runs_of(name="a"), LARGEST).change.known
    one, whole = (runs_of().at([0, 1]) for _ in range(2))
    assert not carried(one, whole, LARGEST, 4.0).known  # beyond the rates


def test_where_the_base_hands_on_a_rate_that_diverges():
    whole, one = runs_of(name="a"), runs_of()
    one.curves.losses[1, RATES > -1] = math.inf
    assert carried(one, whole, LARGEST, 0.1).high == -math.inf


CASES = [
    ({"moved": 0.9}, Need.NEEDED),  # 0.3 octaves per doubling
    ({"moved": -0.9}, Need.NEEDED),
    ({"lower": -0.06}, Need.NEEDED),
    ({"lower": 0.06}, Need.HARMFUL),
    ({}, Need.NO_EFFECT),
    ({"own": 0.2, "seeds": 2}, Need.UNDECIDED),
]


@pytest.mark.parametrize(("change", "verdict"), CASES)
def test_verdicts(change, verdict):
    seeds = change.get("seeds", 4)
    noise = noise_of(3, deviation=0.005, seeds=seeds)
    whole = runs_of(noise=noise, name="a", seeds=seeds)
    one = runs_of(**{"own": 0.002, **change}, noise=noise)
    (found,) = ablations([whole, one], {"b": "hidden.lr"}, "a", ["width"])
    assert found.verdict is verdict, found
    mirrored = {Need.NEEDED: Need.HARMFUL, Need.HARMFUL: Need.NEEDED}.get(verdict, verdict)
    (added,) = ablations([whole, one], {"b": "hidden.lr"}, "a", ["width"], added=True)
    assert added.verdict is mirrored


def test_a_drift_of_the_whole_that_goes_is_no_need():
    """Without the rule the optimum stays: what decides is the loss."""
    noise = noise_of(4, deviation=0.002)
    whole, one = runs_of(moved=-0.9, noise=noise, name="a"), runs_of(noise=noise, own=0.001)
    (found,) = ablations([whole, one], {"b": "hidden.lr"}, "a", ["width"])
    assert found.verdict is Need.HARMFUL  # the rate that the base hands on is right without it
    assert found.along[0].as_trained.low > MARGIN


def test_a_size_that_does_not_train_without_the_rule():
    whole, one = runs_of(name="a"), runs_of()
    one.curves.losses[1] = math.inf
    (found,) = ablations([whole, one], {"b": "branch.multiplier"}, "a", ["width"])
    assert found.verdict is Need.NEEDED
    assert found.along[0].as_trained.value == -math.inf


def test_a_rule_that_lets_a_size_train():
    whole, one = runs_of(name="a"), runs_of()
    whole.curves.losses[1] = math.inf
    (found,) = ablations([whole, one], {"b": "branch.multiplier"}, "a", ["width"], added=True)
    assert (found.verdict, found.along[0].as_trained.value) == (Need.NEEDED, math.inf)


def test_an_added_rule_that_shrinks_the_drift_helps():
    """From 0.3 to 0 octaves per doubling, at an equal loss where the base's rate is handed on."""
    noise = noise_of(6, deviation=0.002)
    whole = runs_of(moved=0.9, noise=noise, name="a")
    one = runs_of(lower=-0.2 * 0.9**2, noise=noise, own=0.001)
    (found,) = ablations([whole, one], {"b": "hidden.lr"}, "a", ["width"], added=True)
    assert found.verdict is Need.NEEDED, found


def test_a_rule_that_does_not_act_has_no_row():
    (found,) = ablations([runs_of(name="a"), runs_of()], {"b": "branch.lr"}, "a", ["width"])
    assert found.along == ()
