"""Valleys whose sides change with size: the middle drifts, and the lowest point is named too."""

import math
import re

import numpy as np
import pytest

from depthmup import fit
from depthmup.records import UNKNOWN
from depthmup.records.finding import change
from depthmup.statistics import Curves, drifts, optima
from depthmup.statistics.asymmetry import asymmetry_trend
from depthmup.statistics.drift import change_of_shape
from depthmup.statistics.intervals import around
from depthmup.tables import example

RATES = np.arange(-4.0, 3.5, 0.5)
SIZES = np.arange(6)


def valleys(right, *, shift=0.0, noise=0.0, seeds=4, rng=None, power=1.5):
    """Losses (sizes, rates, seeds) of valleys with minima at shift * size, steeper on the right."""
    u = RATES[None, :] - (shift * SIZES)[:, None]
    y = np.where(u < 0, 0.05, np.asarray(right)[:, None]) * np.abs(u) ** power
    y = y[..., None] + (noise * rng.standard_normal((*y.shape, seeds)) if rng else np.zeros(seeds))
    return list(np.exp(y))


def said(losses):
    fitted = optima(Curves.of(RATES, losses))
    drift = around(*drifts(SIZES, fitted))
    trend = asymmetry_trend(SIZES, fitted.sides.offset)
    middle = np.polyfit(SIZES, fitted.centre, 1)[0]
    return change_of_shape(trend, drift, middle, tolerance=0.15, axis="depth"), drift, trend


def test_the_lowest_point_of_a_valley_that_becomes_symmetric():
    """Minima stay, and the drift is theirs; the middles move by what the steep side gives up."""
    text, drift, _ = said(valleys(0.05 * 2.0 ** np.linspace(4, 0, 6)))
    # The trial minima are a twentieth of the spacing apart.
    assert abs(drift.value) < 0.05
    assert drift.low <= 0.0 <= drift.high
    percent = re.search(r"middle moves by (\S+)% per doubling", text)[1].replace("−", "-")
    middle = math.log2(1 + float(percent) / 100)
    assert middle > drift.value + 0.05


def test_valleys_of_one_shape_say_nothing():
    """Noise makes an interval of 95% miss zero in 1 of 20, and most of these are small."""
    rng = np.random.default_rng(0)
    texts = [said(valleys([0.4] * 6, shift=0.1, noise=0.01, rng=rng))[0] for _ in range(60)]
    # 3 of 60 on average at most; 9 or more once in 300 such tests.
    assert sum(map(bool, texts)) < 9
    assert said(valleys([0.4] * 6))[0] == ""


def test_too_few_sizes_have_no_trend():
    assert asymmetry_trend([0, 1, 2], np.array([0.0, 0.1, 0.2])) == UNKNOWN
    holes = np.array([0.0, np.nan, 0.2, 0.3])
    assert asymmetry_trend([0, 1, 2, 3], holes) == UNKNOWN
    assert asymmetry_trend(SIZES, 0.1 * SIZES - 0.3).value == pytest.approx(0.1)


def test_a_small_change_is_not_worth_a_sentence():
    drift = around(0.02, 0.01)
    assert change_of_shape(around(0.04, 0.01), drift, -0.02, tolerance=0.15, axis="depth") == ""
    said = change_of_shape(around(0.06, 0.01), drift, -0.04, tolerance=0.15, axis="depth")
    assert "middle moves by −3% per doubling" in said


def test_the_middle_of_a_study_is_that_of_its_centres():
    """The drift is of one valley for all sizes, a centre of a parabola each: the middle is no sum.

    The best rates of single sizes lie a common distance beside their centres.
    """
    report = fit(example(), axes={"depth": "n_layers", "width": "d_model"}, lr="lr",
                 loss="final_loss", seed="seed", by="scheme")  # fmt: skip
    transfer = report.finding("scheme depth-mup", "depth")
    slope = np.polyfit(
        [math.log2(o.size["depth"]) for o in transfer.optima],
        [o.log2_lr.value for o in transfer.optima],
        1,
    )[0]
    assert f"middle moves by {change(slope)} per doubling" in transfer.why
