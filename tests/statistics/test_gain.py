"""Gains of one variant over another: known by construction, at sizes and at a target."""

import math
from dataclasses import replace

import numpy as np
import pytest

from depthmup.posterior import Curves
from depthmup.records import Estimate
from depthmup.records.gain import GainVerdict
from depthmup.statistics.gain import baselines, gain_of, gains, gains_of, judge, level_of
from depthmup.statistics.runs import Runs
from studies.gains import WORLDS, draw

WIDTHS = 64 * 2.0 ** np.arange(4)
X = np.arange(-3.0, 4.0) / 2


def variant(name, levels, best=(0.0,) * 4, *, noise=1e-4, seeds=2, labels=("0", "1"), rng=1):
    draws = np.random.default_rng(rng).standard_normal((4, len(X), seeds))
    losses = [
        np.exp(level + 0.08 * (X - b)[:, None] ** 2 + noise * z)
        for level, b, z in zip(levels, best, draws, strict=True)
    ]
    return Runs(
        name=name,
        title=name,
        sizes=tuple({"width": w} for w in WIDTHS),
        curves=Curves.of(X - 7.0, losses),
        seeds=labels[:seeds],
    )


LEVEL = np.log([2.0, 1.8, 1.65, 1.55])


def test_a_tuned_gain_is_the_difference_of_log_losses():
    a = variant("a", LEVEL)
    b = variant("b", LEVEL - [0.1, 0.06, 0.03, 0.02], best=(0.3, 0.2, 0.1, 0.0), rng=2)
    gain = gain_of(b, a)
    assert [s.tuned.value for s in gain.sizes] == pytest.approx([0.1, 0.06, 0.03, 0.02], abs=1e-3)
    assert gain.trained
    assert gain.target == {"width": 512.0}
    assert gain.verdict is GainVerdict.FADES
    mirror = gain_of(a, b)
    assert mirror.value == pytest.approx(-gain.value, abs=1e-4)


def test_as_trained_counts_what_each_loses_by_its_own_base_value():
    """b's optimum moves by 0.5 octaves per doubling: its base's rate costs 0.08 (0.5 s)^2."""
    a = variant("a", LEVEL)
    b = variant("b", LEVEL - 0.1, best=(0.0, -0.2, -0.4, -0.6), rng=2)
    gain = gain_of(b, a)
    assert [s.tuned.value for s in gain.sizes] == pytest.approx([0.1] * 4, abs=2e-3)
    expected = 0.1 - 0.08 * np.array([0.0, 0.2, 0.4, 0.6]) ** 2
    assert [s.as_trained.value for s in gain.sizes] == pytest.approx(expected, abs=4e-3)


def test_paired_seeds_cancel_what_seeds_have_of_their_own():
    rng = np.random.default_rng(3)
    own = 0.05 * rng.standard_normal((4, 1, 3))

    def of(name, level, labels):
        runs = variant(name, level, noise=0.0, seeds=3, labels=labels)
        noisy = np.exp(np.log(runs.curves.losses) + own + 1e-3 * rng.standard_normal((4, 7, 3)))
        curves = Curves(log2_lrs=runs.curves.log2_lrs, losses=noisy)
        return Runs(name=name, title=name, sizes=runs.sizes, curves=curves, seeds=labels)

    a, b = of("a", LEVEL, ("0", "1", "2")), of("b", LEVEL - 0.05, ("0", "1", "2"))
    stranger = of("b", LEVEL - 0.05, ("7", "8", "9"))
    paired, apart = gain_of(b, a), gain_of(stranger, a)
    assert paired.high - paired.low < 0.3 * (apart.high - apart.low)
    assert paired.low <= 0.05 <= paired.high
    assert any("not paired" in text for text in apart.reservations)


def test_levels_of_valleys_with_a_kink_are_as_uncertain_as_their_grid_is_coarse():
    """Seven noiseless rates an octave apart do not see the ground of ``|u|``; that of u^2 they do.

    Twelve pairs at four sizes: what 95% of intervals hold, 80% do but for one chance in 1e5.
    """

    def of(name, shape, levels, rng):
        rates, losses = [], []
        for level in levels:
            best = rng.uniform(-0.5, 0.5)
            rates.append(np.arange(-3.0, 4.0) - 7)
            noise = 2e-3 * rng.standard_normal((7, 2))
            losses.append(np.exp(level + 0.08 * shape(rates[-1] + 7 - best)[:, None] + noise))
        sizes = tuple({"width": w} for w in WIDTHS)
        return Runs(
            name=name, title=name, sizes=sizes, seeds=("0", "1"), curves=Curves.of(rates, losses)
        )

    held, width = {}, {}
    for name, shape in (("kinked", np.abs), ("smooth", np.square)):
        rng = np.random.default_rng(0)
        found = [
            size.tuned
            for _ in range(12)
            for size in gain_of(
                of("b", np.square, LEVEL - 0.04, rng), of("a", shape, LEVEL, rng)
            ).sizes
        ]
        held[name] = np.mean([gain.low <= 0.04 <= gain.high for gain in found])
        width[name] = np.median([gain.high - gain.low for gain in found])
    assert min(held.values()) >= 0.8, held
    assert width["kinked"] > 2 * width["smooth"]


def test_runs_that_both_share_have_no_gain():
    """Schemes that coincide at the base: nothing is known better than that they do."""
    a = variant("a", LEVEL, noise=0.02, seeds=2)
    b = variant("b", LEVEL - [0.0, 0.05, 0.1, 0.15], noise=0.02, rng=2)
    losses = b.curves.losses.copy()
    losses[0] = a.curves.losses[0]
    b = Runs(
        name="b", title="b", sizes=b.sizes, seeds=b.seeds,
        curves=Curves(log2_lrs=b.curves.log2_lrs, losses=losses),
    )  # fmt: skip
    gain = gain_of(b, a)
    base = gain.sizes[0].tuned
    assert max(abs(base.low), abs(base.high)) < 1e-5
    assert gain.verdict is GainVerdict.GROWS


def test_rates_at_which_both_diverge_make_no_gain_of_zero():
    """Grids that share nothing but what diverged: the gain of 0.1 is there."""
    a, b = variant("a", LEVEL), variant("b", LEVEL - 0.1, rng=2)

    def diverging(runs, aside):
        x = np.concatenate([runs.curves.log2_lrs + aside, np.full((4, 1), -4.0), [[-3.0]] * 4], 1)
        losses = np.concatenate([runs.curves.losses, np.full((4, 2, 2), np.inf)], 1)
        return replace(runs, curves=Curves(log2_lrs=x, losses=losses))

    gain = gain_of(diverging(b, 0.1), diverging(a, 0.0))
    assert [s.tuned.value for s in gain.sizes] == pytest.approx([0.1] * 4, abs=5e-3)


def interval(low, high):
    return Estimate(value=(low + high) / 2, low=low, high=high)


@pytest.mark.parametrize(
    ("base", "target", "slope", "verdict"),
    [
        ((0.08, 0.12), (0.06, 0.14), (-0.01, 0.01), GainVerdict.HOLDS),
        ((0.08, 0.12), (0.12, 0.16), (0.01, 0.02), GainVerdict.GROWS),
        ((0.08, 0.12), (-0.01, 0.04), (-0.02, -0.01), GainVerdict.FADES),
        ((0.08, 0.12), (-0.05, -0.01), (-0.04, -0.02), GainVerdict.CROSSES),
        ((0.08, 0.12), (0.03, 0.07), (-0.02, 0.0), GainVerdict.UNDECIDED),
        ((-0.12, -0.08), (-0.2, -0.1), (-0.02, 0.0), GainVerdict.WORSE),
        ((-0.12, -0.08), (0.01, 0.1), (0.0, 0.1), GainVerdict.CROSSES),
        ((-0.12, -0.08), (-0.1, 0.1), (0.0, 0.1), GainVerdict.UNDECIDED),
        ((-0.01, 0.01), (-0.2, -0.1), (-0.1, 0.0), GainVerdict.WORSE),
        ((-0.01, 0.01), (0.02, 0.1), (0.01, 0.1), GainVerdict.GROWS),
        ((-0.01, 0.01), (0.02, 0.1), (-0.01, 0.1), GainVerdict.UNDECIDED),
    ],
)
def test_the_verdict_is_that_of_its_definition(base, target, slope, verdict):
    found, why = judge(interval(*base), interval(*target), interval(*slope), 0.5)
    assert found is verdict
    assert why.endswith(".")


@pytest.mark.parametrize("world", WORLDS)
def test_intervals_hold_in_simulated_pairs(world):
    """Of 12 pairs three or more miss a 90% interval once in nine, six once in 1,800."""
    rng = np.random.default_rng(11)
    held = []
    for number in range(12):
        sizes = 3 + number % 3
        pair = draw(world, rng, 0.01, 1 + number % 4, sizes)
        gain = gain_of(pair.b, pair.a, target={"width": 64 * 2.0 ** (sizes + 1)})
        held.append(gain.low <= pair.target <= gain.high)
    assert sum(held) > 6


def test_of_many_candidates_intervals_are_wider():
    a, b = variant("a", LEVEL), variant("b", LEVEL - 0.05, noise=0.01, rng=2)
    one, many = gain_of(b, a), gain_of(b, a, among=10)
    ratio = (many.high - many.low) / (one.high - one.low)
    # Normal quantiles of 99.5% and 95%: 2.81 and 1.96; mixtures have longer tails.
    assert 2.81 / 1.96 - 0.05 < ratio < 2.2


def test_a_gain_that_is_looked_at_again_is_known_as_one_of_many_is():
    """A search's looks and candidates spend one error."""
    found = [variant("a", LEVEL), variant("b", LEVEL - 0.05, noise=0.01, rng=2)]
    (looked,) = gains_of(found, {"b": "a"}, looks=5)
    assert looked == gain_of(found[1], found[0], among=5)
    assert looked != gains_of(found, {"b": "a"})[0]


def test_a_gain_is_worth_a_factor_of_the_size():
    """a falls by 0.1 nats per doubling: 0.05 nats are half a doubling, a factor of 1.41."""
    level = math.log(2.0) - 0.1 * np.arange(4)
    gain = gain_of(variant("b", level - 0.05, rng=2), variant("a", level))
    worth = gain.worth["width"]
    assert worth.low < 2**0.5 < worth.high < 1.7
    flat = gain_of(variant("b", 0 * level - 0.05, rng=2), variant("a", 0 * level))
    assert not flat.worth


def test_the_level_at_a_target():
    floor = np.log(1 + 2.0 ** -np.arange(6.0))
    found = level_of(variant("a", floor[:4]), {"width": 256.0 * 8})
    assert found.low < math.exp(floor[5]) < found.high


def test_baselines_share_all_but_one_thing():
    names = ["sp adam", "sp muon", "mup adam", "mup muon"]
    assert baselines(names, "adam") == {"sp muon": "sp adam", "mup muon": "mup adam"}
    assert baselines(names, "sp muon") == dict.fromkeys([names[0], *names[2:]], "sp muon")
    assert baselines(names) == dict.fromkeys(names[1:3], "sp adam")
    assert baselines(["a", "b c", "d"]) == {"b c": "a", "d": "a"}
    # A value of several words.
    names = ["recipe plain", "recipe with decay", "recipe standard practice"]
    assert baselines(names, "standard practice") == dict.fromkeys(names[:2], names[2])
    assert baselines(names, "plain") == dict.fromkeys(names[1:], names[0])
    both = [f"{a}, {b}" for a in ("our own", "sp") for b in ("adam", "muon of old")]
    assert baselines(both, "muon of old") == {both[0]: both[1], both[2]: both[3]}
    assert baselines(both, "our own") == {both[2]: both[0], both[3]: both[1]}
    with pytest.raises(ValueError, match="got 'sgd'"):
        baselines(names, "sgd")
    with pytest.raises(ValueError, match="alone"):
        baselines(["sp"], "sp")


def test_what_cannot_be_compared_is_refused_or_left_out():
    a, b = variant("a", LEVEL), variant("b", LEVEL)
    elsewhere = Runs(
        name="c", title="c", curves=b.curves, sizes=tuple({"width": w + 1} for w in WIDTHS)
    )
    with pytest.raises(ValueError, match="share no size"):
        gain_of(elsewhere, a)
    assert gains([a, elsewhere]) == []
    with pytest.raises(ValueError, match="got depth too"):
        gain_of(b, a, target={"depth": 4})
    single = Runs(name="d", title="d", sizes=b.sizes, curves=Curves.of([-7.0], [[[1.0]]] * 4))
    with pytest.raises(ValueError, match="extend the grids"):
        gain_of(single, a)


def test_it_says_when_it_must_not_be_believed():
    a = variant("a", LEVEL, seeds=1)
    # b's optimum lies beyond the grid at the largest size.
    b = variant("b", LEVEL - 0.05, best=(0.0, 0.5, 1.0, 2.5), seeds=1, rng=2)
    gain = gain_of(b, a)
    said = " ".join(gain.reservations)
    assert "ends at its optimum at width 512" in said
    assert "one seed" in said
    assert len(gain.sizes) == 3
