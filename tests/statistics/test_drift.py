"""The drift and its verdict: intervals that hold the truth, whatever the grid or the valley."""

from math import inf, isinf, isnan, log, log2, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from valleys import NAMES, SHAPES, STEEP, World, intervals

from depthmup.records import Estimate, Optimum, Place, Verdict, tuned
from depthmup.statistics import (
    TOLERANCE,
    Curves,
    drift,
    drifts,
    judge,
    looked_at,
    measured,
    minima,
    optima,
)
from depthmup.statistics.intervals import student
from depthmup.statistics.regression import OWN_SLOPE

universal = settings(max_examples=20, deadline=None)

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
    optima_ = measured(minima(fitted), [{"depth": depth} for depth in DEPTHS])
    return judge(optima_, drift(DEPTHS, rates, losses), seeds=losses.shape[-1])[0]


def bounds_of(experiments, rates):
    """Bounds of the drift's interval in each of many experiments of one shape, computed at once."""
    losses = np.array(experiments)
    grid = np.broadcast_to(rates, losses.shape[:-1])
    value, half = drifts(range(len(DEPTHS)), optima(Curves(log2_lrs=grid, losses=losses)))
    return value - half, value + half


def held(bounds, truth):
    low, high = bounds
    return float(((low <= truth) & (truth <= high)).mean())


class TestCoverage:
    """Nominal 95% intervals. Of 200 experiments fewer than 180 hold at true 95% by 0.2% chance."""

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("seeds", [3, 5])
    @pytest.mark.parametrize("true_drift", [0.0, -0.5, 0.2])
    @pytest.mark.parametrize("lopsided", [0.0, 0.3])
    def test_where_every_seed_has_an_optimum_of_its_own(self, seeds, true_drift, lopsided):
        rng, count = np.random.default_rng(0), 200
        losses = [simulated(true_drift, rng, seeds=seeds, lopsided=lopsided) for _ in range(count)]
        assert held(bounds_of(losses, X), true_drift) >= 0.9

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("spacing", [0.5, 1.0])
    @pytest.mark.parametrize("noise", ["quiet", "like real"])
    def test_it_does_not_fall_with_the_number_of_seeds(self, name, spacing, noise):
        """What the fit misses is the same for all seeds: with none of it, six hold 22 to 95%."""
        world = {"shape": name, "noise": noise, "spacing": spacing}
        for seeds in (2, 6):
            assert held(intervals(experiments=200, seeds=seeds, **world), 0.1) >= 0.9

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize(
        "noise", ["loud", "heavy tails", "unequal sizes", "unequal rates", "own slopes", "spikes"]
    )
    def test_under_other_noises(self, noise):
        world = {"shape": "V", "noise": noise, "spacing": 1.0, "seeds": 4}
        assert held(intervals(experiments=200, **world), 0.1) >= 0.9

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("cliff", ["cliff at 0.35", "cliff at 0.6", "cliff at 1"])
    @pytest.mark.parametrize("spacing", [0.5, 1.0])
    def test_beside_a_cliff(self, cliff, spacing):
        world = {"shape": "lopsided", "noise": cliff, "spacing": spacing, "seeds": 4}
        assert held(intervals(experiments=200, **world), 0.1) >= 0.9

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("name", STEEP)
    @pytest.mark.parametrize("spacing", [0.5, 1.0])
    @pytest.mark.parametrize("true_drift", [0.1, 0.2])
    def test_beside_a_wall_where_nothing_diverges(self, name, spacing, true_drift):
        """Losses end at guessing instead: without a term of its own 21 to 65% hold at octaves."""
        world = {"shape": name, "noise": "like real", "spacing": spacing, "seeds": 4}
        low, high = intervals(experiments=200, drift=true_drift, **world)
        assert held((low, high), true_drift) >= 0.88
        wrong = (low > TOLERANCE) if true_drift == 0.1 else (high <= TOLERANCE)
        assert wrong.mean() <= 0.05

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("sizes", [4, 6])
    @pytest.mark.parametrize("spacing", [0.5, 1.0])
    def test_verdicts_are_seldom_false(self, name, sizes, spacing):
        """At most 2.5% of either kind; more than 5% of 200 has a chance of 1%."""
        world = {"shape": name, "noise": "like real", "spacing": spacing, "seeds": 6}
        low, high = intervals(experiments=200, sizes=sizes, drift=0.1, **world)
        assert ((low > TOLERANCE) | (high < -TOLERANCE)).mean() <= 0.05
        low, high = intervals(experiments=200, sizes=sizes, drift=0.2, **world)
        assert ((low >= -TOLERANCE) & (high <= TOLERANCE)).mean() <= 0.05

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("name", ["parabola", "lopsided", "V"])
    def test_half_octave_grids_decide_what_is_clear(self, name):
        """Intervals are not held by being vacuous: at 0.1 from the tolerance they decide."""
        world = {"shape": name, "noise": "like real", "spacing": 0.5, "seeds": 4}
        low, high = intervals(experiments=200, drift=0.0, **world)
        assert ((low >= -TOLERANCE) & (high <= TOLERANCE)).mean() >= 0.9
        assert np.median(high - low) / 2 < 0.06


class TestOneSeed:
    """The scatter of sizes about their line stands for that of seeds."""

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("name", ["parabola", "V"])
    @pytest.mark.parametrize("spacing", [0.5, 1.0])
    def test_coverage(self, name, spacing):
        world = {"shape": name, "noise": "like real", "spacing": spacing, "seeds": 1}
        assert held(intervals(experiments=400, **world), 0.1) >= 0.93

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("noise", ["loud", "unequal sizes", "heavy tails"])
    def test_coverage_under_other_noises(self, noise):
        world = {"shape": "parabola", "noise": noise, "spacing": 0.5, "seeds": 1}
        assert held(intervals(experiments=400, **world), 0.1) >= 0.9

    def test_it_grows_with_the_scatter_of_sizes(self):
        def half(scatter):
            best = -3 + scatter * np.array([1, -1, 0, -1, 1])
            losses = [np.exp(0.1 * (HALF[:, None] - at) ** 2) for at in best]
            interval = drift(DEPTHS, HALF, losses)
            return interval.high - interval.value

        assert half(0.05) < half(0.2) < half(0.5)

    def test_two_sizes_are_enough_and_one_is_not(self):
        losses = [np.exp(0.1 * (HALF[:, None] - at) ** 2) for at in (-3, -3.5)]
        assert drift((8, 16), HALF, losses).value == approx(-0.5)
        assert np.isfinite(drift((8, 16), HALF, losses).high)
        assert isnan(drift((8,), HALF, losses[:1]).value)


class TestWidth:
    def test_it_is_what_seeds_scatter_beside_what_is_usual(self):
        """Quiet sweeps are left with what seeds' slopes may do; the scatter of seeds adds to it."""
        rng = np.random.default_rng(1)

        def half(wobble, rates=HALF):
            options = {"seeds": 5, "rates": rates, "wobble": wobble, "noise": 0.001}
            low, high = bounds_of([simulated(0, rng, **options) for _ in range(60)], rates)
            return float(np.median(high - low)) / 2

        slopes = student(4 + 4) * np.sqrt(4 * OWN_SLOPE**2 / 5 / (4 + 4))
        still, quiet, loud = half(0.0), half(0.02), half(0.1)
        # A valley that turns by 2% per doubling moves the minimum by a hundredth of an octave.
        assert slopes < still < np.hypot(slopes, 0.02)
        assert (quiet**2 - still**2) ** 0.5 == approx((loud**2 - still**2) ** 0.5 / 5, rel=0.5)
        assert loud < 0.15

    def test_optima_beside_a_divergence_are_not_taken_for_its_edge(self):
        """They move by 0.2 and runs diverge 0.35 above them, seen by whole octaves: the rates that
        train best are one for all sizes. An edge said 0 +- 0 once."""
        low, high = intervals(
            experiments=100, drift=0.2, shape="parabola", noise="cliff at 0.35", spacing=1.0,
            seeds=3,
        )  # fmt: skip
        assert held((low, high), 0.2) >= 0.9
        assert not ((low >= -TOLERANCE) & (high <= TOLERANCE)).any()

    def test_where_every_seed_agrees_the_fit_still_errs(self):
        """The same losses for all seeds: the jackknife alone would say [0, 0]."""
        best = -3 + 0.2 * np.arange(5)[:, None, None] + np.zeros((1, 1, 3))
        away = X[:, None] - best
        losses = np.exp(np.where(away > 0.35, inf, 0.1 * away**2))
        interval = drift(DEPTHS, X, losses)
        assert interval.high - interval.low > 0.05
        assert interval.low <= 0.2 <= interval.high


class TestPhases:
    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("true_drift", [0.0, 0.1, 0.2])
    def test_grids_half_an_octave_apart_do_not_contradict_each_other(self, name, true_drift):
        """Whole octaves, eight seeds, the same runs where rates are shared with the fine grid."""
        rng = np.random.default_rng(5)
        for _ in range(10):
            fine = np.arange(-6.0, 0.1, 0.5)
            best = -3.1 + true_drift * np.arange(5)[:, None] + 0.05 * rng.standard_normal(8)
            away = fine[:, None] - best[:, None]
            losses = np.exp(SHAPES[name](away) + 0.009 * rng.standard_normal(away.shape))
            one = drift(DEPTHS, fine[::2], losses[:, ::2])
            other = drift(DEPTHS, fine[1::2], losses[:, 1::2])
            assert max(one.low, other.low) <= min(one.high, other.high)


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
        losses = np.array([simulated(0.1, rng, seeds=6, rates=HALF) for _ in range(200)])
        for i, count in enumerate(counts):
            losses[:, i, :, count:] = nan
        assert held(bounds_of(losses, HALF), 0.1) >= 0.9

    @pytest.mark.long(of="coverage")
    def test_coverage_with_seeds_that_share_nothing(self):
        """Three seeds of its own at every size: fifteen columns, three filled at each."""
        rng, losses = np.random.default_rng(9), np.full((200, 5, len(HALF), 15), nan)
        for one in losses:
            for i in range(5):
                own = simulated(0.1, rng, seeds=3, rates=HALF, wobble=0.1)[i]
                one[i, :, 3 * i : 3 * i + 3] = own
        assert held(bounds_of(losses, HALF), 0.1) >= 0.9

    def test_seeds_that_share_nothing_have_independent_errors(self):
        """The slope's variance is that of its weights and of each size's own three seeds."""
        losses = np.full((5, len(HALF), 15), nan)
        for i in range(5):
            losses[i, :, 3 * i : 3 * i + 3] = self.quiet(seed=i, seeds=3)[i]
        weights = (np.arange(5) - 2) / 10
        together = optima(Curves.of(HALF, losses))
        without = minima(together).valley.without
        error, freedom = together.seed_error(weights @ without)
        own = [together.seed_error(row)[0] for row in weights[:, None] * without]
        assert float(error) == approx(np.linalg.norm(own), rel=0.3)  # sizes share their shape
        assert 2 <= float(freedom) <= 8  # the middle size has no weight: four sizes of two each

    @pytest.mark.long(of="coverage")
    def test_coverage_with_missing_runs(self):
        rng = np.random.default_rng(10)
        losses = np.array([simulated(0.1, rng, seeds=4, rates=HALF) for _ in range(200)])
        losses[rng.random(losses.shape) < 0.15] = nan
        assert held(bounds_of(losses, HALF), 0.1) >= 0.9

    @universal
    @given(st.integers(0, 1000), st.permutations(range(4)))
    def test_the_order_of_columns_is_irrelevant(self, seed, order):
        losses = self.quiet(seed)
        losses[0, 3, 1] = nan
        one, other = drift(DEPTHS, HALF, losses), drift(DEPTHS, HALF, losses[..., order])
        assert (other.value, other.low, other.high) == approx((one.value, one.low, one.high))


class TestInvariances:
    @universal
    @given(st.integers(0, 1000), st.floats(-20, 20), st.floats(0.01, 100), st.integers(1, 64))
    def test_units_do_not_matter(self, seed, shift, scale, factor):
        """Of rates, of losses and of sizes: a drift is octaves per doubling."""
        losses = simulated(-0.2, np.random.default_rng(seed), seeds=3, rates=HALF)
        one = drift(DEPTHS, HALF, losses)
        other = drift([factor * d for d in DEPTHS], HALF + shift, scale * losses)
        assert (other.value, other.low, other.high) == approx(
            (one.value, one.low, one.high), abs=1e-5
        )

    @universal
    @given(st.integers(0, 1000), st.floats(-1, 1))
    def test_a_drift_that_is_added_is_added(self, seed, added):
        """Curves moved by ``added`` octaves per doubling, on grids that move along."""
        losses = simulated(0.0, np.random.default_rng(seed), seeds=3, rates=HALF)
        one = drift(DEPTHS, HALF, losses)
        other = drift(DEPTHS, [HALF + added * i for i in range(5)], losses)
        assert (other.value, other.high - other.low) == approx(
            (one.value + added, one.high - one.low), abs=1e-5
        )

    @universal
    @given(st.integers(0, 1000), st.permutations(range(5)))
    def test_the_order_of_sizes(self, seed, order):
        losses = simulated(-0.2, np.random.default_rng(seed), seeds=3, rates=HALF)
        one = drift(DEPTHS, HALF, losses)
        other = drift([DEPTHS[i] for i in order], HALF, losses[order])
        assert (other.value, other.low, other.high) == approx((one.value, one.low, one.high))


class TestVerdicts:
    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize(
        ("true_drift", "verdict"),
        [(0.0, Verdict.TRANSFERS), (-0.5, Verdict.DRIFTS), (0.5, Verdict.DRIFTS)],
    )
    def test_clear_cases_are_decided_and_decided_right(self, true_drift, verdict):
        rng = np.random.default_rng(2)
        verdicts = [verdict_of(simulated(true_drift, rng, seeds=5, wobble=0.05)) for _ in range(50)]
        assert verdicts.count(verdict) >= 45
        opposite = {Verdict.TRANSFERS, Verdict.DRIFTS} - {verdict}
        assert not opposite & set(verdicts)

    def test_a_drift_on_the_tolerance_is_undecided(self):
        rng = np.random.default_rng(3)
        verdicts = [verdict_of(simulated(0.15, rng, seeds=5)) for _ in range(50)]
        assert verdicts.count(Verdict.UNDECIDED) >= 40

    @pytest.mark.long
    @pytest.mark.parametrize("shift", [-4.5, 4.5])
    def test_an_optimum_at_the_edge_is_never_called_transfer(self, shift):
        """All optima beyond one end of the grid: the same at every depth, so the slope is zero."""
        rng = np.random.default_rng(4)
        for _ in range(50):
            away = X[:, None] - (-3.5 + shift) + 0.05 * rng.standard_normal(5)
            losses = np.exp(-1.5 + 0.1 * np.stack([away**2] * len(DEPTHS)))
            assert verdict_of(losses) is Verdict.UNDECIDED


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
        (optimum,) = measured(minima(optima(Curves.of(X, [losses]))), [{"depth": 8}])
        assert isinf(getattr(optimum.log2_lr, open_end))
        closed = {"low": "high", "high": "low"}[open_end]
        assert getattr(optimum.log2_lr, closed) == optimum.log2_lr.value

    def test_what_does_not_train_is_unknown(self):
        fit = optima(Curves.of(X, [np.full((8, 3), 2.5)]), chance=log(10))
        (optimum,) = measured(minima(fit), [{"depth": 8}])
        assert (optimum.place, optimum.log2_lr.known) == (Place.FAILED, False)

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("name", [*NAMES, *STEEP])
    @pytest.mark.parametrize("spacing", [0.5, 1.0])
    def test_intervals_hold_the_true_minimum(self, name, spacing):
        """120 optima; as four share an asymmetry, the standard error at true 95% is up to 4%.

        With many seeds it is the valley's shape that errs: by the scatter of sizes alone a wall
        at half an octave is held in 80%, a slope that ends at guessing in 1%.
        """
        world = World(shape=name, noise="like real", spacing=spacing, seeds=6)
        rng, truth, hits = np.random.default_rng(6), 0.1 * np.arange(4), []
        for _ in range(30):
            curves = world.curves(rng, truth[None])
            fit = optima(Curves(log2_lrs=curves.log2_lrs[0], losses=curves.losses[0]))
            for optimum, at in zip(measured(minima(fit), [{"depth": 8}] * 4), truth, strict=True):
                hits.append(optimum.log2_lr.low <= at <= optimum.log2_lr.high)
        assert np.mean(hits) >= 0.86

    def test_another_confidence(self):
        found = minima(optima(Curves.of(X, simulated(0.0, np.random.default_rng(0), seeds=4))))
        sizes = [{"depth": d} for d in DEPTHS]
        narrow, wide = (measured(found, sizes, confidence=c)[0].log2_lr for c in (0.9, 0.95))
        assert wide.low < narrow.low < narrow.high < wide.high

    def test_one_seed_has_intervals_of_its_learning_rate(self):
        losses = simulated(0.0, np.random.default_rng(0), seeds=1, rates=HALF)
        optima_ = measured(minima(optima(Curves.of(HALF, losses))), [{"depth": d} for d in DEPTHS])
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
        judged, why = judge(optima_, self.between(-0.01, 0.01), seeds=5)
        assert judged is Verdict.UNDECIDED
        assert advice in why

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
            assert ("One seed: the interval is from the scatter of sizes" in why) is said

    def test_one_depth_is_too_few(self):
        nothing = Estimate(value=nan, low=nan, high=nan)
        assert judge([self.at()], nothing, seeds=5)[0] is Verdict.UNDECIDED


def test_the_slope_is_that_of_least_squares():
    best = np.array([-3.0, -3.2, -3.1, -3.6, -3.5])
    losses = [np.exp(0.1 * (HALF[:, None] - at) ** 2) for at in best]
    line = np.polyfit([log2(d) for d in DEPTHS], best, 1)
    # Valleys of one power have the other as a prior, which moves it by less than a thousandth.
    assert drift(DEPTHS, HALF, losses).value == approx(line[0], abs=1e-3)


def test_a_drift_without_bounds_is_undecided_and_says_why():
    unknown = Estimate(value=0.37, low=-inf, high=inf)
    verdict, why = judge([], unknown, seeds=8, tuned=tuned("weight_decay"))
    assert verdict is Verdict.UNDECIDED
    assert "has no bounds: seeds scatter more than the weight decay matters" in why
    assert "inf" not in why


class TestLawsOfOtherPeople:
    """Sizes that leave their law, and valleys that change shape: how tables of real runs are."""

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("seeds", [1, 3])
    @pytest.mark.parametrize("scatter", [0.1, 0.2])
    def test_sizes_that_scatter_about_their_law(self, seeds, scatter):
        """More seeds do not cure it: with none of it three hold 44 to 74%."""
        rng = np.random.default_rng(5)
        optimum = 0.3 * np.arange(5) + scatter * rng.standard_normal((200, 5))
        world = World(shape="parabola", noise="like real", spacing=0.5, seeds=seeds)
        value, half = drifts(np.arange(5), optima(world.curves(rng, optimum)))
        assert (np.abs(value - 0.3) <= half).mean() >= 0.85

    def test_one_size_six_octaves_off_decides_nothing(self):
        rng = np.random.default_rng(0)
        world = World(shape="parabola", noise="like real", spacing=0.5, seeds=3)
        curves = world.curves(rng, np.array([[-8.0, -8.0, -2.0, -8.0]]))
        value, half = drifts(np.arange(4), optima(curves))
        assert half[0] > abs(value[0]) + TOLERANCE

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("spacing", [0.5, 1.0])
    @pytest.mark.parametrize("looks", [False, True])
    def test_valleys_that_turn_lopsided_with_size(self, spacing, looks):
        """The minimum follows its law. The centre does not: with it alone none is covered."""
        rng, count = np.random.default_rng(3), 150
        rates = np.arange(-7.0, 5.0, spacing) + rng.uniform(0, spacing, (count, 1))
        u = rates[:, None, :, None] - 0.25 * np.arange(5)[:, None, None]
        u = u - 0.05 * rng.standard_normal((count, 1, 1, 3))
        turned = 2.0 ** (0.4 * np.arange(5))[:, None, None]
        valley = 0.07 * np.where(u < 0, 1 / turned, turned) * np.abs(u) ** 1.7
        losses = np.exp(valley + 0.009 * rng.standard_normal(u.shape))
        grid = np.broadcast_to(rates[:, None, :], losses.shape[:-1])
        value, half = (looked_at if looks else drifts)(
            np.arange(5), optima(Curves(log2_lrs=grid, losses=losses))
        )
        assert (np.abs(value - 0.25) <= half).mean() >= 0.88
        assert (np.abs(value) + half <= TOLERANCE).mean() <= 0.05
