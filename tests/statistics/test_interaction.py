"""Interactions of two axes: planted ones are found, arms that bend are none, intervals hold."""

from itertools import product

import numpy as np
import pytest
from pytest import approx
from valleys import least

from depthmup.records import Place
from depthmup.statistics import Curves
from depthmup.statistics.interaction import crossed, interaction, interaction_sentence
from depthmup.statistics.runs import Runs

BASE = {"depth": 4, "steps": 100}
AXES = ("depth", "steps")
RATES = np.arange(-12.0, 0.0)


def at(depth, steps):
    return {"depth": depth, "steps": steps}


def runs(sizes, best, rates=RATES):
    """Exact parabolas of the log loss around optima (sizes, seeds)."""
    losses = np.exp(0.1 * (rates[:, None] - np.asarray(best)[:, None, :]) ** 2)
    curves = Curves.of(rates, losses)
    return Runs(name="", title="", sizes=tuple(sizes), curves=curves, base=BASE)


def doublings(size):
    return np.log2([size["depth"] / 4, size["steps"] / 100])


ARMS = [at(4, 100), at(8, 100), at(16, 100), at(4, 200), at(4, 400)]


@pytest.mark.parametrize(
    "corners", [[at(8, 200)], [at(16, 400)], [at(*size) for size in product((8, 16), (200, 400))]]
)
def test_a_planted_interaction_is_found_though_arms_bend(corners):
    def best(size):
        x, y = doublings(size)
        return -6 - 0.2 * x**2 + 0.5 * y + 0.1 * y**2 - 0.07 * x * y

    sizes = crossed([*ARMS, *corners], BASE, AXES)
    found = interaction(runs(sizes, [[best(size)] * 2 for size in sizes]), sizes, BASE, AXES)
    # Priors of shapes and laws move it by less than two thirds of a standard error.
    assert found.value == approx(-0.07, abs=(found.high - found.low) / 6)
    assert found.low <= -0.07 <= found.high


def test_what_is_not_crossed_is_left_out():
    beside = {**at(8, 200), "width": 2}
    base = {**BASE, "width": 1}
    sizes = [{**size, "width": 1} for size in ARMS]
    assert crossed(sizes, base, AXES) == ()
    assert crossed([*sizes, beside], base, AXES) == ()  # a third axis grows, too
    assert crossed([*ARMS, at(32, 200)], BASE, AXES) == ()  # depth 32 alone was not measured
    of_one = crossed([*ARMS, at(8, 200)], BASE, AXES)
    assert [*of_one] == [at(4, 100), at(8, 100), at(4, 200), at(8, 200)]


def test_an_optimum_at_an_edge_leaves_the_interaction_unknown():
    sizes = [at(4, 100), at(8, 100), at(4, 200), at(8, 200)]
    found = runs(sizes, [[-6.0], [-6.0], [-6.0], [-14.0]])
    assert found.optima.places()[-1] is Place.LOW_EDGE
    unknown = interaction(found, sizes, BASE, AXES)
    assert not unknown.known
    assert "was not measured" in interaction_sentence(*AXES, unknown)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Optima of seeds scatter by 0.2 octaves, half of the variance shared by all sizes.

    On a fine grid, where what a fit may miss of a valley between its points hardly counts. The
    interactions are those that laws allow for: none in 0.4, else of deviation 0.07.
    """
    rng, sizes, trials = np.random.default_rng(0), [*ARMS, at(16, 400), at(8, 200)], 15
    rates = np.arange(-9.0, -3.0, 0.25)
    hits, errors, halves = 0, [], []
    for _ in range(trials):
        true = 0.07 * rng.standard_normal() * (rng.random() > 0.4)
        truth = np.array([0.3 * x + true * x * y for x, y in map(doublings, sizes)]) - 6
        shared, own = rng.normal(0, 0.14, (1, 4)), rng.normal(0, 0.14, (len(sizes), 4))
        measured = interaction(runs(sizes, truth[:, None] + shared + own, rates), sizes, BASE, AXES)
        hits += measured.low <= true <= measured.high
        errors.append(measured.value - true)
        halves.append(measured.high - measured.value)
    assert hits / trials > least(0.95, trials)
    # And they are at most twice as wide as they need to be: of 15 errors, by their deviation.
    assert np.median(halves) < 2 * 1.96 * np.sqrt(np.mean(np.square(errors)))
