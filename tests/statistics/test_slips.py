"""Values of another unit, and runs that cannot be: what is found, and what is left alone."""

import math

import numpy as np
import pytest
from pytest import approx

from depthmup.statistics.levels import levels_of
from depthmup.statistics.slips import slipped_losses, slipped_rates, trained, two_units
from depthmup.statistics.strays import impossible
from depthmup.statistics.trend import least_absolute, trend_of
from studies.coverage import SHAPES

DEPTHS = np.arange(8.0)[:, None]
BITS = -math.log(math.log(2))


def curves(shape, spacing, *, rng, level=None, best=None):
    """Rates and log losses of eight sizes on grids at random phase, (sizes, rates)."""
    level = 1.4 - 0.06 * DEPTHS[:, 0] if level is None else level
    best = np.zeros(len(DEPTHS)) if best is None else best
    count = round(6 / spacing)
    x = best[:, None] - 3 + spacing * (np.arange(count) + rng.uniform(size=(len(DEPTHS), 1)))
    y = level[:, None] + SHAPES[shape](x - best[:, None])
    return x, y + 0.009 * rng.standard_normal(x.shape)


class TestTrend:
    def test_a_third_of_the_sizes_does_not_bend_it(self):
        values = 3 - 0.5 * DEPTHS[:, 0]
        values[[1, 6]] += 5.0
        trend = trend_of(DEPTHS, values, least=0.1)
        assert trend.expected == approx(3 - 0.5 * DEPTHS[:, 0], abs=1e-3)
        assert trend.scatter == 0.1

    def test_it_is_least_absolute_deviations(self):
        """Of a constant the median, as an independent definition has it."""
        values = np.random.default_rng(0).standard_cauchy(101)
        assert least_absolute(np.ones((101, 1)), values)[0] == approx(np.median(values), abs=1e-3)

    def test_values_of_large_error_count_less(self):
        rng = np.random.default_rng(0)
        errors = np.where(np.arange(8) % 2, 20.0, 1.0)
        values = 0.1 * errors * rng.standard_normal(8)
        plain = trend_of(DEPTHS, values, least=0.01)
        weighted = trend_of(DEPTHS, values, least=0.01, errors=errors)
        assert np.abs(weighted.expected).max() < 0.5 * np.abs(plain.expected).max()
        assert weighted.scatter < plain.scatter

    def test_too_few_sizes_have_none(self):
        assert trend_of(DEPTHS[:4], np.zeros(4), least=0.1) is None


class TestLevels:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_levels_are_known_to_a_few_percent_on_grids_of_two_octaves(self, shape):
        """A size's lowest run lies up to 0.3 above its level there."""
        x, y = curves(shape, 2.0, rng=np.random.default_rng(3))
        levels = levels_of(x, y, np.zeros(8))
        truth = 1.4 - 0.06 * DEPTHS[:, 0]
        assert np.median(np.abs(levels - levels.mean() - truth + truth.mean())) < 0.03
        assert np.abs(y.min(-1) - truth).max() > 0.06

    def test_a_size_that_is_off_does_not_move_the_others(self):
        x, y = curves("parabola", 0.5, rng=np.random.default_rng(0))
        before = levels_of(x, y, np.zeros(8))
        y[2] += BITS
        after = levels_of(x, y, np.zeros(8))
        assert after - before == approx(np.where(np.arange(8) == 2, BITS, 0), abs=1e-6)

    def test_runs_that_disagree_say_nothing(self):
        x, y = curves("parabola", 1.0, rng=np.random.default_rng(0))
        y[5, 2:] = math.inf
        y[5, 1] += 1.0
        levels = levels_of(x, y, np.zeros(8), within=0.15)
        assert np.isfinite(levels).tolist() == [True] * 5 + [False] + [True] * 2


class TestSlips:
    @pytest.mark.parametrize("spacing", [0.5, 1.0, 2.0])
    @pytest.mark.parametrize("shape", SHAPES)
    def test_bits_for_nats_are_found_on_every_grid_and_nothing_else_is(self, shape, spacing):
        rng = np.random.default_rng(5)
        x, y = curves(shape, spacing, rng=rng)
        best, spacings = np.zeros(8), np.full(8, spacing)
        assert slipped_losses(DEPTHS, x, y, best, spacings) == {}
        y[4] += BITS
        assert slipped_losses(DEPTHS, x, y, best, spacings) == {4: approx(BITS, abs=0.1)}

    def test_a_shift_that_is_no_unit_is_no_slip(self):
        x, y = curves("parabola", 0.5, rng=np.random.default_rng(0))
        y[4] += 0.9
        assert slipped_losses(DEPTHS, x, y, np.zeros(8), np.full(8, 0.5)) == {}

    def test_one_run_beside_a_cliff_says_nothing(self):
        """It may be high for many reasons."""
        x, y = curves("parabola", 1.0, rng=np.random.default_rng(0))
        y[4] = np.where(np.arange(y.shape[1]) == 2, y[4] + BITS, math.inf)
        assert slipped_losses(DEPTHS, x, y, np.zeros(8), np.ones(8)) == {}

    def test_optima_of_coarse_grids_do_not_hide_a_slip(self):
        """They scatter by an octave; what is known better decides."""
        optima = np.array([0.1, 1.4, -0.1, -1.6, 10.0, 0.0, 1.5, -0.1])
        spacing = np.array([0.5, 2.0, 0.5, 2.0, 0.5, 0.5, 2.0, 0.5])
        assert [*slipped_rates(DEPTHS, optima, optima - 2, optima + 2, spacing)] == [4]

    def test_rates_far_away_that_train_as_well_as_others_are_of_another_unit(self):
        """Four to six octaves off without an optimum: sound if they train badly, else a slip."""
        rng = np.random.default_rng(0)
        x, y = curves("parabola", 0.5, rng=rng)
        x[3] += 7.5
        optima, spacing = np.where(np.arange(8) == 3, np.nan, 0.0), np.full(8, 0.5)
        for off, expected in ((0.0, [3]), (2.0, [])):
            losses = y + off * (np.arange(8) == 3)[:, None]
            well = trained(DEPTHS, x, losses, optima, spacing)
            slips = slipped_rates(DEPTHS, optima, x.min(-1), x.max(-1), spacing, well)
            assert [*slips] == expected


class TestImpossible:
    def test_losses_that_fall_by_factors_from_size_to_size_are_sound(self):
        """A squared error that a larger network lowers four times, three rates at the largest."""
        rng = np.random.default_rng(0)
        x = np.tile(np.arange(-3.0, 4.0), (6, 1))
        y = (
            -math.log(4) * np.arange(6.0)[:, None]
            + 0.1 * x**2
            + 0.01 * rng.standard_normal(x.shape)
        )
        there = np.ones(x.shape, bool)
        there[5, [0, 1, 4, 5]] = False
        size = np.nonzero(there)[0]
        positions = np.arange(6.0)[:, None]
        assert not impossible(size, y[there], positions).any()
        y[2, 3] = math.log(1e-6)
        assert impossible(size, y[there], positions).sum() == 1

    def test_coarse_sizes_do_not_hide_a_mistake(self):
        """The third of three rates is their worst, and no measure of how a best run stands out."""
        fine = np.concatenate([np.full(8, i) for i in range(3)])
        coarse = np.repeat(np.arange(3, 9), 3)
        losses = np.concatenate([np.tile(np.linspace(1.0, 1.4, 8), 3), np.tile([1.0, 1.3, 2.6], 6)])
        losses[5] = math.log(0.03)
        assert impossible(np.concatenate([fine, coarse]), losses).nonzero()[0].tolist() == [5]


@pytest.mark.parametrize(
    ("values", "sides"),
    [
        ([32, 64, 128, 131072], (128, 131072)),
        ([32, 64, 65536, 131072], (64, 65536)),
        ([0.025, 60, 125, 350], (0.025, 60)),
        ([8, 16, 32, 64], None),
        ([8, 16, 32, 32 * 31], None),
        ([8, 64, 512, 4096, 2**17], None),
        ([1, 1024], None),
        ([1, 1000, 10**6], None),
    ],
)
def test_a_space_without_runs_suggests_two_units(values, sides):
    """Five octaves, and three times the next largest space; two values have nothing to compare."""
    assert two_units(np.array(values, float)) == sides
