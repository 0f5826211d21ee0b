"""Small changes by paired runs: bounds that hold for any valley, and intervals over seeds."""

import math

import numpy as np
import pytest

from depthmup.posterior import Curves
from depthmup.records.ablation import Need
from depthmup.statistics.ablation import MARGIN, ablations
from depthmup.statistics.paired import Pairs
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


def test_differences_of_pairs_alone():
    noise = noise_of(2)
    pairs = Pairs.of(runs_of(lower=0.5, noise=noise), runs_of(noise=noise), LARGEST)
    assert pairs.rates.tolist() == RATES.tolist()
    assert pairs.differences == pytest.approx(np.full((7, 4), -0.5))
    found = pairs.difference(0.3)
    assert (found.low, found.high) == pytest.approx((-0.5, -0.5))


VALLEYS = {
    "parabola": lambda u: 0.2 * u**2,
    "V": lambda u: 0.2 * (np.sqrt(u**2 + 0.05) - math.sqrt(0.05)),
    "quartic": lambda u: 0.05 * u**4 + 0.06 * u**2,
}
CHANGES = {"moved": (0.2, 1.0), "steeper": (0.0, 2.0), "flatter": (0.0, 0.6), "none": (0.0, 1.0)}


INFLECTED = {("quartic", "moved"), ("V", "moved")}
"""Whose differences are neither convex nor concave between two rates: bounds are no bounds."""


@pytest.mark.parametrize("off", [-0.4, 0.1, 0.5])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("shape", VALLEYS)
def test_bounds_hold_without_noise_of_their_own(shape, change, off):
    """Of whatever valleys, at rates an octave apart: nothing is left to chance."""
    valley, (moved, steeper), lower = VALLEYS[shape], CHANGES[change], 0.03
    x, noise = RATES + off, noise_of(5, deviation=0.005)

    def runs(name, curve):
        log = np.stack([valley(x)[:, None] + noise[0], curve(x)[:, None] + noise[1]])
        curves = Curves.of([x] * 2, np.exp(log))
        seeds = tuple("0123")
        return Runs(name=name, title=name, sizes=SIZES, curves=curves, base=SIZES[0], seeds=seeds)

    def changed(u):
        return steeper * valley(u - moved) - lower

    pairs = Pairs.of(runs("b", changed), runs("a", valley), LARGEST)
    low, high = pairs.moved
    # A's own minimum is known to its deviation.
    beside = 3 * float(pairs.whole.minima.posterior.deviation[1])
    assert low - beside <= moved <= high + beside
    low, high = pairs.tuned
    assert low - 1e-9 <= lower <= high + 1e-9
    if (shape, change) not in INFLECTED:
        at = pairs.difference(0.2)
        assert at.low - 1e-9 <= changed(0.2) - valley(0.2) <= at.high + 1e-9


@pytest.mark.parametrize("seeds", [2, 4, 8])
def test_intervals_hold(seeds):
    """Own noise of 1% of the loss, 150 pairs: 95% of intervals hold, to 3 standard errors of a
    share of 150; more may, as scatter counts as at least that of all rates.
    """
    held = {"change": 0, "tuned": 0, "handed on": 0}
    count = 150
    for k in range(count):
        noise = noise_of(k, seeds=seeds)
        whole = runs_of(noise=noise, seeds=seeds, name="a")
        one = runs_of(moved=0.1, lower=0.01, noise=noise, own=0.01, seeds=seeds, seed=1000 + k)
        pairs = Pairs.of(one, whole, LARGEST)
        held["change"] += pairs.moved[0] <= 0.1 <= pairs.moved[1]
        held["tuned"] += pairs.tuned[0] <= 0.01 <= pairs.tuned[1]
        at = pairs.difference(0.0)
        held["handed on"] += at.low <= 0.2 * 0.1**2 - 0.01 <= at.high
    least = 0.95 - 3 * math.sqrt(0.95 * 0.05 / count)
    assert min(held.values()) / count > least, held


def test_beyond_the_rates_nothing_is_known():
    pairs = Pairs.of(runs_of(), runs_of(name="a"), LARGEST)
    assert not pairs.difference(4.0).known
    few = Pairs.of(runs_of(seeds=1), runs_of(name="a"), LARGEST)
    assert few.moved == (-math.inf, math.inf)


def test_where_the_base_hands_on_a_rate_that_diverges():
    whole, one = runs_of(name="a"), runs_of()
    one.curves.losses[1, RATES > -1] = math.inf
    assert Pairs.of(one, whole, LARGEST).difference(0.1).low == math.inf


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
