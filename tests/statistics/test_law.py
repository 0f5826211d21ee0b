"""The law of sizes: what it says of interactions that are not the same everywhere."""

import math
from itertools import pairwise

import numpy as np
import pytest

from depthmup.statistics.law import Law, predict

BASE = {"width": 16, "depth": 4}
STAR = [
    *({"width": 16, "depth": d} for d in (4, 8, 16, 32)),
    *({"width": w, "depth": 4} for w in (32, 64)),
]
SIZES = (*STAR, {"width": 32, "depth": 32})
TARGET = {"width": 64, "depth": 64}


def law_of(values, sizes=SIZES):
    return Law(
        base=BASE,
        sizes=tuple(sizes),
        values=np.asarray(values, float),
        without=np.zeros((0, len(sizes))),
        groups=[],
        known=0.02**2 * np.eye(len(sizes)),
    )


def surfaces(rng, iota, count):
    """Drawn interactions s x y + W(x) y + x V(y), by Brownian paths on a fine grid, integrated.

    An implementation of its own: no covariance is written down.
    """
    step = 1 / 64
    doublings = np.arange(0, 4 + step / 2, step)

    def twice_integrated(scale):
        slope = scale * math.sqrt(step) * rng.standard_normal((count, len(doublings))).cumsum(-1)
        return slope.cumsum(-1) * step

    w, v = twice_integrated(iota), twice_integrated(iota)
    s = iota * rng.standard_normal(count)

    def at(size):
        x, y = (math.log2(size[axis] / BASE[axis]) for axis in ("width", "depth"))
        i, j = round(x / step), round(y / step)
        return s * x * y + w[:, i] * y + x * v[:, j]

    return at


@pytest.mark.long
@pytest.mark.parametrize("iota", [0.03, 0.07])
def test_intervals_hold_interactions_that_walk(iota):
    """90% of 150 targets, less three standard errors of 2.4%."""
    rng = np.random.default_rng(5)
    surface = surfaces(rng, iota, 150)
    values = np.stack([surface(size) for size in SIZES], -1)
    values += 0.02 * rng.standard_normal(values.shape)
    truths = surface(TARGET)
    held = 0
    for row, truth in zip(values, truths, strict=True):
        interval = predict(law_of(row), TARGET).estimate()
        held += interval.low <= truth <= interval.high
    assert held / len(truths) >= 0.9 - 3 * 0.024


def test_the_farther_from_the_corner_the_less_is_known():
    """A corner at (32, 32) says more of (32, 64) than of (64, 64)."""

    def half_width(target):
        interval = predict(law_of(np.zeros(len(SIZES))), target).estimate()
        return interval.high - interval.value

    near, far = half_width({"width": 32, "depth": 64}), half_width(TARGET)
    assert far > near > half_width({"width": 16, "depth": 64})


def test_beyond_the_sizes_the_slope_returns_to_zero():
    """Between the nearest size and the straight line; nearer the line where it is long straight."""

    def of_line(doublings):
        depths = [{"width": 16, "depth": 4 * 2**i} for i in range(doublings + 1)]
        law = law_of(-0.5 * np.arange(doublings + 1), depths)
        value = predict(law, {"width": 16, "depth": 4 * 2 ** (doublings + 2)}).value
        return (value + 0.5 * doublings) / -1.0  # 0 is the nearest size, 1 the straight line

    short, long = of_line(2), of_line(6)
    assert 0.2 < short < long < 0.95


def test_a_law_that_saturates_is_held_where_a_straight_one_misses():
    """Of batches: the best rate rises, and then no more. The line misses by over an octave."""
    batches = [{"width": 16, "depth": 4 * 2**i} for i in range(6)]
    best = 1.5 * (1 - 0.5 ** np.arange(9.0))
    law = law_of(best[:6], batches)
    for ahead in (1, 2, 3):
        truth = best[5 + ahead]
        interval = predict(law, {"width": 16, "depth": 4 * 2 ** (5 + ahead)}).estimate()
        straight = law.weights({"width": 16, "depth": 4 * 2 ** (5 + ahead)}) @ law.values
        assert interval.low <= truth <= interval.high
        assert abs(interval.value - truth) < abs(straight - truth) / 3


def test_the_interval_opens_with_distance():
    halves = []
    law = law_of([0.0, -0.2, -0.4, -0.6], STAR[:4])
    for depth in (32, 64, 128, 256, 512):
        interval = predict(law, {"width": 16, "depth": depth}).estimate()
        halves.append(interval.high - interval.value)
    assert all(near < far for near, far in pairwise(halves))
