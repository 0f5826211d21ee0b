"""Curves one by one, and their minima: exact where they can be, true where valleys are lopsided."""

from math import inf, log, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from valleys import NAMES, SHAPES, doubling, fitted, found

from depthmup.records import Place
from depthmup.statistics import Curves, measured, minima, optima
from depthmup.statistics.along import along_axis
from depthmup.statistics.runs import Runs

universal = settings(max_examples=40, deadline=None)
few = settings(max_examples=5, deadline=None)
"""Of properties of the posterior, a quarter of a second each."""

X = np.arange(-7.0, 1.0)
HALF = np.arange(-7.0, 1.0, 0.5)
offsets = st.floats(-1.5, 1.5)


class TestParabolas:
    @settings(max_examples=15, deadline=None)
    @given(offsets, st.floats(0.02, 1.0), st.floats(0.25, 1.3), offsets)
    def test_are_found_exactly(self, minimum, curvature, spacing, level):
        rates = spacing * np.arange(-6, 7)
        minimum = minimum * spacing
        fit = fitted(rates, curvature * (rates - minimum) ** 2 + level)
        assert fit.centre[0] == approx(minimum, abs=1e-6)
        # A valley is a parabola as far as its priors let it.
        valley, bandwidth = minima(fit, doubling(1)), max(2.0, 2.5 * spacing)
        assert valley.at[0] == approx(minimum, abs=0.05 * bandwidth)
        best = measured(valley, doubling(1))[0].log2_lr
        assert best.low < minimum < best.high
        assert valley.log_loss[0] == approx(level, abs=0.02 * curvature * bandwidth**2)
        assert fit.places() == (Place.INTERIOR,)

    def test_with_uneven_spacing(self):
        rates = np.array([-4.0, -2.5, -2.0, 0.0])
        assert fitted(rates, (rates + 2.3) ** 2).centre[0] == approx(-2.3)

    def test_with_three_points(self):
        rates = np.array([-4.0, -3.0, -2.0])
        fit = fitted(rates, 0.3 * (rates + 2.8) ** 2 - 1)
        assert fit.centre[0] == approx(-2.8)

    @pytest.mark.parametrize("gone", [0, 1, 6, 7])
    @pytest.mark.parametrize("what", [nan, inf])
    def test_a_gap_far_away_moves_nothing(self, gone, what):
        losses = 0.3 * (X + 3.1) ** 2
        losses[gone] = what
        assert fitted(X, losses).centre[0] == approx(-3.1)


class TestPlaces:
    @pytest.mark.parametrize(("slope", "place"), [(1.0, Place.LOW_EDGE), (-1.0, Place.HIGH_EDGE)])
    def test_edges(self, slope, place):
        assert fitted(X, slope * X).places() == (place,)

    @pytest.mark.parametrize("side", [0, -1])
    def test_rates_that_were_not_tried_are_no_part_of_the_grid(self, side):
        losses = np.where(X[side] == X, nan, np.abs(X - X[side]))
        place = Place.LOW_EDGE if side == 0 else Place.HIGH_EDGE
        assert fitted(X, losses).places() == (place,)

    def test_nothing_trains(self):
        assert fitted(X, np.full(8, inf)).places() == (Place.FAILED,)

    def test_a_size_that_only_guesses_has_failed(self):
        guesses = log(2.5) + 0.01 * (X + 3) ** 2
        assert fitted(X, guesses, chance=log(10)).places() == (Place.FAILED,)
        assert fitted(X, guesses).places() == (Place.INTERIOR,)

    def test_a_rate_at_which_one_seed_diverges_is_not_chosen(self):
        losses = np.exp(0.1 * (X[:, None] + 2.0) ** 2 - 1 + np.zeros(3))
        losses[5, 1] = inf  # log2 rate -2, the best one
        assert optima(Curves.of(X, [losses])).centre[0] in (-3.0, -1.0)


class TestBesideADivergence:
    RISING = np.where(X > -3, inf, -X)

    def test_the_lowest_point_itself(self):
        fit = fitted(X, self.RISING)
        assert (fit.centre[0], fit.places()) == (-3, (Place.INTERIOR,))
        assert fit.wall[0]

    def test_its_error_is_about_half_of_the_spacing(self):
        """It lies between the last rates, where all that is known is that the loss still falls."""
        for spacing in (0.5, 1.0):
            posterior = minima(fitted(spacing * X, self.RISING), doubling(1)).posterior
            assert 0.1 * spacing < posterior.deviation[0] < spacing

    def test_a_rate_that_was_not_tried_is_no_divergence(self):
        """The next one that was tried is the neighbour, and the valley is fitted across."""
        losses = 0.1 * (HALF + 3.2) ** 2
        gap = np.where(HALF == -2.5, nan, losses)
        assert fitted(HALF, gap).centre[0] == approx(-3.2)
        assert not fitted(HALF, gap).wall[0]
        assert fitted(HALF, np.where(HALF == -2.5, inf, losses)).wall[0]

    def test_a_wall_three_steps_away_leaves_a_parabola_and_a_larger_error(self):
        losses = 0.1 * (X + 4.0) ** 2
        cut, whole = (found(X, y) for y in (np.where(X > -2.5, inf, losses), losses))
        assert cut.fitted.centre[0] == approx(-4)
        assert cut.posterior.deviation[0] > whole.posterior.deviation[0]


class TestBesideAWall:
    """A steep rise on one side: a parabola would dive on the other."""

    LOSSES = np.log([2.9, 2.75, 2.65, 2.58, 2.52, 2.495, 8.0, 50.0])  # of a real decoder, about

    @pytest.mark.parametrize("wall", [8.0, 1e3, 1e12])
    @pytest.mark.parametrize("mirrored", [False, True])
    def test_the_best_loss_is_not_below_what_a_convex_curve_can_be(self, mirrored, wall):
        """The closed form: the line through the two points before, up to the lowest point."""
        curve = np.append(self.LOSSES[:6], np.log([wall, 2 * wall]))
        rates, losses = (-X[::-1], curve[::-1]) if mirrored else (X, curve)
        level = found(rates, losses).log_loss[0]
        line = self.LOSSES[4] + (self.LOSSES[4] - self.LOSSES[3])
        assert line <= level <= self.LOSSES[5] + 0.01
        left, right = np.diff(curve)[4:6]
        dive = self.LOSSES[5] - (right + left) ** 2 / (8 * (right - left))
        assert dive < line - 0.08  # what the parabola alone would say

    def test_a_wall_that_is_seen_through_a_coarse_grid(self):
        """A valley whose second difference is 0.04 ends at a wall: the fit errs by no more."""
        for offset in np.linspace(0, 0.95, 20):
            rates = X + offset
            curve = 0.02 * (rates + 2.0) ** 2 + np.exp(np.minimum(6 * (rates + 1.2), 5))
            assert -0.04 <= found(rates, curve).log_loss[0] <= curve.min() + 0.01

    def test_nothing_costs_less_than_the_best(self):
        """Excess losses are not negative, for convex curves and for any others."""
        rng = np.random.default_rng(3)
        for _ in range(25):
            rates = np.cumsum(rng.uniform(0.3, 1.5, 8))
            curve = rng.standard_normal(8) * rng.choice([0.1, 1, 10])
            if rng.uniform() < 0.5:
                curve = np.cumsum(np.sort(curve) * rng.exponential(1, 8))
            valley = found(rates, curve)
            if valley.fitted.places() != (Place.INTERIOR,):
                continue
            octaves = np.linspace(rates[0], rates[-1], 97) - valley.at[0]
            assert (valley.excess(0, octaves) >= 0).all()
            assert valley.excess(0, [0.0])[0] == approx(0, abs=1e-9)


SHIFTS = 0.1 * np.arange(5)


def errors(name, spacing, phase):
    """Minima less the true ones, of five sizes whose grids see their valleys differently."""
    rates = np.arange(-5.0, 5.1, spacing) + phase * spacing
    return found(rates, *(SHAPES[name](rates - at) for at in SHIFTS)).at - SHIFTS


@pytest.mark.parametrize(
    ("name", "half_octave", "octave", "slope"),
    [
        ("parabola", 0.015, 0.03, 0.007),
        ("lopsided", 0.015, 0.035, 0.007),
        ("V", 0.03, 0.06, 0.008),
        ("steep V", 0.05, 0.2, 0.025),
        ("wall", 0.4, 0.4, 0.04),
    ],
)
def test_the_true_minimum_at_every_phase_of_the_grid(name, half_octave, octave, slope):
    """The centre alone errs by up to 0.4. Beside a wall all minima err alike, and no slope."""
    phases = np.linspace(0, 1, 4, endpoint=False)
    for spacing, most in ((0.5, half_octave), (1.0, octave)):
        found_errors = np.array([errors(name, spacing, phase) for phase in phases])
        assert np.abs(found_errors).max() < most
        assert np.abs(found_errors @ (np.arange(5) - 2) / 10).max() < slope


def test_the_centre_alone_misses_the_minimum_of_a_lopsided_valley():
    valley = found(HALF, *(SHAPES["steep V"](HALF + 3.3 - shift) for shift in SHIFTS))
    assert valley.fitted.centre[0] < -3.3 - 0.1
    assert valley.at[0] == approx(-3.3, abs=0.05)


def noisy(seed, name="lopsided", sizes=3, seeds=3):
    """Losses (sizes, rates, seeds) around minima near -3, quiet enough to have a valley."""
    rng = np.random.default_rng(seed)
    best = -3 + rng.uniform(-0.5, 0.5, (sizes, 1, seeds))
    scatter = 0.005 * rng.standard_normal((sizes, len(HALF), seeds))
    return np.exp(SHAPES[name](HALF[:, None] - best) + scatter)


def same(one, other, *, shift=0.0, level=0.0):
    """Two fits whose rates and losses were counted from elsewhere."""
    assert other.centre == approx(one.centre + shift, abs=1e-4)
    valleys = [minima(part, doubling(len(part.centre))) for part in (one, other)]
    first, second = (valley.posterior for valley in valleys)
    assert second.minimum == approx(first.minimum + shift, abs=2e-4)
    assert second.deviation == approx(first.deviation, rel=0.01)
    assert second.level == approx(first.level + level, abs=1e-4)
    assert second.mode.fit.shape[0] == approx(first.mode.fit.shape[0], abs=1e-2)


class TestInvariances:
    """Universal: what the user counts from, or lists first, changes nothing else."""

    @few
    @given(st.integers(0, 10**6), st.sampled_from(NAMES), st.integers(-80, 80))
    def test_a_shift_of_rates_shifts_the_optimum(self, seed, name, eighths):
        losses = noisy(seed, name)
        one = optima(Curves.of(HALF, losses))
        same(one, optima(Curves.of(HALF + eighths / 8, losses)), shift=eighths / 8)

    @few
    @given(st.integers(0, 10**6), st.sampled_from(NAMES), st.floats(0.01, 100))
    def test_a_scale_of_losses_scales_the_best_loss(self, seed, name, scale):
        losses = noisy(seed, name)
        one = optima(Curves.of(HALF, losses))
        same(one, optima(Curves.of(HALF, scale * losses)), level=log(scale))

    @few
    @given(st.integers(0, 10**6), st.permutations(range(3)))
    def test_the_order_of_seeds(self, seed, order):
        losses = noisy(seed)
        one, other = (optima(Curves.of(HALF, some)) for some in (losses, losses[..., order]))
        assert other.centre == approx(one.centre)
        same(one, other)

    @few
    @given(st.integers(0, 10**6), st.permutations(range(3)))
    def test_the_order_of_sizes(self, seed, order):
        losses = noisy(seed)
        one, other = (optima(Curves.of(HALF, some)) for some in (losses, losses[order]))
        assert other.centre == approx(one.centre[order])
        sizes = doubling(3)
        moved = minima(other, [sizes[i] for i in order])
        assert moved.at == approx(minima(one, sizes).at[order], abs=1e-4)

    @universal
    @given(st.integers(0, 10**6))
    def test_each_size_alone_has_the_same_centre(self, seed):
        losses = noisy(seed)
        together = optima(Curves.of(HALF, losses)).centre
        alone = [optima(Curves.of(HALF, losses[i : i + 1])).centre[0] for i in range(3)]
        assert together == approx(alone, abs=1e-5)

    @few
    @given(st.integers(0, 10**6), st.integers(0, 6), st.integers(0, 6))
    def test_rates_that_no_run_was_made_at(self, seed, before, after):
        """Empty rows, at the grid's ends or between its points, say nothing."""
        losses = noisy(seed)
        rates = np.concatenate([[-9.0], HALF, [4.0], HALF[before : after + 1] + 0.2])
        empty = np.full((3, len(rates) - len(HALF), 3), nan)
        padded = np.concatenate([empty[:, :1], losses, empty[:, 1:]], axis=1)
        order = np.argsort(rates)
        same(
            optima(Curves.of(HALF, losses)),
            optima(Curves.of(rates[order], padded[:, order])),
        )

    def test_experiments_side_by_side(self):
        """Leading axes are independent: each is what it is alone."""
        losses = np.stack([noisy(0), noisy(1)])
        grid = np.broadcast_to(HALF, (2, 3, len(HALF)))
        both = optima(Curves(log2_lrs=grid, losses=losses))
        for i in range(2):
            alone = optima(Curves.of(HALF, losses[i]))
            assert both.centre[i] == approx(alone.centre, abs=1e-5)


class TestExcess:
    def test_of_a_parabola_is_the_parabola(self):
        octaves = np.array([-3.0, -1.5, -0.5, -0.2, 0.0, 0.3, 0.5, 1.5, 2.5])
        excess = found(HALF, 0.2 * (HALF + 3) ** 2 - 1).excess(0, octaves)
        assert excess == approx(0.2 * octaves**2, abs=0.02 * 0.2 * 2**2)

    def test_it_goes_on_beyond_the_grid(self):
        excess = found(HALF, 0.2 * (HALF + 3) ** 2).excess(0, [-20.0, -5.0, 4.0, 20.0])
        assert excess[0] > excess[1] > 0
        assert excess[3] > excess[2] > 0

    def test_it_is_infinite_from_the_last_rate_before_a_divergence(self):
        valley = found(HALF, np.where(HALF > -1, inf, 0.2 * (HALF + 3) ** 2))
        beyond = -1.0 - valley.at[0]
        assert np.isinf(valley.excess(0, [beyond + 0.1, 10.0])).all()
        assert np.isfinite(valley.excess(0, [beyond - 0.1])).all()

    def test_a_kink_costs_what_a_kink_costs(self):
        """A parabola at the bottom of a V would call a small error ten times cheaper."""
        valley = found(HALF, *(SHAPES["V"](HALF + 3.2 - shift) for shift in SHIFTS))
        assert valley.excess(0, [-0.3, 0.3]) == approx([0.039, 0.039], rel=0.3)
        # Rounded by a twentieth of the bandwidth: half of a kink's cost at a tenth of an octave.
        assert (valley.excess(0, [-0.1, 0.1]) > 0.005).all()

    def test_an_optimum_at_an_edge_has_no_excess_loss(self):
        with pytest.raises(ValueError, match="inside the grid"):
            found(X, X).excess(0, [0.0])


def test_seeds_of_a_size_that_never_trains_say_nothing_of_the_others():
    """Of such a size a search asks for one seed; the others' errors stay those of their seeds."""
    noise = np.random.default_rng(0).normal(size=(3, 8, 4))
    losses = [np.exp(0.2 * (X[:, None] + 3.2) ** 2 + 0.1 * of_size) for of_size in noise]
    never = np.where(np.arange(4) > 0, nan, inf) + np.zeros((8, 1))

    def of(trained):
        sizes = tuple({"depth": 2.0**i} for i in range(len(trained)))
        curves = Curves.of([X] * len(trained), trained)
        along = along_axis(Runs(name="", title="", sizes=sizes, curves=curves), "depth")
        return [optimum.log2_lr.high for optimum in along.optima[:3]]

    assert of([*losses, never]) == approx(of(losses))
