"""Random designs: the law of runs that have a size each, and the cells they are gathered in."""

import numpy as np
import pytest
from pytest import approx

from depthmup.statistics.scattered import gather, is_scattered
from studies.fit import SEARCHED, STEEP, searched


@pytest.mark.long
@pytest.mark.parametrize("valley", ["parabola", "lopsided", "saturating", "sharpening"])
@pytest.mark.parametrize("runs", [200, 800])
def test_covers_the_exponents(valley, runs):
    rng, held, halves = np.random.default_rng(runs), 0, []
    for _ in range(50):
        law = gather(*searched(rng, runs, valley))[0]
        held += sum(e.low <= t <= e.high for e, t in zip(law.exponents, SEARCHED, strict=True))
        halves.append(law.exponents[0].high - law.exponents[0].value)
    assert held >= 89  # 95% of 100, less two and a half standard errors
    assert np.median(halves) < (0.13 if runs == 200 else 0.08)


def test_a_shape_that_turns_with_size_is_told_from_a_drift():
    """Without the turn the law of these runs has another slope by 0.04."""
    rng, held = np.random.default_rng(1), 0
    for _ in range(50):
        first = gather(*searched(rng, 800, "turning"))[0].exponents[0]
        held += first.low <= SEARCHED[0] <= first.high
    assert held >= 39  # 88% of 50, less two standard errors


def test_noiseless_runs_lie_on_the_curve_of_their_cell():
    rng = np.random.default_rng(0)
    s, x = rng.uniform(0, 6, (500, 2)), rng.uniform(-14, -2, 500)
    y = 0.5 - 0.08 * s.sum(1) + 0.004 * s[:, 0] * s[:, 1]
    y += STEEP / 2 * (x + 7 - s @ SEARCHED) ** 2
    law, sizes, size, log2_rate, log_loss = gather(2.0**s, x, y)
    assert [e.value for e in law.exponents] == approx(SEARCHED, abs=1e-6)
    centres = np.log2(sizes)
    z = log2_rate + 7 - (centres @ SEARCHED)[size]
    for cell in range(len(centres)):
        of_cell = size == cell
        beyond = log_loss[of_cell] - STEEP / 2 * z[of_cell] ** 2
        assert np.ptp(beyond) < 1e-6
    assert len(centres) == 4
    assert np.bincount(size).min() > 60


def test_runs_that_diverged_move_nothing():
    rng = np.random.default_rng(2)
    values, x, y = searched(rng, 600, "parabola")
    plain = gather(values, x, y)[0]
    wild = rng.choice(600, 40, replace=False)
    y = y.copy()
    y[wild[:20]], y[wild[20:]] = np.inf, y[wild[20:]] + np.log(8)
    found, *_, log_loss = gather(values, x, y)
    assert set(np.flatnonzero(np.isinf(log_loss))) == set(wild)
    for a, b in zip(plain.exponents, found.exponents, strict=True):
        assert abs(a.value - b.value) < (b.high - b.low) / 2


def test_runs_without_a_valley_have_no_law():
    rng = np.random.default_rng(0)
    values, x = 2.0 ** rng.uniform(0, 6, (300, 2)), rng.uniform(-14, -2, 300)
    assert gather(values, x, -0.1 * x) is None
    assert gather(values, x, np.full(300, np.inf)) is None


def test_a_grid_of_rates_is_no_random_design():
    rng = np.random.default_rng(0)
    assert is_scattered(np.arange(100), rng.uniform(-9, -2, 100))
    assert not is_scattered(np.arange(100), np.tile(np.arange(10.0), 10))
    assert not is_scattered(np.arange(100) % 20, rng.uniform(-9, -2, 100))
