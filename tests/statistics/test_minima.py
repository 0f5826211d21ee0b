"""The optima of sizes: minima of one valley, and what a report says of each."""

from dataclasses import replace
from math import inf

import numpy as np
import pandas as pd
import pytest
from pytest import approx
from valleys import least

from depthmup import fit
from depthmup.statistics import Curves, loss_estimate, measured, minima, optima
from depthmup.statistics.along import along_axis
from depthmup.statistics.runs import Runs
from studies.coverage import CHANGING, OTHERS, SHAPES, UNSEEN, WALLS, World

RATES = np.arange(-5.0, 4.5, 0.5)
SIZES = [{"width": 2.0**i} for i in range(5)]


def lopsided(best, *, right=0.3, power=1.5):
    u = RATES - np.asarray(best)[:, None]
    rise = np.where(u < 0, 0.05, right) * np.abs(u) ** power
    return [np.exp(row)[:, None] for row in rise]


def test_a_valley_of_two_powers_gives_its_minima():
    best = 0.3 * np.arange(5) - 0.6
    found = minima(optima(Curves.of(RATES, lopsided(best))), SIZES)
    # Far points count less, the priors a little: a tenth of the grid's spacing.
    assert found.at == approx(best, abs=0.05)
    assert found.log_loss == approx(0, abs=2e-3)
    assert found.excess(0, [-2.0, 1.0]) == approx([0.05 * 2**1.5, 0.3], rel=0.05)


def test_the_cost_of_keeping_a_rate_is_that_of_its_distance():
    """Closed form: keeping the base's rate, half an octave off, costs exp(-2) (exp(0.025) - 1)."""
    rows = [0.1 * (RATES + 0.5) ** 2 - 1, 0.1 * RATES**2 - 2]
    curves = Curves.of(RATES, [np.exp(row)[:, None] for row in rows])
    runs = Runs(name="", title="", sizes=tuple(SIZES[:2]), curves=curves, base=SIZES[0])
    kept = along_axis(runs, "width").excess()
    assert kept.value == approx(np.exp(-2) * np.expm1(0.1 * 0.25), rel=0.2)
    assert 0 <= kept.low < kept.value < kept.high
    nothing = along_axis(replace(runs, curves=curves[[0, 0]]), "width").excess()
    assert nothing.value == approx(0, abs=1e-9)
    diverged = [np.exp(rows[0])[:, None], np.exp(np.where(RATES > -1, inf, rows[0]))[:, None]]
    walled = replace(runs, curves=Curves.of(RATES, diverged))
    assert along_axis(walled, "width").excess().high == inf


def test_what_all_minima_share_moves_no_difference():
    posterior = minima(optima(Curves.of(RATES, lopsided([0.0] * 5))), SIZES).posterior

    def width(row):
        estimate = posterior.estimate(np.array(row))
        return estimate.high - estimate.low

    one, other = width([1, 0, 0, 0, 0]), width([0, 1, 0, 0, 0])
    assert width([1, -1, 0, 0, 0]) < 0.7 * np.hypot(one, other)


def test_the_optima_of_a_report_lie_on_its_drift():
    """One posterior gives both: the slope of the listed medians is the drift's median, nearly."""
    rows = [
        {"lr": 2.0**k, "width": size["width"], "loss": float(loss[0])}
        for size, losses in zip(SIZES, lopsided(-0.4 * np.arange(5) + 0.7), strict=True)
        for k, loss in zip(RATES, losses, strict=True)
    ]
    report = fit(pd.DataFrame(rows), axes=["width"], lr="lr", loss="loss")
    transfer = report.finding(axis="width")
    listed = [optimum.log2_lr.value for optimum in transfer.optima]
    assert np.polyfit(range(5), listed, 1)[0] == approx(transfer.drift.value, abs=2e-3)


COVERED = {"kink and parabola": 0.9, "slope to guessing": 0.85, "quartic": 0.85}
"""Shapes that powers of two sides miss; of all others 95% intervals hold 90% or more."""


@pytest.mark.long(of="coverage")
@pytest.mark.parametrize("shape", [*SHAPES, *WALLS, *OTHERS, *CHANGING, *UNSEEN])
def test_intervals_of_single_sizes(shape):
    rng, held = np.random.default_rng(7), []
    for noise in ("like real", "as on tables", "cliff at 0.6", "own slopes"):
        for spacing, seeds in ((0.5, 1), (0.5, 3), (1.0, 1), (1.0, 3)):
            world = World(shape=shape, noise=noise, spacing=spacing, seeds=seeds)
            for _ in range(2):
                best = float(rng.choice([0, 0.1, -0.3])) * np.arange(5)
                curves = world.curves(rng, best[None])
                fitted = optima(Curves(log2_lrs=curves.log2_lrs[0], losses=curves.losses[0]))
                found = minima(fitted, SIZES)
                estimates = [each.log2_lr for each in measured(found, SIZES)]
                for i in (0, 2, 4):
                    held.append(estimates[i].low <= best[i] <= estimates[i].high)
    # Three sizes of a table share its valley, so 32 tables count.
    assert np.mean(held) > least(COVERED.get(shape, 0.95), 32)


@pytest.mark.parametrize("shape", ["parabola", "V", "steep V"])
def test_the_loss_of_one_seed_has_an_interval_also_on_whole_octaves(shape):
    """A kink between two rates is deeper than any of them: 95% hold, less three standard errors.

    Five sizes of one table share their valley, so 15 tables count.
    """
    rng, held = np.random.default_rng(0), []
    rates = np.arange(-5.0, 5.0)
    for _ in range(15):
        best = 0.1 * np.arange(5) + rng.uniform(-0.5, 0.5)
        rise = SHAPES[shape](rates - best[:, None])
        losses = np.exp(rise + 0.016 * rng.standard_normal(rise.shape))[..., None]
        found = minima(optima(Curves.of(rates, list(losses))), SIZES)
        estimates = [loss_estimate(found, i) for i in range(5)]
        assert all(0.8 < e.low < e.high < 1.25 for e in estimates)
        held += [e.low <= 1 <= e.high for e in estimates]
    assert np.mean(held) > least(0.95, 15)
