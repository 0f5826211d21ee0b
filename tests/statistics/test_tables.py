"""The statistics of tables: slices of sizes, the pooled law, seeds, cleaning."""

import numpy as np
import pytest
from pytest import approx
from valleys import doubling, found, least

from depthmup.posterior.curve import far_above
from depthmup.records import LEARNING_RATE
from depthmup.statistics import Curves, cost, pooled_law
from depthmup.statistics.along import along_axis
from depthmup.statistics.runs import Runs
from depthmup.statistics.strays import beyond_sense, impossible
from depthmup.statistics.table import (
    MOST_SEEDS,
    changing_together,
    confounded,
    curves_of_table,
    merged,
    slices,
)
from studies.coverage import SHAPES, World


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "covers"), [("parabola", 0.95), ("steep V", 0.76), ("wall", 0.82)]
)
def test_sizes_at_an_edge_make_drifts_more_exact(shape, covers):
    """Grids that end 0.25 octaves beyond the last optimum but one, of five that move by 0.5.

    Of intervals of 95% about valleys with corners, whose ground two or three sizes show, fewer
    hold: as measured by 40 draws of another seed.
    """
    rng, errors, held = np.random.default_rng(4), [], []
    world = World(shape=shape, noise="as on tables", spacing=0.5, seeds=1)
    for _ in range(15):
        best = -0.5 * np.arange(5)
        curves = world.curves(rng, best[None])
        rates = curves.log2_lrs[0, 0]
        there = rates >= best[-2] - 0.25
        curves = Curves(log2_lrs=curves.log2_lrs[0][:, there], losses=curves.losses[0][:, there])
        sizes = tuple(doubling(5, "width"))
        runs = Runs(name="", title="", sizes=sizes, curves=curves)
        if runs.inside.all() or runs.inside.sum() < 2:
            continue
        inside = runs.at(np.flatnonzero(runs.inside))
        both = [along_axis(part, "width").drift(LEARNING_RATE) for part in (runs, inside)]
        errors.append([drift.value + 0.5 for drift in both])
        held.append(both[0].low <= -0.5 <= both[0].high)
    with_edges, without = np.sqrt(np.mean(np.square(errors), axis=0))
    assert len(errors) >= 7
    assert with_edges < without
    assert np.mean(held) >= least(covers, len(held))


class TestSlices:
    @pytest.mark.long(slice=False)
    @pytest.mark.parametrize("spacings", [(0.5, 0.5, 0.5, 0.5, 0.5), (0.5, 2.0, 1.0, 2.0, 0.5)])
    def test_one_seed_covers_the_slope(self, spacings):
        rng, held = np.random.default_rng(1), 0
        for number in range(40):
            shape = SHAPES[list(SHAPES)[number % len(SHAPES)]]
            grids = [np.arange(-3 - rng.uniform(0, s), 4, s) + 0.2 * i
                     for i, s in enumerate(spacings)]  # fmt: skip
            losses = [
                np.exp(shape(g - 0.2 * i) + 0.009 * rng.standard_normal(len(g)))[:, None]
                for i, g in enumerate(grids)
            ]
            drift = _slope(Curves.of(grids, losses))
            held += drift.low <= 0.2 <= drift.high
        assert held / 40 >= least(0.95, 40)

    def test_a_size_beside_a_divergence_does_not_blur_the_others(self):
        world = World(shape="parabola", noise="quiet", spacing=0.5, seeds=1)
        curves = world.curves(np.random.default_rng(0), np.array([[0, 0.2, 0.4, 0.6, 0.8]]))
        losses = curves.losses[0].copy()
        whole = _slope(Curves(log2_lrs=curves.log2_lrs[0], losses=losses))
        losses[4, curves.log2_lrs[0, 4] > 0.9] = np.inf
        part = _slope(Curves(log2_lrs=curves.log2_lrs[0], losses=losses))
        assert part.low <= 0.2 <= part.high
        assert part.high - part.low < 1.6 * (whole.high - whole.low)

    def test_slices_at_levels_of_their_own_share_a_slope(self):
        """Two batches, each with three widths: 0.3 octaves per doubling, four octaves apart."""
        sizes = [{"width": 2.0**w, "batch": b} for b in (8.0, 32.0) for w in range(3)]
        rates = np.arange(-8.0, 6.0, 0.5)
        best = [0.3 * np.log2(size["width"]) + 2 * np.log2(size["batch"]) - 8 for size in sizes]
        losses = [np.exp(0.07 * (rates - at) ** 2)[:, None] for at in best]
        runs = Runs(name="", title="", sizes=tuple(sizes), curves=Curves.of(rates, losses))
        drift = along_axis(runs, "width").drift(LEARNING_RATE)
        assert drift.low <= 0.3 <= drift.high
        assert drift.value == approx(0.3, abs=0.02)


def _slope(curves):
    sizes = tuple(doubling(len(curves.losses), "width"))
    runs = Runs(name="", title="", sizes=sizes, curves=curves)
    return along_axis(runs, "width").drift(LEARNING_RATE)


class TestPooled:
    @pytest.mark.parametrize("shape", ["parabola", "lopsided", "V"])
    def test_covers_exponents_from_two_rates_of_each_size(self, shape):
        rng, held, halves = np.random.default_rng(2), 0, []
        for _ in range(100):
            positions = np.array([(a, b) for a in range(5) for b in range(5)], float)
            size = np.repeat(np.arange(25), 2)
            best = positions[size] @ (-0.5, 0.25)
            x = best + rng.uniform(-2.5, 2.5, len(size))
            y = SHAPES[shape](x - best) + 0.02 * rng.standard_normal(len(size))
            law = pooled_law(positions, size, x, y + rng.standard_normal(25)[size])
            held += sum(
                e.low <= t <= e.high for e, t in zip(law.exponents, (-0.5, 0.25), strict=True)
            )
            halves.append(law.exponents[0].high - law.exponents[0].value)
        assert held >= 178  # 93% of 200, less two and a half standard errors
        assert np.median(halves) < 0.2

    def test_refuses_what_shows_no_valley(self):
        size, x = np.repeat(np.arange(10), 2), np.tile([-3.0, -2.0], 10)
        assert pooled_law(np.arange(10.0)[:, None], size, x, x) is None
        assert pooled_law(np.zeros((10, 1)), np.arange(10), np.arange(10.0), np.ones(10)) is None

    def test_axes_that_grow_together_are_unknown(self):
        rng = np.random.default_rng(0)
        s = np.arange(20.0) / 4
        size = np.repeat(np.arange(20), 3)
        x = rng.uniform(-2, 2, 60)
        law = pooled_law(np.column_stack([s, 2 * s]), size, x, 0.07 * x**2)
        assert not any(e.known for e in law.exponents)


class TestCurves:
    def test_seeds_that_are_shared_are_columns(self):
        size = np.zeros(12, int)
        rate = np.repeat(np.arange(4.0), 3)
        curves, shared = curves_of_table(size, rate, np.full(12, 2.0), np.tile([7, 8, 9], 4), 1)
        assert (curves.losses.shape[-1], shared) == (3, True)

    def test_a_seed_for_each_run_makes_repeats(self):
        size, rate = np.zeros(12, int), np.repeat(np.arange(4.0), 3)
        curves, shared = curves_of_table(size, rate, np.full(12, 2.0), np.arange(12), 1)
        assert (curves.losses.shape[-1], shared) == (3, False)

    def test_many_seeds_are_averaged_in_groups(self):
        rate = np.repeat(np.arange(4.0), 100)
        seed = np.tile(np.arange(100), 4)
        curves, _ = curves_of_table(np.zeros(400, int), rate, np.exp(seed / 100), seed, 1)
        assert curves.losses.shape == (1, 4, MOST_SEEDS)
        assert np.nanmean(np.log(curves.losses)) == approx(0.495, abs=0.005)

    def test_rates_drawn_at_random_are_binned(self):
        rate = np.random.default_rng(0).uniform(-6, 0, 300)
        curves, _ = curves_of_table(
            np.zeros(300, int), rate, np.full(300, 2.0), np.full(300, -1), 1
        )
        grid = curves.log2_lrs[0]
        assert len(grid) == 24
        assert (np.diff(grid) > 0).all()

    def test_one_diverged_run_makes_its_rate_diverge(self):
        loss = np.array([2.0, np.inf, 2.1, 2.2])
        curves, _ = curves_of_table(
            np.zeros(4, int), np.array([0.0, 0, 1, 1]), loss, np.array([0, 1] * 2), 1
        )
        assert np.isinf(curves.averages()[0, 0])


class TestFlags:
    def test_sizes_that_differ_by_a_hair_are_one(self):
        counted = np.array([1e9, 1e9 + 5e5, 2e9, 2e9 - 4e5])
        assert len(np.unique(merged(counted))) == 2
        continuous = np.linspace(100, 200, 400)
        assert merged(continuous) is continuous

    def test_slices_and_what_is_confounded(self):
        grid = np.array([(d, 64 * d, b) for d in (1, 2) for b in (8, 16)], float)
        assert [len(s) for s in slices(grid, 2)] == [2, 2]
        assert slices(grid, 0) == []
        assert confounded(grid, ["depth", "width", "batch"]) == [("depth", "width")]

    def test_axes_that_change_together_are_confounded_where_they_grow_in_step(self):
        depth = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
        nearly, apart = [64, 120, 260, 512, 1000], [512, 64, 2048, 128, 256]
        axes = ["depth", "width", "batch"]
        both = np.column_stack([depth, nearly, apart])
        assert changing_together(both, axes) == [tuple(axes)]
        assert confounded(both, axes) == [("depth", "width")]
        assert confounded(both[:, [0, 2]], ["depth", "batch"]) == []

    def test_the_floor_of_a_fast_trend_is_no_mistake(self):
        """Losses that fall tenfold from size to size, as on easy data: the best run is sound."""
        size = np.repeat(np.arange(4), 5)
        y = np.log(10.0) * -size + np.tile([3.0, 1.5, 0.0, 1.4, 2.9], 4)
        assert not impossible(size, y).any()
        y[12] -= 30
        assert impossible(size, y).nonzero()[0].tolist() == [12]

    def test_only_rates_above_the_best_diverge(self):
        rate = np.arange(5.0)
        y = np.log([9.0, 4.0, 1.0, 1.5, 60.0])
        assert far_above(np.zeros(5, int), rate, y).tolist() == [False] * 4 + [True]

    def test_a_wide_sweep_has_no_rate_beyond_sense(self):
        assert not beyond_sense(np.arange(-20.0, 5.0)).any()
        assert not beyond_sense(np.array([-30.0, 0.0])).any()  # each is half of the table


RATES = np.arange(-8.0, 0.0, 0.5)


def test_the_cost_of_the_base_s_rate_is_that_of_its_distance():
    """An octave apart on a parabola: exp(0.07) - 1 of a best loss of 1."""
    both = found(RATES, *(0.07 * (RATES - best) ** 2 for best in (-5.0, -4.0)))
    price = cost(both, 1, np.array([1.0, -1.0]))
    assert price.low < price.value < price.high
    assert price.value == approx(np.expm1(0.07), rel=0.1)
    nothing = cost(both, 1, np.array([1.0, -1.0]), 1.0)
    assert nothing.value == approx(0, abs=1e-3)
    assert nothing.low >= 0


def test_a_cost_of_another_size_is_refused():
    with pytest.raises(ValueError, match="one of 1 sizes"):
        cost(found(RATES, 0.07 * (RATES + 4) ** 2), 1, np.zeros(1))


def test_a_cost_on_the_peak_of_a_stray_run_lies_in_its_interval():
    log_losses = np.array([0.3, 0.2, 9.0, 0.4, 0.1, 0.0, 0.1])
    stray = found(np.arange(-2.0, 5), log_losses)
    price = cost(stray, 0, np.array([-1.0]), 0.0)  # at log2 rate 0
    assert price.low <= price.value <= price.high
    assert price.high == approx(np.exp(9), rel=0.1)
