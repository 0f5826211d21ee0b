"""The law of sizes: what it says of interactions that are not the same everywhere."""

import math

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
        known=np.full(len(sizes), 0.02),
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


@pytest.mark.parametrize("iota", [0.03, 0.07])
def test_intervals_hold_interactions_that_walk(iota):
    """90% of 300 targets, less three standard errors of 1.7%."""
    rng = np.random.default_rng(5)
    surface = surfaces(rng, iota, 300)
    values = np.stack([surface(size) for size in SIZES], -1)
    values += 0.02 * rng.standard_normal(values.shape)
    truths = surface(TARGET)
    held = 0
    for row, truth in zip(values, truths, strict=True):
        interval = predict(law_of(row), TARGET).estimate()
        held += interval.low <= truth <= interval.high
    assert held / len(truths) >= 0.9 - 3 * 0.017


def test_the_farther_from_the_corner_the_less_is_known():
    """A corner at (32, 32) says more of (32, 64) than of (64, 64)."""

    def half_width(target):
        interval = predict(law_of(np.zeros(len(SIZES))), target).estimate()
        return interval.high - interval.value

    near, far = half_width({"width": 32, "depth": 64}), half_width(TARGET)
    assert far > near > half_width({"width": 16, "depth": 64})
