"""Certificates, on curves whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from depthmup.sweep.calibrate import calibrate, check_asked
from depthmup.sweep.law import WANDER, WOBBLE, predict
from depthmup.sweep.shape import Laws, excess, valley
from pytest import approx

from depthmup.records import Estimate, Place, Verdict
from depthmup.records.certificate import Certificate, Lack, compare
from depthmup.statistics import vertex

RATES = np.arange(-8.0, 2.1, 0.5)
DEPTHS = (8, 16, 32, 64)
SIZES = [(64, depth) for depth in DEPTHS]
TARGET = (64, 256)
START = -3.2


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
):
    """Losses (sizes, rates, seeds) with their optima at ``best``.

    Seeds move the optimum of all sizes together (``shared``) and of each (``own``); ``noise``
    scatters single runs; ``softer`` is the exponent by which the curvature falls from one size to
    the next.
    """
    together = shared * rng.standard_normal(seeds)
    losses = []
    for i, at in enumerate(best):
        u = rates[:, None] - at - together - own * rng.standard_normal(seeds)
        shape = curvature * 2.0 ** (-softer * i) * u**2 * (1 + lopsided * np.tanh(u))
        losses.append(np.exp(-1 - 0.1 * i + shape + noise * rng.standard_normal(u.shape)))
    return np.array(losses)


def line(slope=-0.1, sizes=SIZES, start=START, bend=0.0, across=0.0):
    x = [(math.log2(d / sizes[0][1]), math.log2(w / sizes[0][0])) for w, d in sizes]
    return [start + slope * a + bend * a**2 + across * b for a, b in x]


def of(losses, **options):
    given = {"sizes": SIZES, "log2_lrs": RATES, "target": TARGET, **options}
    return calibrate(losses=losses, **given)


def good(seed=0, slope=-0.1, **options):
    return of(simulated(np.random.default_rng(seed), line(slope)), **options)


def lacks(certificate):
    return {refusal.lack for refusal in certificate.refusals}


def departing(rng, depths, tau, lam, slope):
    """The optima of depths, with a wobble at each and a slope that wanders."""
    fine = np.arange(0, math.log2(depths[-1] / depths[0]) + 1e-9, 1 / 16)
    slopes = slope + lam / 4 * np.cumsum(rng.standard_normal(len(fine)))
    path = START + np.concatenate([[0.0], np.cumsum(slopes[:-1]) / 16])
    at = [path[round(16 * math.log2(d / depths[0]))] for d in depths]
    return np.array(at) + tau * rng.standard_normal(len(depths))


class TestCoverage:
    """Nominal 90% intervals, on 200 experiments: three standard errors are 6.4%."""

    @pytest.mark.parametrize("depths", [(8, 16, 32), DEPTHS, (4, 8, 16, 32, 64)])
    def test_of_truths_as_the_priors_expect_them(self, depths):
        rng = np.random.default_rng(len(depths))
        held = 0
        for _ in range(200):
            tau, lam = np.abs(rng.standard_normal(2)) * (WOBBLE, WANDER)
            best = departing(rng, (*depths, 4 * depths[-1]), tau, lam, rng.normal(0, 0.2))
            held += self.holds(rng, best, depths, seeds=4)
        assert 0.836 <= held / 200 <= 0.964

    @pytest.mark.parametrize(
        "noise", [{"own": 0.01, "shared": 0.2}, {"own": 0.1, "shared": 0.0}, {"lopsided": 0.3}]
    )
    def test_of_a_straight_law_it_is_not_less(self, noise):
        """The priors expect departures, so that without any the intervals are too wide."""
        rng = np.random.default_rng(7)
        best = np.array(line(-0.5, [*SIZES, TARGET]))
        held = sum(self.holds(rng, best, DEPTHS, 3, **noise) for _ in range(100))
        assert held / 100 >= 0.9 - 3 * 0.03

    @staticmethod
    def holds(rng, best, depths, seeds, **noise):
        sizes = [(64, d) for d in depths]
        losses = simulated(rng, best[:-1], seeds=seeds, **noise)
        law = Laws.of(RATES, losses, sizes, sizes[0]).place
        found = predict(law, (64, 4 * depths[-1])).estimate()
        return found.low <= best[-1] <= found.high

    def test_the_interval_grows_with_distance_departures_and_fewer_sizes(self):
        def width(best, target=TARGET):
            rng = np.random.default_rng(3)
            sizes = SIZES[-len(best) :]
            law = Laws.of(RATES, simulated(rng, best), sizes, sizes[0]).place
            found = predict(law, target).estimate()
            return found.high - found.low

        near, far = width(line(), (64, 128)), width(line(), (64, 1024))
        assert near < width(line()) < far
        assert width(line()) < 0.6
        assert width(np.add(line(), [0.0, 0.2, -0.2, 0.0])) > 1.5 * width(line())
        assert width(line()[1:]) > width(line())


class TestPrediction:
    def test_a_known_law_is_found(self):
        found = good()
        assert found.issued
        assert found.predicted.value == approx(START - 0.5, abs=0.15)
        assert found.slopes[0].axis == "depth"
        assert found.slopes[0].estimate.value == approx(-0.1, abs=0.03)

    def test_two_dimensions_are_told_apart(self):
        sizes = [(w, d) for w in (32, 64, 128) for d in (8, 16, 32)]
        losses = simulated(np.random.default_rng(0), line(-0.3, sizes, across=0.1))
        found = of(losses, sizes=sizes, target=(256, 128))
        assert found.predicted.value == approx(START - 0.3 * 4 + 0.1 * 3, abs=0.2)
        assert [s.estimate.value for s in found.slopes] == approx([0.1, -0.3], abs=0.05)

    def test_a_target_no_larger_than_the_base(self):
        """In one dimension the base is the largest size, and the target has the base's."""
        sizes = [(16, 2), (16, 4), (16, 8), (32, 8), (64, 8)]
        losses = simulated(np.random.default_rng(0), line(sizes=sizes))
        found = of(losses, sizes=sizes, base=(16, 8), target=(256, 8))
        assert found.issued
        assert {s.axis for s in found.slopes} == {"width", "depth"}

    def test_the_best_loss_is_that_of_the_reports(self):
        curves = np.array([0.7, 0.6, 0.5, 0.4, 0.3, 0.29, 1.5])
        losses = np.exp(np.stack([curves - 0.01 * i for i in range(4)]))[..., None] * np.ones(3)
        rates = np.arange(-7.0, 0.0)
        found = of(losses, log2_lrs=rates)
        for size, curve in zip(found.optima, np.log(losses[..., 0]), strict=True):
            assert size.loss.value == approx(math.exp(vertex(rates.tolist(), curve).log_loss))

    def test_the_order_of_sizes_does_not_matter(self):
        losses = simulated(np.random.default_rng(0), line())
        assert of(losses[::-1], sizes=SIZES[::-1]) == of(losses)

    def test_a_bend_is_followed(self):
        """Optima that fall and turn: the last slope counts, as it does in a smoothing spline."""
        best = [-1.7, -1.8, -1.84, -1.8]
        found = of(simulated(np.random.default_rng(0), best, own=0.01, shared=0.01), target=TARGET)
        law = Laws.of(RATES, simulated(np.random.default_rng(0), best), SIZES, SIZES[0]).place
        drawn = predict(law, TARGET)
        assert np.median(drawn.draws) == approx(drawn.value, abs=0.02)
        straight = np.polyval(np.polyfit(range(4), best, 1), 5)
        assert found.predicted.value > straight + 0.03

    def test_regret_and_penalty_of_a_parabola(self):
        """Keeping the base's rate costs c move^2 in log loss, in closed form."""
        quiet = {"own": 1e-4, "shared": 1e-4, "noise": 1e-6, "lopsided": 0.0}
        for slope in (-0.1, -0.2):
            losses = simulated(np.random.default_rng(0), line(slope), **quiet)
            found = of(losses, target=(64, 128))
            regret = math.expm1(0.15 * (4 * slope) ** 2)
            assert found.base_regret.low <= regret <= found.base_regret.high
            assert found.base_regret.value == approx(regret, rel=0.1, abs=0.003)
            assert found.penalty.high < 0.01

    def test_robustness_is_the_exponent_of_the_curvature(self):
        quiet = {"own": 1e-4, "shared": 1e-4, "noise": 1e-6, "lopsided": 0.0}
        losses = simulated(np.random.default_rng(0), line(), softer=0.4, **quiet)
        # Five doublings above the base: c 2^(-0.4 x 5) (0.1 x 5)^2, a half below that of size 4.
        regret = math.expm1(0.15 * 2**-2 * 0.5**2)
        assert of(losses).base_regret.value == approx(regret, rel=0.2)
        losses = simulated(np.random.default_rng(0), line(), softer=0.4)
        exponent = of(losses).metrics.robustness[0].estimate
        assert exponent.low < -0.4 < exponent.high
        assert exponent.value == approx(-0.4, abs=0.1)
        assert not exponent.inside(-10, -0.7)

    def test_base_of_one_learning_rate_beyond_a_wall_is_infinitely_dear(self):
        losses = simulated(np.random.default_rng(0), line(-1.0, start=-1.0))
        losses[:, :, :] = np.where(RATES[:, None] > np.array(line(-1.0, start=-0.2))[:, None, None],
                                   np.inf, losses)  # fmt: skip
        found = of(losses)
        assert found.issued
        assert math.isinf(found.base_regret.value)

    def test_verdicts(self):
        assert good(slope=0.0).verdict is Verdict.TRANSFERS
        assert good(slope=-0.5).verdict is Verdict.DRIFTS
        assert good(slope=-0.15).verdict is Verdict.UNDECIDED


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
        """Of 30 good measurements at most one is refused: each test is at 5% beyond a margin."""
        rng = np.random.default_rng(5)
        refused = 0
        for _ in range(30):
            late, early = simulated(rng, line()), simulated(rng, line(-0.12, start=-2.9))
            refused += not of(late, early=early).issued
        assert refused <= 1

    def test_two_sizes(self):
        losses = simulated(np.random.default_rng(0), line())
        self.refused(of(losses[:2], sizes=SIZES[:2]), Lack.SIZES)

    def test_three_sizes_for_two_dimensions(self):
        sizes = [(32, 8), (64, 16), (128, 8)]
        losses = simulated(np.random.default_rng(0), line(sizes=sizes))
        assert Lack.SIZES in lacks(of(losses, sizes=sizes, target=(128, 16)))

    def test_one_seed(self):
        losses = simulated(np.random.default_rng(0), line())
        self.refused(of(losses[..., :1]), Lack.SEEDS)

    @pytest.mark.parametrize("start", [-8.5, 3.0])
    def test_an_edge_is_never_certified(self, start):
        for seed in range(50):
            losses = simulated(np.random.default_rng(seed), line(-0.01, start=start))
            self.refused(of(losses), Lack.EDGE)

    def test_one_size_at_the_edge_suffices(self):
        losses = simulated(np.random.default_rng(0), [-3.0, -3.0, -3.0, -8.4])
        self.refused(of(losses), Lack.EDGE)

    def test_next_to_divergence(self):
        losses = simulated(np.random.default_rng(0), line(0.0))
        losses[2, RATES > -3.1] = np.inf
        self.refused(of(losses), Lack.WALL)

    def test_nothing_trains(self):
        losses = simulated(np.random.default_rng(0), line())
        losses[-1] = 3.0
        assert Lack.FAILED in lacks(of(losses, chance=math.log(10)))

    def test_noise_above_the_effect(self):
        losses = simulated(np.random.default_rng(0), line(), curvature=0.003, noise=0.1)
        found = of(losses)
        assert lacks(found) & {Lack.NOISE, Lack.EDGE, Lack.WALL}
        for seed in range(20):
            rng = np.random.default_rng(seed)
            assert not of(simulated(rng, line(), curvature=0.003, noise=0.1)).issued

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

    def test_sizes_before_the_asymptote(self):
        losses = simulated(np.random.default_rng(0), line(-0.6, bend=0.1))
        self.refused(of(losses), Lack.SMALL)

    def test_larger_sizes_that_train_worse(self):
        losses = simulated(np.random.default_rng(0), line())
        losses[-1] *= 1.5
        self.refused(of(losses), Lack.WORSE)
        losses[-1] /= 1.4  # 7% above the trend, and below the size before
        assert of(losses).issued

    def test_a_price_without_a_useful_bound(self):
        """In a narrow valley an optimum that is uncertain by half an octave may double the loss."""
        shaken = {"own": 0.15, "noise": 0.0}
        narrow, wide = (
            of(simulated(np.random.default_rng(5), line(), curvature=c, **shaken))
            for c in (2.0, 0.05)
        )
        assert wide.issued
        assert wide.penalty.high < 1
        assert lacks(narrow) == {Lack.PRICE}

    @pytest.mark.parametrize("target", [(64, 1025), (64, 10**6)])
    def test_too_far(self, target):
        self.refused(good(target=target), Lack.FAR)
        assert good(target=(64, 1024)).issued

    def test_a_width_that_was_not_measured(self):
        self.refused(good(target=(128, 256)), Lack.DIRECTION)

    def test_beside_the_line_of_sizes(self):
        sizes = [(32, 8), (64, 16), (128, 32), (256, 64)]
        losses = simulated(np.random.default_rng(0), line(sizes=sizes))
        assert of(losses, sizes=sizes, target=(512, 128)).issued
        self.refused(of(losses, sizes=sizes, target=(256, 256)), Lack.DIRECTION)

    def test_noise_next_to_which_nothing_diverges_is_no_wall(self):
        """A lowest point without a valley: a finer grid would make it worse."""
        losses = np.exp(np.abs(RATES + 3.0))[:, None] * np.ones(4)  # a kink, and then a bump
        losses = np.stack([losses] * 4)
        at = int(np.argmin(losses[0, :, 0]))
        losses[0, at - 2 : at + 3] = np.exp([[1.0], [2.0], [0.0], [2.0], [1.0]])
        found = of(losses)
        assert Lack.NOISE in lacks(found)
        assert Lack.WALL not in lacks(found)

    def test_before_training(self):
        with pytest.raises(ValueError, match="every target to be"):
            check_asked([-3.0, -2.0], (64, 0))
        with pytest.raises(ValueError, match=r"at least two learning rates.*got \[-3.0\]"):
            check_asked([-3.0], (64, 8))


class TestFile:
    @pytest.mark.parametrize(
        "found",
        [
            good(environment={"cores": 2}, config={"depths": [8, 16]}, rate_unit=1 / 64),
            good(target=(64, 10**6)),
            replace(good(), base_regret=Estimate(value=0.1, low=0.0, high=math.inf)),
        ],
        ids=["issued", "refused", "infinite"],
    )
    def test_round_trip(self, found):
        again = Certificate.from_json(found.to_json())
        assert again.to_json() == found.to_json()
        # NaN differs from itself: what is unknown is compared by its text alone.
        assert replace(again, **self.plain(found)) == found

    @staticmethod
    def plain(found):
        """Parts that may hold NaN, or a list for a tuple."""
        names = ("optima", "config", "environment")
        if not found.issued:
            names += ("predicted", "penalty", "base_regret", "best_loss")
        return {name: getattr(found, name) for name in names}

    def test_what_lacks_a_field_is_refused(self):
        with pytest.raises(ValueError, match="it lacks base"):
            Certificate.from_json('{"schema": 1}')

    def test_another_schema_is_refused(self):
        text = good().to_json().replace('"schema": 1', '"schema": 99')
        with pytest.raises(ValueError, match="schema version 1; got 99"):
            Certificate.from_json(text)
        with pytest.raises(ValueError, match="schema version"):
            Certificate.from_json("[]")

    def test_the_learning_rate_is_in_the_users_unit(self):
        found = good(rate_unit=1 / 64)
        assert found.learning_rate.value == approx(2**found.predicted.value / 64)


class TestCompare:
    def test_of_one_code(self):
        change = compare(good(), good(seed=1, slope=-0.3))
        assert change.octaves == approx(-1.0, abs=0.2)
        assert change.loss.low < 0 < change.loss.high

    def test_different_code_is_refused(self):
        with pytest.raises(ValueError, match="same code; they differ in model: 'a' and 'b'"):
            compare(good(model="a"), good(model="b"))
        newer = replace(good(), code={**good().code, "depthmup": "99"})
        with pytest.raises(ValueError, match="they differ in depthmup"):
            compare(good(), newer)

    def test_different_targets_and_refused_ones(self):
        with pytest.raises(ValueError, match="same target"):
            compare(good(), good(target=(64, 128)))
        refused = good(target=(64, 10**6))
        with pytest.raises(ValueError, match="was refused"):
            compare(refused, refused)


class TestShape:
    def test_whole_octaves_give_the_parabola_of_three_points(self):
        rates = np.arange(-5.0, 1.0)
        found = valley(rates, 0.3 * (rates + 2.3) ** 2 - 1)
        assert (found.at, found.curvature, found.log_loss) == approx((-2.3, 0.3, -1))
        assert found.points == (2, 3, 4)

    def test_finer_grids_use_an_octave_to_both_sides(self):
        found = valley(RATES, 0.2 * (RATES + 3) ** 2)
        assert [RATES[p] for p in found.points] == [-4, -3.5, -3, -2.5, -2]

    def test_close_to_the_edge_the_window_stays_symmetric(self):
        found = valley(RATES, 0.2 * (RATES + 7.5) ** 2 + 0.05 * (RATES + 7.5) ** 3)
        assert found.points == (0, 1, 2)

    def test_excess_is_the_curve_above_its_minimum(self):
        curve = 0.2 * (RATES + 3) ** 2 - 1
        at = np.array([-20.0, -5.0, -3.2, -0.5, 0.0, 0.7, 3.0])
        assert excess(RATES, curve, at)[2:5] == approx(0.2 * at[2:5] ** 2, abs=0.02)
        assert excess(RATES, curve, at)[0] > excess(RATES, curve, at)[1] > 0
        curve[RATES > -1] = np.inf
        assert np.isinf(excess(RATES, curve, np.array([2.3]))).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"losses": np.ones((4, 3, 2))}, "shape"),
        ({"losses": -np.ones((4, len(RATES), 2))}, "positive"),
        ({"losses": np.full((4, len(RATES), 2), np.nan)}, "positive"),
        ({"early": np.ones((4, 3, 2))}, "same shape"),
        ({"sizes": [(64, 0), *SIZES[1:]]}, "at least 1"),
        ({"sizes": [SIZES[1], *SIZES[1:]]}, "once"),
        ({"log2_lrs": RATES[::-1]}, "increasing"),
        ({"target": (64, -1)}, "target"),
    ],
)
def test_what_is_no_measurement_is_an_error(change, message):
    given = {"losses": simulated(np.random.default_rng(0), line()), **change}
    with pytest.raises(ValueError, match=message):
        of(**given)


def test_optima_carry_their_places():
    found = of(simulated(np.random.default_rng(0), [-3.0, -3.0, -3.0, -8.4]))
    assert [o.place for o in found.optima] == [Place.INTERIOR] * 3 + [Place.LOW_EDGE]
    assert found.optima[-1].log2_lr.low == -math.inf
