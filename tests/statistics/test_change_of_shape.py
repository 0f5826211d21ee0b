"""Valleys whose sides change with size: the middle drifts, and the lowest point is named too."""

import math
import re

import numpy as np
from valleys import doubling

from depthmup.posterior.intervals import around
from depthmup.statistics import Curves, minima, optima
from depthmup.statistics.drift import change_of_shape

RATES = np.arange(-4.0, 3.5, 0.5)
SIZES = np.arange(6)


def valleys(right, *, shift=0.0, noise=0.0, seeds=4, rng=None, power=1.5):
    """Losses (sizes, rates, seeds) of valleys with minima at shift * size, steeper on the right."""
    u = RATES[None, :] - (shift * SIZES)[:, None]
    y = np.where(u < 0, 0.05, np.asarray(right)[:, None]) * np.abs(u) ** power
    y = y[..., None] + (noise * rng.standard_normal((*y.shape, seeds)) if rng else np.zeros(seeds))
    return list(np.exp(y))


def said(losses):
    found = minima(optima(Curves.of(RATES, losses)), doubling(len(SIZES)))
    slope = (SIZES - SIZES.mean()) / ((SIZES - SIZES.mean()) ** 2).sum()
    drift, turn = found.posterior.estimate(slope), found.posterior.turn(0)
    middle = float(slope @ found.middle)
    return change_of_shape(turn, drift, middle, tolerance=0.15, axis="depth"), drift


def test_the_lowest_point_of_a_valley_that_becomes_symmetric():
    """Minima stay, and the drift is theirs; the middles move by what the steep side gives up."""
    text, drift = said(valleys(0.05 * 2.0 ** np.linspace(4, 0, 6)))
    assert abs(drift.value) < 0.05
    assert drift.low <= 0.0 <= drift.high
    percent = re.search(r"middle moves by (\S+)% per doubling", text)[1].replace("−", "-")
    middle = math.log2(1 + float(percent) / 100)
    assert middle > drift.value + 0.05


def test_valleys_of_one_shape_say_nothing():
    """Noise makes an interval of 95% miss zero in 1 of 20, and most of these are small."""
    rng = np.random.default_rng(0)
    texts = [said(valleys([0.4] * 6, shift=0.1, noise=0.01, rng=rng))[0] for _ in range(20)]
    # 1 of 20 on average at most; 5 or more once in 390 such tests.
    assert sum(map(bool, texts)) < 5
    assert said(valleys([0.4] * 6))[0] == ""


def test_a_small_change_is_not_worth_a_sentence():
    drift, turns = around(0.02, 0.01), around(0.2, 0.1)
    assert change_of_shape(turns, drift, -0.02, tolerance=0.15, axis="depth") == ""
    assert change_of_shape(around(0.2, 0.3), drift, -0.04, tolerance=0.15, axis="depth") == ""
    said = change_of_shape(turns, drift, -0.04, tolerance=0.15, axis="depth")
    assert "middle moves by −3% per doubling" in said
