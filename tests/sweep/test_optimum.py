"""The statistics, on curves whose truth is known."""

from math import inf, isinf, log, nan

import numpy as np
import pytest
from pytest import approx

from depthmup.records import Estimate, Optimum, Place, Verdict
from depthmup.statistics import (
    drift,
    jackknife,
    judge,
    log_loss_at,
    optimum,
    regret,
    vertex,
)

LRS = tuple(float(k) for k in range(-7, 1))
DEPTHS = (8, 16, 32, 64, 128)
X = np.asarray(LRS)


def simulated(true_drift, rng, *, seeds, lopsided=0.15, noise=0.01, wobble=0.1):
    """Losses whose optimum moves by ``true_drift`` octaves per doubling, (depths, lrs, seeds).

    Noise as it is in training: every (depth, seed) has an optimum of its own (``wobble``), shifts
    of a seed are shared by its depths, and single runs scatter. ``lopsided`` curves rise faster
    on one side.
    """
    of_seed = wobble * rng.standard_normal(seeds)
    losses = np.empty((len(DEPTHS), len(LRS), seeds))
    for d in range(len(DEPTHS)):
        best = -3.4 + true_drift * d + of_seed + wobble * rng.standard_normal(seeds)
        away = X[:, None] - best
        shape = 0.12 * away**2 * (1 + lopsided * np.tanh(away))
        scatter = noise * rng.standard_normal(shape.shape)
        losses[d] = np.exp(-1.5 + shape + scatter + 0.1 * rng.standard_normal(seeds))
    return losses


class TestVertex:
    def test_a_parabola_is_found_exactly(self):
        found = vertex(LRS, 0.3 * (X + 2.7) ** 2 - 1)
        assert (found.at, found.log_loss, found.place) == (approx(-2.7), approx(-1), Place.INTERIOR)

    def test_uneven_spacing(self):
        lrs = [-4.0, -2.5, -2.0, 0.0]
        assert vertex(lrs, (np.asarray(lrs) + 2.3) ** 2).at == approx(-2.3)

    @pytest.mark.parametrize(("slope", "place"), [(1.0, Place.LOW_EDGE), (-1.0, Place.HIGH_EDGE)])
    def test_edges(self, slope, place):
        assert vertex(LRS, slope * X).place is place

    def test_next_to_divergence_the_lowest_point_itself(self):
        found = vertex(LRS, np.where(X > -3, inf, -X))
        assert (found.at, found.place) == (-3, Place.INTERIOR)

    def test_nothing_trains(self):
        assert vertex(LRS, np.full(8, inf)).place is Place.FAILED

    def test_a_gap_left_by_one_diverged_rate_does_not_move_the_lowest_point(self):
        losses = 0.3 * (X + 3.0) ** 2
        losses[0] = inf
        assert vertex(LRS, losses).at == approx(-3.0)


class TestBesideAWall:
    """A steep rise on one side: the parabola would dive on the other."""

    LOSSES = np.log([2.9, 2.75, 2.65, 2.58, 2.52, 2.495, 8.0, 50.0])  # of a real decoder, about

    @pytest.mark.parametrize("wall", [8.0, 1e3, 1e12])
    @pytest.mark.parametrize("mirrored", [False, True])
    def test_the_best_loss_is_not_below_what_a_convex_curve_can_be(self, mirrored, wall):
        """The closed form: the line through the two points before, up to the lowest point."""
        curve = np.append(self.LOSSES[:6], np.log([wall, 2 * wall]))
        lrs, losses = (-X[::-1], curve[::-1]) if mirrored else (X, curve)
        found = vertex(list(lrs), losses)
        line = self.LOSSES[4] + (self.LOSSES[4] - self.LOSSES[3])
        assert line <= found.log_loss <= self.LOSSES[5]
        left, right = np.diff(curve)[4:6]
        dive = self.LOSSES[5] - (right + left) ** 2 / (8 * (right - left))
        assert dive < line - 0.08  # what the parabola alone would say

    def test_nothing_nearby_is_below_the_best(self):
        """Regrets are not negative, for convex curves and for any others."""
        rng = np.random.default_rng(3)
        for _ in range(300):
            x = np.cumsum(rng.uniform(0.3, 1.5, 8))
            curve = rng.standard_normal(8) * rng.choice([0.1, 1, 10])
            if rng.uniform() < 0.5:
                curve = np.cumsum(np.sort(curve) * rng.exponential(1, 8))
            found = vertex(list(x), curve)
            if found.place is not Place.INTERIOR:
                continue
            center = int(np.argmin(curve))
            nearby = np.linspace(x[center - 1], x[center + 1], 97)
            values = [log_loss_at(list(x), curve, at) for at in nearby]
            assert found.log_loss <= min(values) + 1e-12
            assert found.log_loss == approx(min(values), abs=2e-2 * np.ptp(values))
            assert log_loss_at(list(x), curve, x[center]) == approx(curve[center])

    @pytest.mark.parametrize("steeper", [-1e-9, 0.0, 1e-9, 0.1])
    def test_where_the_way_down_is_not_convex_nothing_is_below_what_was_measured(self, steeper):
        curve = np.array([0.6, 0.5, 0.4, 0.3 - steeper, 1.5, 3.0])
        found = vertex(LRS[:6], curve)
        assert found.log_loss == approx(curve[3], abs=1e-8)

    def test_regret_of_a_size_against_itself_is_nothing(self):
        rng = np.random.default_rng(4)
        losses = np.exp(self.LOSSES[:, None] + 0.01 * rng.standard_normal((8, 4)))
        found = regret(LRS, losses, losses)
        assert (found.value, found.low, found.high) == approx((0, 0, 0), abs=1e-12)

    def test_a_wall_that_is_seen_through_a_coarse_grid(self):
        """A valley whose second difference is 0.04 ends at a wall: the line errs by no more."""
        for offset in np.linspace(0, 0.95, 20):
            x = X + offset
            curve = 0.02 * (x + 2.0) ** 2 + np.exp(6 * (x + 1.2))
            assert -0.04 <= vertex(list(x), curve).log_loss <= curve.min()


class TestJackknife:
    def test_of_a_mean_is_the_t_interval(self):
        """The closed form: mean +- t_{S-1} s / sqrt(S)."""
        sample = np.array([1.0, 2.0, 4.0, 4.5])
        found = jackknife(lambda some: float(some.mean()), sample)
        half = 3.182446305284263 * sample.std(ddof=1) / 2
        assert (found.value, found.low, found.high) == approx(
            (sample.mean(), sample.mean() - half, sample.mean() + half)
        )

    def test_one_seed_gives_no_interval(self):
        found = jackknife(lambda some: float(some.mean()), np.array([1.0]))
        assert (found.value, found.low, found.high) == (1.0, -inf, inf)

    def test_a_seed_that_decides_whether_it_exists_leaves_it_unbounded(self):
        found = jackknife(
            lambda some: float(some.mean()) if len(some) > 2 else nan, np.array([1.0, 2.0, 3.0])
        )
        assert found.value == 2.0
        assert isinf(found.low)


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("true_drift", [0.0, -0.5, 0.2])
@pytest.mark.parametrize("lopsided", [0.0, 0.3])
def test_coverage_of_the_drift_interval(seeds, true_drift, lopsided):
    """A nominal 95% interval holds the truth in at least 90% of 400 experiments.

    At 95% true coverage the chance to see fewer than 90% is 2e-5.
    """
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        losses = simulated(true_drift, rng, seeds=seeds, lopsided=lopsided)
        found = drift(DEPTHS, LRS, losses)
        held += found.low <= true_drift <= found.high
    assert held >= 360


def test_the_interval_is_not_vacuous():
    """It is proportional to the noise, and at the noise of real runs far below the tolerance."""
    rng = np.random.default_rng(1)

    def width(wobble):
        losses = simulated(0, rng, seeds=5, wobble=wobble, noise=0.001)
        found = drift(DEPTHS, LRS, losses)
        return found.high - found.low

    quiet, loud = (np.median([width(wobble) for _ in range(100)]) for wobble in (0.02, 0.1))
    assert quiet == approx(loud / 5, rel=0.5)
    assert loud < 0.3


@pytest.mark.parametrize(
    ("true_drift", "verdict"),
    [(0.0, Verdict.TRANSFERS), (-0.5, Verdict.DRIFTS), (0.5, Verdict.DRIFTS)],
)
def test_clear_cases_are_decided_and_decided_right(true_drift, verdict):
    rng = np.random.default_rng(2)
    verdicts = [judged(simulated(true_drift, rng, seeds=5, wobble=0.05)) for _ in range(50)]
    assert verdicts.count(verdict) >= 45
    opposite = {Verdict.TRANSFERS, Verdict.DRIFTS} - {verdict}
    assert not opposite & set(verdicts)


def judged(losses):
    optima = [
        optimum(depth, LRS, of_depth, chance=log(10))
        for depth, of_depth in zip(DEPTHS, losses, strict=True)
    ]
    return judge(optima, drift(DEPTHS, LRS, losses), seeds=losses.shape[-1])[0]


def test_a_drift_on_the_tolerance_is_undecided():
    rng = np.random.default_rng(3)
    verdicts = [judged(simulated(0.15, rng, seeds=5)) for _ in range(50)]
    assert verdicts.count(Verdict.UNDECIDED) >= 40


@pytest.mark.parametrize("shift", [-4.5, 4.5])
def test_an_optimum_at_the_edge_is_never_called_transfer(shift):
    rng = np.random.default_rng(4)
    for _ in range(100):
        assert judged(_shifted(rng, shift)) is Verdict.UNDECIDED


def _shifted(rng, shift):
    """All optima beyond one end of the grid: the same at every depth, so the slope is zero."""
    away = X[:, None] - (-3.5 + shift) + 0.05 * rng.standard_normal(5)
    return np.exp(-1.5 + 0.1 * np.stack([away**2] * len(DEPTHS)))


class TestRegret:
    def test_closed_form(self):
        base = np.exp(0.1 * (X[:, None] + 3.0) ** 2 - 1 + np.zeros(3))
        target = np.exp(0.1 * (X[:, None] + 3.5) ** 2 - 2 + np.zeros(3))
        found = regret(LRS, base, target)
        assert found.value == approx(np.exp(-2) * (np.exp(0.1 * 0.25) - 1))
        assert found.low == approx(found.value)

    def test_it_is_never_negative(self):
        rng = np.random.default_rng(5)
        for _ in range(100):
            losses = simulated(0.1, rng, seeds=3)
            assert regret(LRS, losses[0], losses[-1]).value >= 0

    def test_it_is_infinite_where_the_transferred_rate_diverges(self):
        base = np.exp(0.1 * (X[:, None] + 3.0) ** 2 + np.zeros(3))
        target = np.where(X[:, None] > -5, inf, base)
        assert regret(LRS, base, target).value == inf

    def test_between_points_far_from_the_optimum_the_curve_is_linear(self):
        values = 0.1 * (X + 6.0) ** 2
        assert log_loss_at(LRS, values, -1.5) == approx((values[5] + values[6]) / 2)
        assert log_loss_at(LRS, values, -5.8) == approx(0.1 * 0.04)


class TestJudge:
    @staticmethod
    def at(place=Place.INTERIOR, depth=8):
        known = Estimate(value=-3, low=-3.1, high=-2.9)
        return Optimum(depth=depth, log2_lr=known, loss=known, place=place)

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
        found, why = judge([self.at(), self.at(depth=16)], self.between(*interval), seeds=5)
        assert found is verdict
        assert "octaves" in why

    @pytest.mark.parametrize(
        ("place", "advice"),
        [
            (Place.LOW_EDGE, "extend it downwards (depth 16)"),
            (Place.HIGH_EDGE, "upwards (depth 16)"),
        ],
    )
    def test_an_edge_says_which_way(self, place, advice):
        optima = [self.at(), self.at(place, 16)]
        found, why = judge(optima, self.between(-0.01, 0.01), seeds=5)
        assert found is Verdict.UNDECIDED
        assert advice in why

    def test_a_depth_that_does_not_train_is_no_transfer(self):
        optima = [self.at(), self.at(depth=16), self.at(Place.FAILED, 32)]
        found, why = judge(optima, self.between(-0.01, 0.01), seeds=5)
        assert found is Verdict.UNDECIDED
        assert "At depth 32 no learning rate trains" in why
        found, why = judge(optima, self.between(-2.1, -1.9), seeds=5)
        assert found is Verdict.DRIFTS
        assert "At depth 32 no learning rate trains" in why

    def test_one_seed_is_too_few(self):
        found, why = judge([self.at(), self.at()], self.between(0, 0), seeds=1)
        assert found is Verdict.UNDECIDED
        assert "One seed" in why

    def test_one_depth_is_too_few(self):
        nothing = Estimate(value=nan, low=nan, high=nan)
        assert judge([self.at()], nothing, seeds=5)[0] is Verdict.UNDECIDED


def test_a_depth_that_only_guesses_has_failed():
    losses = np.full((8, 3), 2.5)
    assert optimum(8, LRS, losses, chance=log(10)).place is Place.FAILED
    assert optimum(8, LRS, np.full((8, 3), inf), chance=log(10)).place is Place.FAILED


def test_a_rate_at_which_one_seed_diverges_is_not_chosen():
    losses = np.exp(0.1 * (X[:, None] + 2.0) ** 2 - 1 + np.zeros(3))
    losses[5, 1] = inf  # log2 rate -2, the best one
    found = optimum(8, LRS, losses, chance=log(10))
    assert found.log2_lr.value in (-3.0, -1.0)
