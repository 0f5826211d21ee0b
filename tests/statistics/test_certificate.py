"""Certificates, on curves whose truth is known."""

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from valleys import least

from depthmup.posterior.law import Covariances, laws
from depthmup.records import Estimate, Place, Verdict
from depthmup.records.certificate import Certificate, Lack, TargetProbe, compare
from depthmup.statistics import Curves, calibrate, check_asked, curves_of, minima, optima
from depthmup.statistics.directions import Directions
from depthmup.statistics.forecast import Forecast
from studies.coverage import World, two_axes

RATES = np.arange(-8.0, 2.1, 0.5)
DEPTHS = (8, 16, 32, 64)
START = -3.2
QUIET = {"own": 1e-4, "shared": 1e-4, "noise": 1e-6, "lopsided": 0.0}


def size(width, depth):
    return {"width": width, "depth": depth}


def deep(*depths):
    return [size(64, depth) for depth in depths]


SIZES = deep(*DEPTHS)
TARGET = size(64, 256)


def simulated(
    rng,
    best,
    *,
    rates=RATES,
    seeds=4,
    shared=0.05,
    own=0.03,
    noise=0.002,
    curvature=0.15,
    lopsided=0.1,
    softer=0.0,
    falling=0.1,
):
    """Losses (sizes, rates, seeds) with their optima at ``best``.

    Seeds move the optimum of all sizes together (``shared``) and of each (``own``); ``noise``
    scatters single runs; ``softer`` is the exponent by which the curvature falls from one size to
    the next, and the log of the best loss falls by ``falling``.
    """
    together = shared * rng.standard_normal(seeds)
    losses = []
    for i, at in enumerate(best):
        u = rates[:, None] - at - together - own * rng.standard_normal(seeds)
        shape = curvature * 2.0 ** (-softer * i) * u**2 * (1 + lopsided * np.tanh(u))
        losses.append(np.exp(-1 - falling * i + shape + noise * rng.standard_normal(u.shape)))
    return np.array(losses)


def doublings(sizes, base):
    return np.array([[math.log2(s[a] / base[a]) for a in ("depth", "width")] for s in sizes])


def line(slope=-0.1, sizes=SIZES, start=START, bend=0.0, across=0.0, together=0.0):
    """Optima that move by ``slope`` with depth, ``across`` with width, ``together`` with both."""
    x = doublings(sizes, sizes[0])
    return [start + slope * a + bend * a**2 + across * b + together * a * b for a, b in x]


def of(losses, **options):
    given = {"sizes": SIZES, "log2_lrs": RATES, "target": TARGET, **options}
    rates = given.pop("log2_lrs")
    if "early" in given:
        given["early"] = Curves.of(rates, given["early"])
    return calibrate(curves=Curves.of(rates, losses), **given)


def good(seed=0, slope=-0.1, **options):
    if not options:
        return plain(seed, slope)
    return of(simulated(np.random.default_rng(seed), line(slope)), **options)


@cache
def plain(seed, slope):
    """Made once for all tests that compare with it."""
    return of(simulated(np.random.default_rng(seed), line(slope)))


def lacks(certificate):
    return {refusal.lack for refusal in certificate.refusals}


def predicted(losses, sizes, target):
    """The prediction alone."""
    return forecast(Curves.of(RATES, losses), sizes, target)


def forecast(curves, sizes, target):
    """What a certificate predicts, without its costs."""
    found, where = minima(optima(curves), sizes), Directions(base=sizes[0], sizes=sizes)
    return Forecast(found=found, where=where, target=target).optimum(target)


class TestCoverage:
    """Nominal 90% intervals."""

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("depths", [(8, 16, 32), DEPTHS, (4, 8, 16, 32, 64)])
    def test_of_truths_as_the_laws_expect_them(self, depths):
        """Drawn from the prior, of 40 tables nine in ten hold: Cook, Gelman and Rubin (2006)."""
        rng, held, count = np.random.default_rng(len(depths)), 0, 40
        nodes, sizes = laws(several=False), (*depths, 4 * depths[-1])
        weights = np.array([node.weight for node in nodes])
        covariances = Covariances(s=np.log2(np.array(sizes)[:, None] / depths[0]))
        world = World(shape="lopsided", noise="like real", spacing=0.5, seeds=3)
        for number in rng.choice(len(nodes), count, p=weights / weights.sum()):
            covariance = covariances.whole(nodes[number]) + 1e-9 * np.eye(len(sizes))
            best = np.linalg.cholesky(covariance) @ rng.standard_normal(len(sizes))
            curves = world.curves(rng, best[None, :-1])
            curves = Curves(log2_lrs=curves.log2_lrs[0], losses=curves.losses[0])
            p = forecast(curves, [{"depth": d} for d in depths], {"depth": sizes[-1]})
            held += p.low <= best[-1] <= p.high
        assert held / count >= least(0.9, count)

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize(
        "noise", [{"own": 0.01, "shared": 0.2}, {"own": 0.1, "shared": 0.0}, {"lopsided": 0.3}]
    )
    def test_of_a_straight_law_it_is_not_less(self, noise):
        """The prior expects residuals, so that without any the intervals are too wide."""
        rng = np.random.default_rng(7)
        best = np.array(line(-0.5, [*SIZES, TARGET]))
        held = sum(self.holds(rng, best, DEPTHS, 3, **noise) for _ in range(30))
        assert held / 30 >= least(0.9, 30)

    @staticmethod
    def holds(rng, best, depths, seeds, **noise):
        losses = simulated(rng, best[:-1], seeds=seeds, **noise)
        interval = predicted(losses, deep(*depths), size(64, 4 * depths[-1]))
        return interval.low <= best[-1] <= interval.high

    def test_the_interval_grows_with_distance_residuals_and_fewer_sizes(self):
        def width(best, target=TARGET):
            losses = simulated(np.random.default_rng(3), best)
            interval = predicted(losses, SIZES[-len(best) :], target)
            return interval.high - interval.low

        near, far = width(line(), size(64, 128)), width(line(), size(64, 1024))
        assert near < width(line()) < far
        assert width(line()) < 1.0
        assert width(np.add(line(), [0.0, 0.2, -0.2, 0.0])) > 1.5 * width(line())
        assert width(line()[1:]) > width(line())

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("shape", ["parabola", "steep V"])
    def test_of_the_true_minimum_of_other_valleys(self, shape):
        """The learning rate that is handed out."""
        rng, held, count = np.random.default_rng(11), 0, 30
        world = World(shape=shape, noise="like real", spacing=0.5, seeds=4)
        depths = [{"depth": d} for d in (4, 8, 16, 32)]
        for _ in range(count):
            optimum = rng.choice([0.0, 0.1, -0.3]) * np.arange(6)
            curves = world.curves(rng, optimum[None, :4])
            curves = Curves(log2_lrs=curves.log2_lrs[0], losses=curves.losses[0])
            p = forecast(curves, depths, {"depth": 128})
            held += p.low <= optimum[5] <= p.high
        assert held / count >= least(0.9, count)


class TestPrediction:
    def test_a_known_law_is_found(self):
        certificate = good()
        assert certificate.issued
        p = certificate.predicted
        alone = predicted(simulated(np.random.default_rng(0), line()), SIZES, TARGET)
        assert (p.low, p.value, p.high) == (alone.low, alone.value, alone.high)
        # Beyond the largest size, at -0.3, slopes go on or are forgotten.
        assert START - 0.5 - 0.1 <= p.value <= START - 0.3
        assert p.low <= START - 0.5
        assert certificate.slopes[0].axis == "depth"
        assert certificate.slopes[0].estimate.value == approx(-0.1, abs=0.03)

    def test_two_dimensions_are_told_apart(self):
        sizes = [size(w, d) for w in (32, 64, 128) for d in (8, 16, 32)]
        losses = simulated(np.random.default_rng(0), line(-0.3, sizes, across=0.1))
        certificate = of(losses, sizes=sizes, target=size(256, 128))
        nearest, straight = START - 0.3 * 2 + 0.1 * 2, START - 0.3 * 4 + 0.1 * 3
        assert straight - 0.1 <= certificate.predicted.value <= nearest
        assert certificate.predicted.low <= straight
        estimates = {s.axis: s.estimate for s in certificate.slopes}
        for axis, slope in (("width", 0.1), ("depth", -0.3)):
            assert estimates[axis].low <= slope <= estimates[axis].high
            # The mean up to the target: of half of the way at least it is the measured one.
            assert 0.5 <= estimates[axis].value / slope <= 1.2

    def test_any_axes(self):
        """Three axes of any name: the law is the same along each."""
        sizes = [{"tokens": t, "heads": 4, "batch": 32} for t in (1e6, 2e6, 4e6, 8e6)]
        losses = simulated(np.random.default_rng(0), line())
        certificate = of(losses, sizes=sizes, target={"tokens": 3.2e7, "heads": 4, "batch": 32})
        p, at_depth = certificate.predicted, good().predicted
        assert (p.low, p.value, p.high) == approx((at_depth.low, at_depth.value, at_depth.high))
        assert [s.axis for s in certificate.slopes] == ["tokens"]
        assert certificate.predicted.unit == "log2 learning rate at the base"

    def test_a_target_no_larger_than_the_base(self):
        """In one dimension the base is the largest size, and the target has the base's."""
        sizes = [size(16, 2), size(16, 4), size(16, 8), size(32, 8), size(64, 8)]
        losses = simulated(np.random.default_rng(0), line(sizes=sizes))
        certificate = of(losses, sizes=sizes, base=size(16, 8), target=size(256, 8))
        assert certificate.issued
        assert {s.axis for s in certificate.slopes} == {"width", "depth"}

    def test_the_best_loss_of_each_size_is_that_of_its_optimum(self):
        curves = np.array([0.7, 0.6, 0.5, 0.4, 0.3, 0.29, 1.5])
        losses = np.exp(np.stack([curves - 0.01 * i for i in range(4)]))[..., None] * np.ones(3)
        rates = np.arange(-7.0, 0.0)
        certificate = of(losses, log2_lrs=rates)
        levels = np.exp(minima(optima(Curves.of(rates, losses)), SIZES).log_loss)
        assert [o.loss.value for o in certificate.optima] == approx(levels)

    def test_the_order_of_sizes_does_not_matter(self):
        losses = simulated(np.random.default_rng(0), line())
        assert of(losses[::-1], sizes=SIZES[::-1]) == of(losses)

    @settings(max_examples=3, deadline=None)
    @given(st.permutations(range(4)))
    def test_nor_does_that_of_seeds(self, order):
        losses = simulated(np.random.default_rng(0), line())
        one, other = of(losses), of(losses[..., order])
        for name in ("predicted", "penalty", "base_regret", "best_loss"):
            a, b = getattr(one, name), getattr(other, name)
            assert (a.low, a.value, a.high) == approx((b.low, b.value, b.high), abs=1e-6)

    @settings(max_examples=3, deadline=None)
    @given(st.floats(-10, 10), st.floats(0.1, 10))
    def test_the_units_of_rates_and_losses_do_not_matter(self, shift, scale):
        losses = simulated(np.random.default_rng(0), line())
        one, other = of(losses), of(scale * losses, log2_lrs=RATES + shift)
        assert other.predicted.value == approx(one.predicted.value + shift, abs=1e-4)
        assert other.predicted.high == approx(one.predicted.high + shift, abs=1e-4)
        assert other.best_loss.value == approx(scale * one.best_loss.value, rel=1e-4)
        assert other.penalty.high == approx(one.penalty.high, rel=1e-3)

    def test_each_size_on_a_grid_of_its_own_with_seeds_of_its_own(self):
        """Ragged: finer around the optimum at some sizes, fewer seeds at the largest."""
        losses = simulated(np.random.default_rng(0), line())
        coarse = RATES[::2]
        ragged = of(
            [losses[0], losses[1][::2], losses[2][:, :3], losses[3][:, :2]],
            log2_lrs=[RATES, coarse, RATES, RATES],
        )
        assert ragged.issued
        assert ragged.seeds == 2
        assert ragged.log2_lrs == tuple(RATES)
        p = good().predicted
        assert ragged.predicted.value == approx(p.value, abs=(p.high - p.low) / 4)
        assert ragged.predicted.low <= START - 0.5 <= ragged.predicted.high

    def test_a_run_that_was_not_made_changes_little(self):
        losses = simulated(np.random.default_rng(0), line())
        losses[2, int(losses[2].mean(-1).argmin()), 1] = math.nan
        assert of(losses).issued
        assert of(losses).predicted.value == approx(good().predicted.value, abs=0.03)

    def test_a_bend_is_followed(self):
        """Optima that fall and turn: the last slope counts more than the first."""
        best = [-1.7, -1.8, -1.84, -1.8]
        losses = simulated(np.random.default_rng(0), best, own=0.01, shared=0.01)
        straight = np.polyval(np.polyfit(range(4), best, 1), 5)
        assert predicted(losses, SIZES, TARGET).value > straight + 0.03

    def test_regret_and_penalty_of_a_parabola(self):
        """Keeping the base's rate costs c move^2 in log loss, in closed form."""
        for slope in (-0.1, -0.2):
            losses = simulated(np.random.default_rng(0), line(slope), **QUIET)
            certificate = of(losses, target=size(64, 128))
            regret = math.expm1(0.15 * (4 * slope) ** 2)
            assert certificate.base_regret.low <= regret <= certificate.base_regret.high
            # The law expects no more than the straight line does, but for the optima's errors, and
            # the cost is that of its move.
            predicted = certificate.predicted
            move = predicted.value - START
            assert (
                abs(4 * slope) / 2
                < abs(move)
                < abs(4 * slope) + (predicted.high - predicted.low) / 8
            )
            expected = math.expm1(0.15 * move**2)
            assert certificate.base_regret.value == approx(expected, rel=0.1, abs=0.003)
            # 0.15 times the square of 0.6 octaves, which are the law's and the asymmetry's.
            assert certificate.penalty.high < 0.15 * 0.6**2

    def test_robustness_is_the_exponent_of_the_curvature(self):
        losses = simulated(np.random.default_rng(0), line(), softer=0.4, **QUIET)
        certificate = of(losses)
        # Five doublings above the base: c 2^(-0.4 x 5) (0.1 x 5)^2, a half below that of size 4.
        regret = math.expm1(0.15 * 2**-2 * 0.5**2)
        assert certificate.base_regret.low < regret < certificate.base_regret.high
        softer = 5 * certificate.metrics.robustness[0].estimate.value
        move = certificate.predicted.value - START
        expected = math.expm1(0.15 * 2**softer * move**2)
        assert certificate.base_regret.value == approx(expected, rel=0.25)
        losses = simulated(np.random.default_rng(0), line(), softer=0.4)
        exponent = of(losses).metrics.robustness[0].estimate
        assert exponent.low < -0.4 < exponent.high
        assert exponent.value == approx(-0.4, abs=0.1)
        assert not exponent.inside(-10, -0.7)

    def test_base_of_one_learning_rate_beyond_a_wall_is_dear(self):
        losses = simulated(np.random.default_rng(0), line(-1.0, start=-1.0))
        walls = np.array(line(-1.0, start=0.3))[:, None, None]
        losses = np.where(RATES[:, None] > walls, np.inf, losses)
        certificate = of(losses, target=size(64, 128))
        assert certificate.issued
        assert certificate.base_regret.low > 1

    def test_verdicts(self):
        assert good(slope=0.0).verdict is Verdict.TRANSFERS
        assert good(slope=-0.5).verdict is Verdict.DRIFTS
        assert good(slope=-0.15).verdict is Verdict.UNDECIDED

    def test_optima_carry_their_places_and_intervals(self):
        losses = simulated(np.random.default_rng(0), [-3.0, -3.0, -3.0, -8.4])
        measured = of(losses).optima
        assert [o.place for o in measured] == [Place.INTERIOR] * 3 + [Place.LOW_EDGE]
        assert [o.size for o in measured] == SIZES
        assert measured[-1].log2_lr.low == -math.inf
        assert measured[0].log2_lr.low < -3.0 < measured[0].log2_lr.high


STAR = [*(size(16, d) for d in (4, 8, 16, 32)), size(32, 4), size(64, 4)]
CORNER = size(32, 32)


@settings(max_examples=3, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    where=st.integers(0, 3),
    rate=st.floats(-4, 4),
    column=st.integers(0, 2),
    diverged=st.booleans(),
)
def test_a_run_more_takes_no_answer_away(seed, where, rate, column, diverged):
    """Tables of a few runs: one more, of any size and rate, leaves a certificate issued."""
    rng = np.random.default_rng(seed)
    best = np.array(line(-0.1)) + 0.1 * rng.standard_normal(4)

    def loss(i, k):
        return math.exp(-0.1 * i + 0.1 * (k - best[i]) ** 2 + 0.01 * rng.standard_normal())

    table = [
        {float(k): [loss(i, k)] for k in np.round(best[i]) + np.arange(-1.0, 2.0)} for i in range(4)
    ]
    before = calibrate(sizes=SIZES, curves=curves_of(table), target=TARGET)
    assert before.issued
    k = float(np.round(8 * (best[where] + rate)) / 8)
    row = table[where].setdefault(k, [])
    row += [math.nan] * (column + 1 - len(row))
    # What diverges lies above the optimum.
    row[column] = math.inf if diverged and rate > 1.5 else loss(where, k)
    after = calibrate(sizes=SIZES, curves=curves_of(table), target=TARGET)
    assert after.issued
    assert after.predicted.low < after.predicted.value < after.predicted.high


class TestAsymmetry:
    """Valleys whose sides differ, and differ less at larger sizes."""

    def test_a_minimum_that_nears_the_centre_is_held(self):
        """The right side is 3.5, 2.3, 1.5 and 1 times as steep as the left; the minimum stays."""
        u = RATES[:, None] - START - np.array([-0.01, 0.0, 0.01])
        losses = [
            np.exp(-1 - 0.1 * i + 0.1 * np.abs(u) ** 1.5 * np.where(u > 0, 1.5 ** (3 - i), 1.0))
            for i in range(len(SIZES))
        ]
        certificate = of(losses)
        assert certificate.issued
        assert certificate.predicted.low < START < certificate.predicted.high


class TestJointTargets:
    """Targets that grow along two axes: arms that meet at the base do not show what happens."""

    def certified(self, sizes, target, *, together, seed=0):
        best = line(-0.1, sizes, across=0.1, together=together)
        losses = simulated(np.random.default_rng(seed), best, own=0.01, shared=0.02, falling=0.0)
        return of(losses, sizes=sizes, target=target)

    @pytest.mark.parametrize("target", [size(64, 32), size(128, 32), size(32, 64)])
    def test_without_a_corner_they_are_refused(self, target):
        refused = self.certified(STAR, target, together=0.0)
        assert lacks(refused) == {Lack.CORNER}
        assert "grows in width and depth" in refused.refusals[0].reason

    @pytest.mark.parametrize("target", [size(16, 128), size(256, 4)])
    def test_along_one_axis_none_is_needed(self, target):
        assert self.certified(STAR, target, together=0.0).issued

    def test_with_a_corner_the_interaction_is_learned(self):
        """-0.1 octaves per doubling of both: 12 of them to the target, 1.2 octaves lower."""
        sizes, target = [*STAR, CORNER], size(128, 64)
        without, there = (self.certified(sizes, target, together=s) for s in (0.0, -0.1))
        assert without.issued
        assert there.issued
        moved = there.predicted.value - without.predicted.value
        assert moved == approx(-0.1 * 3 * 4, rel=0.25)
        truth = line(-0.1, [STAR[0], target], across=0.1, together=-0.1)[1]
        assert there.predicted.low <= truth <= there.predicted.high

    def test_a_nearer_corner_says_less(self):
        def width(corner):
            interval = self.certified([*STAR, corner], size(128, 64), together=-0.05).predicted
            return interval.high - interval.low

        assert width(size(32, 16)) > width(CORNER) > width(size(64, 32))

    def test_each_pair_of_axes_needs_its_own_corner(self):
        sizes = [{"width": 16, "depth": 4, "batch": 8}]
        sizes += [{**sizes[0], axis: sizes[0][axis] * k} for axis in sizes[0] for k in (2, 4)]
        sizes += [{"width": 32, "depth": 8, "batch": 8}]
        losses = simulated(np.random.default_rng(0), [START] * len(sizes), falling=0.0)
        both = of(losses, sizes=sizes, target={"width": 64, "depth": 16, "batch": 8})
        assert both.issued
        all_three = of(losses, sizes=sizes, target={"width": 64, "depth": 16, "batch": 32})
        reasons = [r.reason for r in all_three.refusals if r.lack is Lack.CORNER]
        assert ["width and batch" in reasons[0], "depth and batch" in reasons[1]] == [True, True]

    @pytest.mark.long(of="coverage")
    @pytest.mark.parametrize("interaction", [0.0, -0.1])
    def test_coverage_with_a_corner(self, interaction):
        """Of the true minimum of the target."""
        rng = np.random.default_rng(12)
        results = []
        for shape in ("parabola", "V"):
            world = World(shape=shape, noise="like real", spacing=0.5, seeds=4)
            results += [two_axes(world, interaction, rng) for _ in range(12)]
        issued = [result for result in results if result.issued]
        assert len(issued) == len(results)
        assert np.mean([result.held for result in issued]) >= least(0.9, len(issued))


class TestProbes:
    """A glance at the target: a scheme that breaks down on the way is seen there alone."""

    @pytest.mark.parametrize(
        ("probe", "refused"),
        [
            ({"initial": 1.1}, False),
            ({"initial": 0.9}, False),
            ({"initial": 1.3}, True),
            ({"initial": math.inf}, True),
            ({"initial": math.nan}, True),
            ({"initial": 1.0, "first_steps": 1.1}, False),
            ({"initial": 1.0, "first_steps": 1.2}, True),
            ({"initial": 1.0, "first_steps": math.inf}, True),
        ],
    )
    def test_what_breaks_down_is_refused(self, probe, refused):
        certificate = good(probe=TargetProbe(size=TARGET, **probe))
        assert lacks(certificate) == ({Lack.BREAKS} if refused else set())

    def test_the_reason_says_what_was_seen_and_where(self):
        small = {"width": 8, "depth": 256}
        (initial,) = good(probe=TargetProbe(size=small, initial=1.34)).refusals
        assert "width 8 depth 256 is 1.34 times the base's" in initial.reason
        (steps,) = good(
            probe=TargetProbe(size=TARGET, initial=1.0, first_steps=1.2, steps=7)
        ).refusals
        assert "After 7 steps" in steps.reason
        assert "1.2 times" in steps.reason

    def test_it_changes_no_number(self):
        probed = good(probe=TargetProbe(size=TARGET, initial=1.05))
        assert probed.predicted == good().predicted
        assert probed.penalty == good().penalty


class TestRefusals:
    """Every planted defect is named, and nothing is predicted."""

    @staticmethod
    def refused(certificate, *expected):
        assert lacks(certificate) == set(expected)
        assert not certificate.issued
        assert not certificate.predicted.known
        assert not certificate.learning_rate.known
        assert certificate.penalty_curve == ()
        assert all(r.reason.endswith(".") and r.advice.endswith(".") for r in certificate.refusals)

    def test_without_a_defect_there_is_none(self):
        """Of 8 good measurements at most one is refused: each test is at 5% beyond a margin."""
        rng = np.random.default_rng(5)
        refused = 0
        for _ in range(8):
            late, early = simulated(rng, line()), simulated(rng, line(-0.12, start=-2.9))
            refused += not of(late, early=early).issued
        assert refused <= 1

    def test_one_size(self):
        losses = simulated(np.random.default_rng(0), line())
        assert Lack.SIZES in lacks(of(losses[:1], sizes=SIZES[:1]))

    def test_two_sizes_are_enough_and_a_third_narrows(self):
        """k sizes that are answered imply that k + 1 are."""
        losses = simulated(np.random.default_rng(0), line())
        halves = []
        for count in range(2, len(SIZES) + 1):
            certificate = of(losses[:count], sizes=SIZES[:count], target=size(64, 32))
            assert certificate.issued
            halves.append(certificate.predicted.high - certificate.predicted.low)
        assert max(halves[1:]) < halves[0] / 1.5

    def test_two_sizes_along_each_of_two_axes(self):
        """A star and its corner fix a law and an interaction, with an interval each."""
        sizes = [size(16, 4), size(16, 8), size(32, 4), size(32, 8)]
        losses = simulated(np.random.default_rng(0), line(sizes=sizes))
        assert of(losses, sizes=sizes, target=size(64, 16)).issued

    def test_one_seed_is_enough(self):
        """How seeds differ is then assumed."""
        losses = simulated(np.random.default_rng(0), line())
        one, four = of(losses[..., :1]), of(losses)
        assert one.issued
        assert one.predicted.low <= START - 0.5 <= one.predicted.high
        # At four times the depth what is not known of the law outweighs what is not known of seeds.
        width = four.predicted.high - four.predicted.low
        assert 0.9 * width < one.predicted.high - one.predicted.low < 2 * width

    def test_one_seed_at_one_size(self):
        losses = list(simulated(np.random.default_rng(0), line()))
        losses[3] = losses[3][:, :1]
        assert of(losses).issued

    @pytest.mark.parametrize("start", [-8.5, 3.0])
    def test_edges_alone_are_never_certified(self, start):
        """No size shows the valley that leads on beyond them."""
        for seed in range(8):
            losses = simulated(np.random.default_rng(seed), line(-0.01, start=start))
            self.refused(of(losses), Lack.EDGE)

    def test_one_size_at_the_edge_makes_the_interval_wider(self):
        """Its valley leads on to it, as those of the others do."""
        best = np.array([-6.5, -7.0, -7.5, -8.2, -9.0])  # the last at twice the largest size
        at_edge, inside = (
            of(
                simulated(np.random.default_rng(0), best[:4], rates=rates),
                log2_lrs=rates,
                target=size(64, 128),
            )
            for rates in (RATES, RATES - 2)
        )
        assert at_edge.optima[3].place is Place.LOW_EDGE
        assert at_edge.issued
        assert at_edge.predicted.low <= -9.0 <= at_edge.predicted.high
        wide, narrow = (p.high - p.low for p in (at_edge.predicted, inside.predicted))
        assert wide > narrow

    def test_beside_a_divergence_an_interval_has_a_width(self):
        losses = simulated(np.random.default_rng(0), line(0.0))
        whole = of(losses)
        losses[2, RATES > -3.1] = np.inf
        walled = of(losses)
        assert walled.issued
        assert walled.predicted.low <= START <= walled.predicted.high
        assert walled.optima[2].log2_lr.high - walled.optima[2].log2_lr.low > 0.05
        assert whole.issued

    def test_nothing_trains(self):
        losses = simulated(np.random.default_rng(0), line())
        losses[-1] = 3.0
        assert Lack.FAILED in lacks(of(losses, chance=math.log(10)))

    def test_noise_above_the_effect_is_no_reason_and_leaves_little_known(self):
        losses = simulated(np.random.default_rng(0), line(), curvature=0.003, noise=0.1)
        certificate = of(losses)
        if certificate.issued:
            assert certificate.verdict is Verdict.UNDECIDED
            assert certificate.predicted.high - certificate.predicted.low > 2

    def test_windows_that_disagree(self):
        rng = np.random.default_rng(0)
        late, early = simulated(rng, line(0.0)), simulated(rng, line(-0.5))
        self.refused(of(late, early=early), Lack.WINDOWS)
        assert of(late, early=late).issued

    def test_a_shift_between_windows_is_no_disagreement(self):
        """Early windows may prefer other rates; the law is the slope."""
        rng = np.random.default_rng(0)
        late, early = simulated(rng, line(0.0)), simulated(rng, line(0.0, start=-1.0))
        assert of(late, early=early).issued

    @pytest.mark.parametrize("along", [SIZES, [size(8 * 4**i, 8 * 4**i) for i in range(4)]])
    def test_optima_that_move_ever_faster_have_a_wider_interval(self, along):
        """A bend, along an axis and along a line of sizes: the next doubling is held."""
        ahead = {axis: 2 * n if n > along[0][axis] else n for axis, n in along[-1].items()}
        doubled = np.log2([s["depth"] / along[0]["depth"] for s in [*along, ahead]])
        bent, straight = (
            START - 0.2 * doubled + bend * doubled**2 / doubled[1] ** 2 for bend in (-0.07, 0.0)
        )
        one, other = (
            of(
                simulated(np.random.default_rng(0), best[:-1], rates=RATES - 2),
                log2_lrs=RATES - 2,
                sizes=along,
                target=ahead,
            ).predicted
            for best in (bent, straight)
        )
        assert one.low <= bent[-1] <= one.high
        assert other.low <= straight[-1] <= other.high
        assert one.high - one.low > other.high - other.low

    @pytest.mark.parametrize("whole", [-1.6, 1.6])
    def test_a_law_that_slows_down_is_certified_with_a_wider_interval(self, whole):
        """Of its slope half is left with every doubling: from 0.8 to 0.2 octaves, then 0.1."""
        far = size(64, 2 * DEPTHS[-1])
        *slowing, truth = START + whole * (1 - 0.5 ** np.arange(len(SIZES) + 1.0))
        for seed in range(3):
            slow, straight = (
                of(simulated(np.random.default_rng(seed), best), target=far).predicted
                for best in (slowing, line(0.0))
            )
            assert slow.low < truth < slow.high
            assert slow.high - slow.low > straight.high - straight.low

    def test_two_values_of_an_axis_have_no_bend(self):
        sizes = [*SIZES, size(128, 8)]
        losses = simulated(np.random.default_rng(0), line(sizes=sizes, across=-1.5), falling=0.0)
        assert of(losses, sizes=sizes).issued
        farther = of(losses, sizes=sizes, target=size(256, 8))
        assert farther.issued

    def test_larger_sizes_that_train_worse(self):
        losses = simulated(np.random.default_rng(0), line())
        losses[-1] *= 1.5
        self.refused(of(losses), Lack.WORSE)
        losses[-1] /= 1.4  # 7% above the trend, and below the size before
        assert of(losses).issued

    def test_an_excess_loss_grows_with_the_narrowness_of_the_valley(self):
        """In a narrow valley an optimum that is uncertain by half an octave costs much."""
        shaken = {"own": 0.15, "noise": 0.0}
        narrow, wide = (
            of(simulated(np.random.default_rng(5), line(), curvature=c, **shaken))
            for c in (2.0, 0.05)
        )
        assert wide.penalty.high < 1
        assert narrow.penalty.high > 5 * wide.penalty.high

    @pytest.mark.parametrize("target", [size(64, 1025), size(64, 10**6)])
    def test_too_far(self, target):
        self.refused(good(target=target), Lack.FAR)
        assert good(target=size(64, 1024)).issued

    def test_a_width_that_was_not_measured(self):
        self.refused(good(target=size(128, 256)), Lack.DIRECTION)

    def test_beside_the_line_of_sizes(self):
        sizes = [size(32, 8), size(64, 16), size(128, 32), size(256, 64)]
        losses = simulated(np.random.default_rng(0), line(sizes=sizes))
        assert of(losses, sizes=sizes, target=size(512, 128)).issued
        self.refused(of(losses, sizes=sizes, target=size(256, 256)), Lack.DIRECTION)

    def test_before_training(self):
        with pytest.raises(ValueError, match="every target to have positive values"):
            check_asked([-3.0, -2.0], size(64, 0))
        with pytest.raises(ValueError, match=r"at least two learning rates.*got \[-3.0\]"):
            check_asked([-3.0], size(64, 8))
        check_asked([-3.0, -2.0], size(64, 8))


class TestFile:
    CERTIFICATES = {
        "issued": lambda: good(
            about={"environment": {"cores": 2}, "config": {"depths": [8, 16]}, "rate_unit": 1 / 64}
        ),
        "refused": lambda: good(target=size(64, 10**6)),
        "infinite": lambda: replace(
            good(), base_regret=Estimate(value=0.1, low=0.0, high=math.inf)
        ),
        "open": lambda: of(simulated(np.random.default_rng(0), [-3.0, -3.0, -3.0, -8.4])),
        "probed": lambda: good(probe=TargetProbe(size=TARGET, initial=math.inf)),
    }

    @pytest.mark.parametrize("kind", CERTIFICATES)
    def test_round_trip(self, kind):
        certificate = self.CERTIFICATES[kind]()
        again = Certificate.from_json(certificate.to_json())
        assert again.to_json() == certificate.to_json()
        # NaN differs from itself: what is unknown is compared by its text alone.
        assert replace(again, **self.plain(certificate)) == certificate

    @staticmethod
    def plain(certificate):
        """Parts that may hold NaN, or a list for a tuple."""
        names = tuple(
            {"optima", "config", "environment", "probe"} & set(Certificate.__dataclass_fields__)
        )
        if not certificate.issued:
            names += ("predicted", "penalty", "base_regret", "best_loss")
        return {name: getattr(certificate, name) for name in names}

    def test_it_is_strict_json_with_sizes_by_axis(self):
        raw = json.loads(
            replace(good(), base_regret=Estimate(value=math.nan, low=-math.inf, high=math.inf))
            .to_json(),
            parse_constant=pytest.fail,
        )  # fmt: skip
        assert raw["schema"] == 3
        assert raw["target"] == {"width": 64, "depth": 256}
        assert [o["size"] for o in raw["optima"]] == SIZES
        regret = raw["base_regret"]
        assert (regret["low"], regret["value"], regret["high"]) == ("-Infinity", None, "Infinity")
        read = Certificate.from_json(json.dumps(raw)).base_regret
        assert (read.low, read.high) == (-math.inf, math.inf)
        assert math.isnan(read.value)

    def test_what_lacks_a_field_is_refused(self):
        with pytest.raises(ValueError, match="it lacks base"):
            Certificate.from_json('{"schema": 3}')

    @pytest.mark.parametrize("schema", [2, 99])
    def test_another_schema_is_refused(self, schema):
        text = good().to_json().replace('"schema": 3', f'"schema": {schema}')
        with pytest.raises(ValueError, match=f"schema version 3; got {schema}"):
            Certificate.from_json(text)
        with pytest.raises(ValueError, match="schema version"):
            Certificate.from_json("[]")

    def test_the_learning_rate_is_in_the_users_unit(self):
        certificate = good(about={"rate_unit": 1 / 64})
        assert certificate.learning_rate.value == approx(2**certificate.predicted.value / 64)


class TestCompare:
    def test_of_one_code(self):
        change = compare(good(), good(seed=1, slope=-0.3))
        assert change.octaves == approx(-1.0, abs=0.2)
        assert change.loss.low < 0 < change.loss.high

    def test_answers_to_different_questions_are_compared_with_a_word(self):
        tokens, decay = "the tokens are held.", "Nothing moves."
        asked = [
            good(about={"config": {"question": question}})
            for question in ([tokens, decay], [tokens, "Decay follows."])
        ]
        change = compare(*asked)
        assert change.questions == ("The first: Nothing moves.", "The second: Decay follows.")
        assert compare(asked[0], asked[0]).questions == compare(good(), good()).questions == ()

    def test_different_code_is_refused(self):
        with pytest.raises(ValueError, match="same code; they differ in model: 'a' and 'b'"):
            compare(good(about={"model": "a"}), good(about={"model": "b"}))
        newer = replace(good(), code={**good().code, "depthmup": "99"})
        with pytest.raises(ValueError, match="they differ in depthmup"):
            compare(good(), newer)

    def test_different_targets_and_refused_ones(self):
        with pytest.raises(ValueError, match="same target"):
            compare(good(), good(target=size(64, 128)))
        refused = good(target=size(64, 10**6))
        with pytest.raises(ValueError, match="was refused"):
            compare(refused, refused)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"losses": np.ones((4, 3, 2))}, "shape"),
        ({"losses": -np.ones((4, len(RATES), 2))}, "positive"),
        ({"losses": np.ones((3, len(RATES), 2))}, "losses of 4 sizes; got 3"),
        ({"losses": np.ones((5, len(RATES), 2))}, "losses of 4 sizes; got 5"),
        ({"early": np.ones((4, 3, 2))}, "shape"),
        ({"early": np.ones((3, len(RATES), 4))}, r"got \[4, 4, 4\] seeds, and \[4, 4, 4, 4\] late"),
        ({"early": np.ones((4, len(RATES), 2))}, "seeds"),
        ({"sizes": [size(64, 0), *SIZES[1:]]}, "positive"),
        ({"sizes": [SIZES[1], *SIZES[1:]]}, "once"),
        ({"sizes": [{"depth": 8}, *SIZES[1:]]}, "axes"),
        ({"target": {"depth": 256}}, "axes"),
        ({"base": {"depth": 8}}, "axes"),
        ({"log2_lrs": RATES[::-1]}, "increasing"),
        ({"target": size(64, -1)}, "target"),
        ({"target": {}}, "target"),
        ({"sizes": [], "losses": []}, "0 sizes"),
    ],
)
def test_what_is_no_measurement_is_an_error(change, message):
    given = {"losses": simulated(np.random.default_rng(0), line()), **change}
    with pytest.raises(ValueError, match=message):
        of(**given)
