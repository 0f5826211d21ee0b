"""The drift and its verdict: intervals that hold the truth, whatever the grid or the valley."""

from math import inf, isinf, isnan, log, log2, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from valleys import NAMES, SHAPES, World, intervals, least

from depthmup.posterior import drifts
from depthmup.records import Estimate, Optimum, Place, Verdict
from depthmup.statistics import TOLERANCE, Curves, drift, judge, measured, minima, optima

few = settings(max_examples=4, deadline=None)

DEPTHS = (8, 16, 32, 64, 128)
X = np.arange(-7.0, 1.0)
HALF = np.arange(-7.0, 1.0, 0.5)


def simulated(true_drift, rng, *, seeds, rates=X, lopsided=0.15, noise=0.01, wobble=0.1):
    """Losses whose optimum moves by ``true_drift`` octaves per doubling, (depths, rates, seeds).

    Noise as it is in training: every (depth, seed) has an optimum of its own (``wobble``), shifts
    of a seed are shared by its depths, and single runs scatter. ``lopsided`` curves rise faster
    on one side.
    """
    of_seed = wobble * rng.standard_normal(seeds)
    losses = np.empty((len(DEPTHS), len(rates), seeds))
    for d in range(len(DEPTHS)):
        best = -3.4 + true_drift * d + of_seed + wobble * rng.standard_normal(seeds)
        away = rates[:, None] - best
        shape = 0.12 * away**2 * (1 + lopsided * np.tanh(away))
        scatter = noise * rng.standard_normal(shape.shape)
        losses[d] = np.exp(-1.5 + shape + scatter + 0.1 * rng.standard_normal(seeds))
    return losses


def verdict_of(losses, rates=X):
    fitted = optima(Curves.of(rates, losses), chance=10.0)
    sizes = [{"depth": depth} for depth in DEPTHS]
    optima_ = measured(minima(fitted, sizes), sizes)
    return judge(optima_, drift(DEPTHS, rates, losses), seeds=losses.shape[-1])[0]


def bounds_of(experiments, rates):
    """Bounds of the drift's interval in each of many experiments of one shape, computed at once."""
    losses = np.array(experiments)
    grid = np.broadcast_to(rates, losses.shape[:-1])
    return drifts(range(len(DEPTHS)), Curves(log2_lrs=grid, losses=losses))[1:]


def held(bounds, truth):
    low, high = bounds
    return float(((low <= truth) & (truth <= high)).mean())


class TestOneSeed:
    """How seeds differ is then assumed."""

    def test_sizes_that_scatter_have_a_drift_of_what_was_realized(self):
        """How far minima lie from a line is no error of the slope between these sizes."""

        def half(scatter):
            best = -3 + scatter * np.array([1, -1, 0, -1, 1])
            losses = [np.exp(0.1 * (HALF[:, None] - at) ** 2) for at in best]
            interval = drift(DEPTHS, HALF, losses)
            assert interval.low <= 0 <= interval.high
            return interval.high - interval.value

        assert half(0.5) < 2 * half(0.05)

    def test_two_sizes_are_enough_and_one_is_not(self):
        losses = [np.exp(0.1 * (HALF[:, None] - at) ** 2) for at in (-3, -3.5)]
        assert drift((8, 16), HALF, losses).value == approx(-0.5, abs=0.01)
        assert np.isfinite(drift((8, 16), HALF, losses).high)
        assert isnan(drift((8,), HALF, losses[:1]).value)


class TestWidth:
    def test_it_is_what_seeds_scatter_beside_what_is_usual(self):
        """Quiet sweeps keep what is not known of shapes; the scatter of seeds adds to it."""
        rng = np.random.default_rng(1)

        def half(wobble, rates=HALF):
            options = {"seeds": 5, "rates": rates, "wobble": wobble, "noise": 0.001}
            low, high = bounds_of([simulated(0, rng, **options) for _ in range(9)], rates)
            return float(np.median(high - low)) / 2

        still, quiet, loud = half(0.0), half(0.02), half(0.1)
        assert still < quiet < loud
        # Of five seeds, sizes with optima of their own: 1.96 wobble / sqrt(5 sum x^2).
        assert loud == approx(1.96 * 0.1 / np.sqrt(5 * 10), rel=0.4)
        assert still < 0.02

    def test_optima_beside_a_divergence_are_not_taken_for_its_edge(self):
        """They move by 0.2 and runs diverge 0.35 above them, seen by whole octaves: the rates that
        train best are one for all sizes. An edge said 0 +- 0 once."""
        low, high = intervals(
            experiments=20, drift=0.2, shape="parabola", noise="cliff at 0.35", spacing=1.0,
            seeds=3,
        )  # fmt: skip
        assert held((low, high), 0.2) >= least(0.95, 20)
        assert not ((low >= -TOLERANCE) & (high <= TOLERANCE)).any()

    def test_where_every_seed_agrees_the_fit_still_errs(self):
        """The same losses for all seeds: their scatter alone would say [0.2, 0.2]."""
        best = -3 + 0.2 * np.arange(5)[:, None, None] + np.zeros((1, 1, 3))
        away = X[:, None] - best
        losses = np.exp(np.where(away > 0.35, inf, 0.1 * away**2))
        interval = drift(DEPTHS, X, losses)
        assert interval.high - interval.low > 0.02
        assert interval.low <= 0.2 <= interval.high


class TestPhases:
    @pytest.mark.long
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("true_drift", [0.0, 0.1, 0.2])
    def test_grids_half_an_octave_apart_do_not_contradict_each_other(self, name, true_drift):
        """Whole octaves, eight seeds, the same runs where rates are shared with the fine grid."""
        rng, agree = np.random.default_rng(5), 0
        for _ in range(5):
            fine = np.arange(-6.0, 0.1, 0.5)
            best = -3.1 + true_drift * np.arange(5)[:, None] + 0.05 * rng.standard_normal(8)
            away = fine[:, None] - best[:, None]
            losses = np.exp(SHAPES[name](away) + 0.009 * rng.standard_normal(away.shape))
            one = drift(DEPTHS, fine[::2], losses[:, ::2])
            other = drift(DEPTHS, fine[1::2], losses[:, 1::2])
            agree += max(one.low, other.low) <= min(one.high, other.high)
        # Of two intervals of 95% one misses in a tenth at most; two pairs of five would be odd.
        assert agree >= 4


class TestRagged:
    """Each size with its own rates and seeds, and runs that were not made."""

    def quiet(self, seed=0, seeds=4, rates=HALF, true_drift=-0.1):
        return simulated(
            true_drift, np.random.default_rng(seed),
            seeds=seeds, rates=rates, wobble=0.03, noise=0.003,
        )  # fmt: skip

    def test_each_size_on_its_own_grid(self):
        rng = np.random.default_rng(2)
        grids = [np.sort(rng.uniform(-0.2, 0.2, 13)) + np.arange(-6.5, 0, 0.5) for _ in DEPTHS]
        losses = [
            self.quiet(rates=grid)[i] for i, grid in enumerate(grids)
        ]  # the same seeds, whose noise is drawn alike
        interval = drift(DEPTHS, grids, losses)
        assert interval.low <= -0.1 <= interval.high
        assert interval.high - interval.low < 0.15

    @pytest.mark.parametrize("size", range(5))
    def test_a_run_that_is_missing_at_the_optimum_moves_little(self, size):
        losses = self.quiet() * np.exp([-1.0, 0.0, 1.0, 0.5])  # seeds end at levels of their own
        whole = drift(DEPTHS, HALF, losses)
        gap = losses.copy()
        gap[size, int(losses[size].mean(-1).argmin()), 1] = nan
        part = drift(DEPTHS, HALF, gap)
        assert part.value == approx(whole.value, abs=0.01)
        assert part.high - part.low == approx(whole.high - whole.low, rel=0.3)

    def test_the_same_run_diverged_says_less(self):
        """Missing is not diverged: where the best rate diverges there is a wall instead. How far
        the other side has risen still tells where the minimum would be."""
        losses = self.quiet()
        best = int(losses[4].mean(-1).argmin())
        whole = drift(DEPTHS, HALF, losses)
        losses[4, best, 1] = inf
        wall = drift(DEPTHS, HALF, losses)
        assert wall.high - wall.low > whole.high - whole.low
        assert wall.value == approx(whole.value, abs=0.01)
        losses[4, best:] = inf
        alone = drift(DEPTHS, HALF, losses)
        assert alone.low < whole.value < alone.high
        losses[4, : best - 1] = nan
        one = drift(DEPTHS, HALF, losses)
        assert one.high - one.low > 2 * (whole.high - whole.low)

    def test_a_rate_that_one_size_never_tried(self):
        losses = self.quiet()
        whole = drift(DEPTHS, HALF, losses)
        losses[2, int(losses[2].mean(-1).argmin())] = nan
        assert drift(DEPTHS, HALF, losses).value == approx(whole.value, abs=0.02)

    def test_numbers_of_seeds_that_differ(self):
        losses = self.quiet(seeds=6)
        ragged = [losses[i][:, :count] for i, count in enumerate((6, 6, 4, 3, 2))]
        interval = drift(DEPTHS, HALF, ragged)
        assert interval.low <= -0.1 <= interval.high
        assert np.isfinite(interval.high)

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("counts", [(6, 6, 4, 4, 2), (5, 4, 3, 4, 5)])
    def test_coverage_with_numbers_of_seeds_that_differ(self, counts):
        rng = np.random.default_rng(8)
        losses = np.array([simulated(0.1, rng, seeds=6, rates=HALF) for _ in range(40)])
        for i, count in enumerate(counts):
            losses[:, i, :, count:] = nan
        assert held(bounds_of(losses, HALF), 0.1) >= least(0.95, 40)

    @pytest.mark.long(of="coverage")
    def test_coverage_with_seeds_that_share_nothing(self):
        """Three seeds of its own at every size: fifteen columns, three filled at each."""
        rng, losses = np.random.default_rng(9), np.full((40, 5, len(HALF), 15), nan)
        for one in losses:
            for i in range(5):
                own = simulated(0.1, rng, seeds=3, rates=HALF, wobble=0.1)[i]
                one[i, :, 3 * i : 3 * i + 3] = own
        assert held(bounds_of(losses, HALF), 0.1) >= least(0.95, 40)

    @pytest.mark.long(of="coverage")
    def test_coverage_with_missing_runs(self):
        rng = np.random.default_rng(10)
        losses = np.array([simulated(0.1, rng, seeds=4, rates=HALF) for _ in range(40)])
        losses[rng.random(losses.shape) < 0.15] = nan
        assert held(bounds_of(losses, HALF), 0.1) >= least(0.95, 40)

    @few
    @given(st.integers(0, 1000), st.permutations(range(4)))
    def test_the_order_of_columns_is_irrelevant(self, seed, order):
        losses = self.quiet(seed)
        losses[0, 3, 1] = nan
        one, other = drift(DEPTHS, HALF, losses), drift(DEPTHS, HALF, losses[..., order])
        ends = (one.value, one.low, one.high)
        assert (other.value, other.low, other.high) == approx(ends, abs=1e-4)


class TestInvariances:
    @few
    @given(st.integers(0, 1000), st.floats(-20, 20), st.floats(0.01, 100), st.integers(1, 64))
    def test_units_do_not_matter(self, seed, shift, scale, factor):
        """Of rates, of losses and of sizes: a drift is octaves per doubling."""
        losses = simulated(-0.2, np.random.default_rng(seed), seeds=3, rates=HALF)
        one = drift(DEPTHS, HALF, losses)
        other = drift([factor * d for d in DEPTHS], HALF + shift, scale * losses)
        assert (other.value, other.low, other.high) == approx(
            (one.value, one.low, one.high), abs=1e-4
        )

    @few
    @given(st.integers(0, 1000), st.floats(0, 1))
    def test_a_drift_that_is_added_is_added(self, seed, added):
        """Curves moved by ``added`` octaves per doubling, on grids that move along.

        They move by 0.5 before: that nothing moves is a belief of its own, by which intervals about
        zero are up to a third narrower. Laws make small slopes likelier by far less than a tenth of
        the half-width.
        """
        losses = simulated(0.0, np.random.default_rng(seed), seeds=3, rates=HALF)
        one, other = (
            drift(DEPTHS, [HALF + by * i for i in range(5)], losses) for by in (0.5, 0.5 + added)
        )
        half = (one.high - one.low) / 2
        assert other.value == approx(one.value + added, abs=half / 10)
        assert other.high - other.low == approx(2 * half, rel=0.1)

    @few
    @given(st.integers(0, 1000), st.permutations(range(5)))
    def test_the_order_of_sizes(self, seed, order):
        losses = simulated(-0.2, np.random.default_rng(seed), seeds=3, rates=HALF)
        one = drift(DEPTHS, HALF, losses)
        other = drift([DEPTHS[i] for i in order], HALF, losses[order])
        ends = (one.value, one.low, one.high)
        assert (other.value, other.low, other.high) == approx(ends, abs=1e-4)


class TestVerdicts:
    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize(
        ("true_drift", "verdict"),
        [(0.0, Verdict.TRANSFERS), (-0.5, Verdict.DRIFTS), (0.5, Verdict.DRIFTS)],
    )
    def test_clear_cases_are_decided_and_decided_right(self, true_drift, verdict):
        rng = np.random.default_rng(2)
        verdicts = [verdict_of(simulated(true_drift, rng, seeds=5, wobble=0.05)) for _ in range(20)]
        assert verdicts.count(verdict) >= 18
        opposite = {Verdict.TRANSFERS, Verdict.DRIFTS} - {verdict}
        assert not opposite & set(verdicts)

    def test_a_drift_on_the_tolerance_is_undecided(self):
        rng = np.random.default_rng(3)
        verdicts = [verdict_of(simulated(0.15, rng, seeds=5)) for _ in range(12)]
        # One in twenty is decided; four or more of 12 once in 450 such tests.
        assert verdicts.count(Verdict.UNDECIDED) > 8

    @pytest.mark.parametrize("slope", [-0.3, -0.1, 0.1, 0.3])
    def test_straight_curves_say_nothing_of_their_optima(self, slope):
        """All optima beyond one end of the grid; levels apart, any drift gives such curves."""
        losses = np.exp(slope * X[:, None] + np.zeros((len(DEPTHS), 1, 3)))
        interval = drift(DEPTHS, X, losses)
        assert interval.low < -0.4
        assert interval.high > 0.4
        assert verdict_of(losses) is Verdict.UNDECIDED

    @pytest.mark.parametrize("true_drift", [0.0, 0.2])
    def test_curves_that_bend_towards_optima_beyond_the_grid_say_how_they_move(self, true_drift):
        """Half an octave to an octave and a half below the lowest rate."""
        best = X[0] - 1.5 + true_drift * np.arange(5)
        losses = np.exp(0.1 * (X[:, None] - best[:, None, None]) ** 2 + np.zeros(3))
        interval = drift(DEPTHS, X, losses)
        assert interval.low <= true_drift <= interval.high
        assert 0.02 < interval.high - interval.low < 0.45


class TestMeasured:
    def test_every_size_with_its_place_and_intervals(self):
        losses = simulated(0.0, np.random.default_rng(0), seeds=4)
        sizes = [{"width": 64, "depth": d} for d in DEPTHS]
        optima_ = measured(minima(optima(Curves.of(X, losses)), sizes), sizes)
        assert [o.size for o in optima_] == [{"width": 64, "depth": d} for d in DEPTHS]
        for optimum in optima_:
            assert optimum.place is Place.INTERIOR
            assert optimum.log2_lr.low < optimum.log2_lr.value < optimum.log2_lr.high
            assert optimum.loss.low < optimum.loss.value < optimum.loss.high

    @pytest.mark.parametrize(("slope", "open_end"), [(1.0, "low"), (-1.0, "high")])
    def test_at_an_edge_the_interval_is_open_outwards(self, slope, open_end):
        losses = np.exp(0.1 * slope * X[:, None] + np.zeros(3))
        sizes = [{"depth": 8}]
        (optimum,) = measured(minima(optima(Curves.of(X, [losses])), sizes), sizes)
        assert isinf(getattr(optimum.log2_lr, open_end))
        # It may lie between the last two rates.
        closed, inwards = {"low": ("high", 1.0), "high": ("low", -1.0)}[open_end]
        assert getattr(optimum.log2_lr, closed) == optimum.log2_lr.value + inwards

    def test_what_does_not_train_is_unknown(self):
        fit = optima(Curves.of(X, [np.full((8, 3), 2.5)]), chance=log(10))
        (optimum,) = measured(minima(fit, [{"depth": 8}]), [{"depth": 8}])
        assert (optimum.place, optimum.log2_lr.known) == (Place.FAILED, False)

    def test_another_confidence(self):
        sizes = [{"depth": d} for d in DEPTHS]
        curves = Curves.of(X, simulated(0.0, np.random.default_rng(0), seeds=4))
        found = minima(optima(curves), sizes)
        narrow, wide = (measured(found, sizes, confidence=c)[0].log2_lr for c in (0.9, 0.95))
        assert wide.low < narrow.low < narrow.high < wide.high

    def test_one_seed_has_intervals_of_its_learning_rate(self):
        losses = simulated(0.0, np.random.default_rng(0), seeds=1, rates=HALF)
        sizes = [{"depth": d} for d in DEPTHS]
        optima_ = measured(minima(optima(Curves.of(HALF, losses)), sizes), sizes)
        assert all(0 < o.log2_lr.high - o.log2_lr.low < 2 for o in optima_)


class TestJudge:
    @staticmethod
    def at(place=Place.INTERIOR, depth=8):
        known = Estimate(value=-3, low=-3.1, high=-2.9)
        return Optimum(size={"depth": depth}, log2_lr=known, loss=known, place=place)

    @staticmethod
    def between(low, high):
        return Estimate(value=0.0 if isinf(low) else (low + high) / 2, low=low, high=high)

    @pytest.mark.parametrize(
        ("interval", "verdict"),
        [
            ((-0.1, 0.1), Verdict.TRANSFERS),
            ((-0.15, 0.15), Verdict.TRANSFERS),
            ((0.16, 0.3), Verdict.DRIFTS),
            ((-0.6, -0.4), Verdict.DRIFTS),
            ((0.1, 0.2), Verdict.UNDECIDED),
            ((-1.0, 1.0), Verdict.UNDECIDED),
            ((-inf, inf), Verdict.UNDECIDED),
        ],
    )
    def test_interval_and_tolerance(self, interval, verdict):
        judged, why = judge([self.at(), self.at(depth=16)], self.between(*interval), seeds=5)
        assert judged is verdict
        assert "per doubling of depth" in why
        assert "octave" not in why

    @pytest.mark.parametrize(
        ("place", "advice"),
        [
            (Place.LOW_EDGE, "extend it downwards (depth 16)"),
            (Place.HIGH_EDGE, "upwards (depth 16)"),
        ],
    )
    def test_an_edge_says_which_way(self, place, advice):
        optima_ = [self.at(), self.at(place, 16)]
        judged, why = judge(optima_, self.between(-0.3, 0.1), seeds=5)
        assert judged is Verdict.UNDECIDED
        assert advice in why

    def test_a_bound_that_leaves_the_interval_inside_is_no_obstacle(self):
        optima_ = [self.at(), self.at(Place.LOW_EDGE, 16)]
        judged, why = judge(optima_, self.between(-0.1, 0.1), seeds=5)
        assert judged is Verdict.TRANSFERS
        assert why.startswith("Up to depth 8 ")
        assert "At depth 16 the optimum lies at an edge of the grid, or beyond." in why

    def test_a_depth_that_does_not_train_is_no_transfer(self):
        optima_ = [self.at(), self.at(depth=16), self.at(Place.FAILED, 32)]
        judged, why = judge(optima_, self.between(-0.01, 0.01), seeds=5)
        assert judged is Verdict.UNDECIDED
        assert "At depth 32 no learning rate trains" in why
        judged, why = judge(optima_, self.between(-2.1, -1.9), seeds=5)
        assert judged is Verdict.DRIFTS
        assert "At depth 32 no learning rate trains" in why

    def test_transfer_says_up_to_which_size(self):
        _, why = judge([self.at(), self.at(depth=128)], self.between(-0.01, 0.01), seeds=5)
        assert why.startswith("Up to depth 128 ")

    @pytest.mark.parametrize("interval", [(-0.1, 0.1), (0.2, 0.4), (-0.3, 0.3)])
    def test_one_seed_says_where_its_interval_comes_from(self, interval):
        for seeds, said in ((1, True), (2, False)):
            _, why = judge([self.at(), self.at()], self.between(*interval), seeds=seeds)
            assert ("Only one seed: how seeds differ is assumed, not measured." in why) is said

    def test_one_depth_is_too_few(self):
        nothing = Estimate(value=nan, low=nan, high=nan)
        assert judge([self.at()], nothing, seeds=5)[0] is Verdict.UNDECIDED


def test_the_slope_is_that_of_least_squares():
    best = np.array([-3.0, -3.2, -3.1, -3.6, -3.5])
    losses = [np.exp(0.1 * (HALF[:, None] - at) ** 2) for at in best]
    line = np.polyfit([log2(d) for d in DEPTHS], best, 1)
    # Laws and shapes have priors, which move it by a fiftieth.
    assert drift(DEPTHS, HALF, losses).value == approx(line[0], abs=3e-3)


class TestLawsOfOtherPeople:
    """Sizes that leave their law, and valleys that change shape: how tables of real runs are."""

    def test_one_size_six_octaves_off_belongs_to_the_drift_of_these_sizes(self):
        """The drift is the slope of what was realized: -8, -8, -2, -8 have 0.6."""
        rng = np.random.default_rng(0)
        world = World(shape="parabola", noise="like real", spacing=0.5, seeds=3)
        best = np.array([-8.0, -8.0, -2.0, -8.0])
        _, low, high = drifts(range(4), world.curves(rng, best[None]))
        assert low[0] <= np.polyfit(range(4), best, 1)[0] <= high[0]

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("spacing", [0.5, 1.0])
    def test_valleys_that_turn_lopsided_with_size(self, spacing):
        """The minimum follows its law. The centre does not: with it alone none is covered."""
        rng, count = np.random.default_rng(3), 40
        rates = np.arange(-7.0, 5.0, spacing) + rng.uniform(0, spacing, (count, 1))
        u = rates[:, None, :, None] - 0.25 * np.arange(5)[:, None, None]
        u = u - 0.05 * rng.standard_normal((count, 1, 1, 3))
        turned = 2.0 ** (0.4 * np.arange(5))[:, None, None]
        valley = 0.07 * np.where(u < 0, 1 / turned, turned) * np.abs(u) ** 1.7
        losses = np.exp(valley + 0.009 * rng.standard_normal(u.shape))
        grid = np.broadcast_to(rates[:, None, :], losses.shape[:-1])
        bounds = drifts(range(5), Curves(log2_lrs=grid, losses=losses))[1:]
        assert held(bounds, 0.25) >= least(0.95, count)
        low, high = bounds
        assert ((low >= -TOLERANCE) & (high <= TOLERANCE)).mean() <= 1 - least(0.975, count)
