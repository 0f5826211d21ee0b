"""The posterior of minima: closed forms where there are any, and what must change nothing."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx
from scipy import stats
from valleys import SHAPES, World, least

from depthmup.posterior import (
    Curves,
    NormalMixture,
    drifts,
    errors,
    likelihood,
    nodes,
    posterior,
    seeds,
)
from depthmup.posterior.law import Covariances, LawNode, Prior
from depthmup.posterior.posterior import posteriors
from depthmup.posterior.valley import PLACE, POWERS, ROUND, WALL, parameters

few = settings(max_examples=4, deadline=None)

RATES = np.arange(-6.0, 3.1, 0.5)
X = np.arange(5.0)
ROW = (X - 2) / 10


def noisy(seed, *, best=None, shape="lopsided", noise=0.008, count=2, sizes=5, rates=RATES):
    """Losses (sizes, rates, seeds) of valleys with a slope of -0.2."""
    rng = np.random.default_rng(seed)
    best = -1 - 0.2 * np.arange(sizes) if best is None else np.asarray(best)
    best = best[:, None] + 0.03 * rng.standard_normal(count)
    y = SHAPES[shape](rates[:, None] - best[:, None, :])
    level = 0.1 * rng.standard_normal(count) - 0.05 * np.arange(sizes)[:, None, None]
    return np.exp(y + level + noise * rng.standard_normal(y.shape))


def of(losses, rates=RATES, x=X):
    return posterior(Curves.of(rates, losses), np.asarray(x, float)[:, None])


def ends(estimate):
    return np.array([estimate.value, estimate.low, estimate.high])


class TestLinear:
    """Parabolas of one known curvature, one noise, one law: everything is normal."""

    C, SIGMA, LAW = 0.07, 0.02, LawNode(
        slope=0.3, forgotten=((0.2, 1.0),), scatter=0.1, products=0.0, weight=1.0
    )  # fmt: skip

    @pytest.fixture(autouse=True)
    def known(self, monkeypatch):
        """All priors on one point."""

        def mean(runs):
            values = np.zeros((len(runs.origin), parameters(runs.s.shape[1])))
            values[:, :2], values[:, POWERS] = np.log(self.C), np.log(2)
            values[:, ROUND], values[:, WALL], values[:, PLACE] = np.log(0.2), -60, 1.5
            return values

        def scales(runs):
            return np.full((2, parameters(runs.s.shape[1])), 1e-7)

        def prior_of(s, directions):
            whole = Covariances(s=s).whole(self.LAW)[None]
            return Prior(
                nodes=(self.LAW,), ways=np.zeros((1, 1)), log_weight=np.zeros(1), whole=whole,
                root=np.linalg.cholesky(whole),
            )  # fmt: skip

        monkeypatch.setattr(likelihood.Experiments, "mean", property(mean))
        monkeypatch.setattr(likelihood.Experiments, "scales", property(scales))
        monkeypatch.setattr(likelihood, "TURNS", ((0.0, 0.0, 0.0, 0.0, 1.0),) * 2)
        monkeypatch.setattr(likelihood, "MISFITS", ((1e-9, 1.0),) * 3)
        monkeypatch.setattr(nodes, "MISFITS", ((1e-9, 1.0),) * 3)
        monkeypatch.setattr(likelihood, "NOISES", np.array([self.SIGMA]))
        monkeypatch.setattr(likelihood, "TAILS", 1e12)
        monkeypatch.setattr(likelihood, "LOPSIDED", 0.0)
        monkeypatch.setattr(likelihood, "PHASE", 0.0)
        monkeypatch.setattr(errors, "BEYOND", np.inf)
        monkeypatch.setattr(seeds, "NODES", ((1e-9, 1e-9, 1e-9, 1.0),))
        monkeypatch.setattr(sys.modules["depthmup.posterior.minima"], "prior_of", prior_of)

    def runs(self, seed=0):
        rng, rates = np.random.default_rng(seed), np.arange(-3.0, 3.5, 0.5)
        best = np.array([0.3, 0.1, -0.2, -0.1])
        y = self.C * (rates - best[:, None]) ** 2
        y = y + self.SIGMA * rng.standard_normal(y.shape)
        return rates, y + np.array([0.0, -0.1, 0.1, 0.3])[:, None]

    @staticmethod
    def curves(rates, y):
        grid = np.broadcast_to(rates, (1, *y.shape))
        return Curves(log2_lrs=grid, losses=np.exp(y)[None, ..., None])

    def closed(self, rates, y):
        """y - c x^2 is a straight line of slope -2 c k, whose least squares give k."""
        centred = rates - rates.mean()
        slope = (y - self.C * rates**2) @ centred / (centred**2).sum()
        variance = self.SIGMA**2 / (4 * self.C**2 * (centred**2).sum())
        return -slope / (2 * self.C), variance

    def test_minima_and_their_law_are_those_of_normal_regression(self):
        rates, y = self.runs()
        k, variance = self.closed(rates, y)
        s, target = np.arange(4.0)[:, None], np.array([[6.0]])
        (found,) = posteriors(self.curves(rates, y), s)
        everywhere = Covariances(s=np.concatenate([s, target]))
        origin = found.origin
        for scatter in (True, False):
            cov = everywhere.whole(self.LAW) if scatter else everywhere.smooth(self.LAW)
            seen = everywhere.whole(self.LAW)[:4, :4] + variance * np.eye(4)
            gain = cov[4:, :4] @ np.linalg.inv(seen)
            mean = float((gain @ (k - origin))[0] + origin)
            deviation = float(np.sqrt(cov[4, 4] - gain[0] @ cov[:4, 4]))
            there = found.of_law(np.ones((1, 1)), target, scatter=scatter)
            estimate = there.estimate(0.95)
            assert estimate.value == approx(mean, abs=1e-4)
            half = stats.norm.ppf(0.975) * deviation
            assert [estimate.low, estimate.high] == approx([mean - half, mean + half], abs=2e-4)
        gain = everywhere.whole(self.LAW)[:4, :4] @ np.linalg.inv(seen)
        assert found.minimum == approx(gain @ (k - origin) + origin, abs=1e-4)
        kept = (np.eye(4) - gain) @ everywhere.whole(self.LAW)[:4, :4]
        assert found.deviation == approx(np.sqrt(np.diag(kept)), rel=1e-3)

    def test_slopes_of_these_sizes(self):
        rates, y = self.runs(1)
        k, variance = self.closed(rates, y)
        value, low, high = drifts(range(4), self.curves(rates, y))
        row = (np.arange(4) - 1.5) / 5
        whole = Covariances(s=np.arange(4.0)[:, None]).whole(self.LAW)
        gain = whole @ np.linalg.inv(whole + variance * np.eye(4))
        deviation = np.sqrt(row @ (np.eye(4) - gain) @ whole @ row)
        centre = float(np.median(rates[y.argmin(-1)]))
        assert value[0] == approx(float(row @ gain @ (k - centre)), abs=1e-4)
        assert (high - low)[0] / 2 == approx(1.96 * deviation, rel=2e-3)


class TestMixture:
    def test_one_normal_distribution(self):
        mixture = NormalMixture(
            mean=np.array([[0.3]]), deviation=np.array([[0.2]]), weight=np.array([[1.0]])
        )
        normal = stats.norm(0.3, 0.2)
        for share in (0.01, 0.025, 0.5, 0.9):
            assert mixture.quantile(share)[0] == approx(normal.ppf(share), abs=1e-9)
        estimate = mixture.estimate(0.95)
        assert ends(estimate) == approx([0.3, normal.ppf(0.025), normal.ppf(0.975)])
        shares = np.linspace(0.01, 0.99, 9)
        assert mixture.quantiles(shares) == approx(normal.ppf(shares), abs=2e-3)
        assert mixture.below(np.array([0.5]))[0] == approx(normal.cdf(0.5))

    def test_of_several_by_sampling(self):
        mean, deviation = np.array([[-1.0, 0.0, 2.0]]), np.array([[0.3, 0.1, 1.0]])
        weight = np.array([[0.5, 0.3, 0.2]])
        rng, count = np.random.default_rng(0), 200_000
        which = rng.choice(3, count, p=weight[0])
        drawn = mean[0][which] + deviation[0][which] * rng.standard_normal(count)
        mixture = NormalMixture(mean=mean, deviation=deviation, weight=weight)
        for share in (0.025, 0.3, 0.5, 0.975):
            under = float((drawn < mixture.quantile(share)[0]).mean())
            assert under == approx(share, abs=4 * np.sqrt(share * (1 - share) / count))
        assert mixture.value[0] == approx(drawn.mean(), abs=4 * drawn.std() / np.sqrt(count))

    def test_answers_that_are_known_exactly_have_no_width(self):
        nothing = np.zeros((1, 2))
        mixture = NormalMixture(mean=nothing, deviation=nothing, weight=np.full((1, 2), 0.5))
        assert ends(mixture.estimate(0.95)) == approx(0, abs=1e-9)


class TestInvariances:
    """What one counts from, and in which order things come, is no knowledge."""

    @few
    @given(st.integers(0, 10**6), st.integers(-80, 80))
    def test_rates_in_another_unit_shift_all_minima(self, seed, eighths):
        losses, shift = noisy(seed), eighths / 8
        one, other = of(losses), of(losses, RATES + shift)
        assert other.minimum == approx(one.minimum + shift, abs=1e-4)
        assert other.deviation == approx(one.deviation, rel=1e-3)
        assert ends(other.estimate(ROW)) == approx(ends(one.estimate(ROW)), abs=1e-4)

    @few
    @given(st.integers(0, 10**6), st.floats(0.001, 1000))
    def test_losses_in_another_unit_change_no_minimum(self, seed, factor):
        losses = noisy(seed)
        one, other = of(losses), of(factor * losses)
        assert other.minimum == approx(one.minimum, abs=1e-4)
        assert ends(other.estimate(ROW)) == approx(ends(one.estimate(ROW)), abs=1e-4)
        assert other.level == approx(one.level + np.log(factor), abs=1e-4)

    @few
    @given(st.integers(0, 10**6), st.permutations(range(5)), st.permutations(range(3)))
    def test_the_order_of_sizes_and_seeds(self, seed, sizes, columns):
        losses = noisy(seed, count=3)
        one, other = of(losses), of(losses[sizes][..., columns], x=X[sizes])
        assert other.minimum == approx(one.minimum[sizes], abs=1e-4)
        assert ends(other.estimate(ROW[sizes])) == approx(ends(one.estimate(ROW)), abs=1e-4)

    @few
    @given(st.integers(0, 10**6), st.integers(1, 4))
    def test_rates_at_which_nothing_was_run(self, seed, extra):
        losses = noisy(seed)
        rates = np.concatenate([RATES[:6], RATES[6] - 0.25 + 0.01 * np.arange(extra), RATES[6:]])
        empty = np.full((5, extra, 2), np.nan)
        padded = np.concatenate([losses[:, :6], empty, losses[:, 6:]], axis=1)
        one, other = of(losses), of(padded, rates)
        assert ends(other.estimate(ROW)) == approx(ends(one.estimate(ROW)), abs=1e-4)

    def test_experiments_side_by_side_are_each_what_they_are_alone(self):
        several = np.stack([noisy(0), noisy(1, shape="V"), noisy(2, shape="wall")])
        several[1, 4, RATES > -1] = np.inf
        grid = np.broadcast_to(RATES, several.shape[:-1])
        batch = posteriors(Curves(log2_lrs=grid, losses=several), X[:, None])
        for found, losses in zip(batch, several, strict=True):
            alone = of(losses)
            assert found.minimum == approx(alone.minimum, abs=1e-3)
            assert ends(found.estimate(ROW)) == approx(ends(alone.estimate(ROW)), abs=1e-3)

    @pytest.mark.parametrize("axes", [1, 2])
    def test_at_trained_sizes_the_law_with_its_scatter_is_what_was_realized(self, axes):
        s = np.array([[0, 0], [1, 0], [2, 0], [0, 1], [2, 1.0]])[:, :axes]
        s = X[:, None] if axes == 1 else s
        found = posterior(Curves.of(RATES, noisy(3)), s)
        rows = np.concatenate([np.eye(5), ROW[None]])
        sizes, law = found.of_sizes(rows), found.of_law(rows, s, scatter=True)
        assert law.mean == approx(sizes.mean, abs=1e-6)
        assert law.deviation == approx(sizes.deviation, abs=1e-6)


class TestRuns:
    """What single runs may do to an answer."""

    @pytest.mark.parametrize("size", [0, 2, 4])
    def test_one_run_that_strays_moves_the_drift_by_less_than_its_error(self, size):
        losses = noisy(5, count=3)
        plain = of(losses).estimate(ROW)
        lowest = int(losses[size].mean(-1).argmin())
        for rate in (lowest - 1, lowest, lowest + 1):
            strayed = losses.copy()
            strayed[size, rate, 1] *= np.exp(0.2)
            moved = of(strayed).estimate(ROW)
            assert abs(moved.value - plain.value) < (moved.high - moved.low) / 2

    def test_more_seeds_do_not_widen(self):
        """The median over tables, as few seeds may agree by chance."""
        losses = np.stack([noisy(seed, count=6, noise=0.02) for seed in range(10)])
        grid = np.broadcast_to(RATES, losses.shape[:-1])
        widths = []
        for count in (1, 2, 3, 6):
            _, low, high = drifts(X, Curves(log2_lrs=grid, losses=losses[..., :count]))
            widths.append(float(np.median(high - low)))
        assert widths == sorted(widths, reverse=True)
        assert widths[-1] < 0.8 * widths[0]

    @pytest.mark.parametrize("count", [1, 3])
    def test_optima_beside_a_divergence_have_intervals(self, count):
        """All sizes train best at the last rate that does not diverge, on one coarse grid."""
        rates = np.arange(-6.0, 3.0)
        best = -1.0 + 0.1 * np.arange(5)
        y = 0.07 * (rates[:, None] - best[:, None, None] - np.zeros(count)) ** 2
        losses = np.exp(np.where(rates[:, None] > -0.5, np.inf, y))
        found = of(losses, rates)
        drift = found.estimate(ROW)
        assert drift.high - drift.low > 0.02
        assert drift.low <= 0.1 <= drift.high
        assert (found.deviation > 0.02).all()
        # They lie below the first rate that diverges.
        assert (found.minimum < 0.1).all()

    def test_a_run_that_all_but_diverged_counts_as_one_that_did(self):
        y = 0.07 * (RATES[:, None] - (0.1 * X - 2)[:, None, None]) ** 2
        far = RATES[:, None] - (0.1 * X - 2)[:, None, None] > 3.4
        high, gone = (of(np.exp(np.where(far, above, y))) for above in (7.0, np.inf))
        assert far.any()
        assert high.minimum == approx(gone.minimum, abs=0.02)

    def test_where_every_rate_diverges_the_minimum_lies_below_all(self):
        """What it has of its own is known less well than what the size before has."""
        losses = noisy(7)
        losses[4] = np.inf
        found = of(losses)
        assert np.isfinite(found.minimum).all()
        last, before = (
            found.estimate(np.array(row)) for row in ([0, 0, 0, -1, 1], [0, 0, -1, 1, 0])
        )
        assert last.high - last.low > 2 * (before.high - before.low)
        assert found.minimum[4] < RATES[0]

    def test_a_turn_is_seen_where_there_is_one(self):
        turned = 2.0 ** (X / 2.5)[:, None, None]
        u = RATES[:, None] + 1
        turns, keeps = (
            of(np.exp(0.07 * np.where(u < 0, 1 / t, t) * u**2 + np.zeros((5, 1, 1)))).turn(0)
            for t in (turned, np.ones((5, 1, 1)))
        )
        assert turns.low < np.log(2) / 2.5 < turns.high
        assert turns.low > 0.1
        assert keeps.low < 0 < keeps.high


class TestPlanned:
    """What runs to come would leave, by the fit as it is."""

    def test_more_seeds_are_expected_to_narrow(self):
        losses = noisy(4, noise=0.02)
        found = of(losses)
        widths = []
        for count in (2, 4, 8):
            more = np.concatenate([losses] * (count // 2), axis=-1)
            interval = found.planned(Curves.of(RATES, more)).estimate(ROW)
            widths.append(interval.high - interval.low)
        assert widths[0] > widths[1] > widths[2]

    def test_what_is_foretold_is_the_valley(self):
        """Runs that are there, to a few standard deviations of their noise."""
        losses = noisy(4, noise=0.004)
        found = of(losses)
        near = np.abs(RATES + 1.4) < 2
        foretold = found.foretold(2, RATES[near])
        level = np.log(losses[2]).mean(-1)[near]
        assert foretold == approx(level, abs=0.03)


def realized(*, tau, count, seeds_, spacing, shape="parabola", noise="like real"):
    """Bounds of drifts of sizes that scatter by tau, and the slopes that were realized."""
    rng = np.random.default_rng(5)
    best = 0.1 * np.arange(5) + tau * rng.standard_normal((count, 5))
    world = World(shape=shape, noise=noise, spacing=spacing, seeds=seeds_)
    _, low, high = drifts(range(5), world.curves(rng, best))
    return low, high, best @ ROW


@pytest.mark.long(of="coverage")
@pytest.mark.parametrize("seeds_", [1, 3])
@pytest.mark.parametrize("spacing", [0.5, 1.0])
@pytest.mark.parametrize("tau", [0.0, 0.12, 0.3])
def test_drifts_of_realized_minima_are_held(tau, spacing, seeds_):
    """However sizes scatter about a law, the drift of these sizes is that of their minima."""
    low, high, truth = realized(tau=tau, count=20, seeds_=seeds_, spacing=spacing)
    assert ((low <= truth) & (truth <= high)).mean() >= least(0.95, 20)
    # And not by being wide: a parabola's slope is known to a twentieth of an octave or so. Where
    # sizes scatter, one seed may have as much of its own at each of them.
    assert np.median(high - low) / 2 < (0.06 + 0.1 * tau if spacing == 0.5 else 0.1)


class TestRunsThatBrokeDown:
    """Finite losses at random far above all that train: they are no points of a curve."""

    @staticmethod
    def blown(seed, *, count=3, beyond=1.0):
        """The sweep, and the same with losses of 10 to 1e5 times as much beyond some octaves."""
        losses = noisy(seed, count=count)
        far = beyond < RATES
        worse = losses.copy()
        worse[:, far] *= 10 ** np.random.default_rng(seed).uniform(1, 5, worse[:, far].shape)
        return losses, worse, far

    def test_they_are_far_above_and_disagree(self):
        """Four times the best, twice what small rates leave, scattered by a quarter of that."""
        rates = np.arange(6.0)
        of_rate = np.log([9.0, 4.0, 1.0, 1.5, 60.0, 1e4])
        apart = np.array([0.0, 0.0, 0.0, 1.0, 2.0, 0.1])
        y = of_rate[:, None] + apart[:, None] * np.array([-1.0, 1.0])
        # A rate of little scatter is a wall; what is low, or below the best, is none.
        found = Curves.of([rates], [np.exp(y)]).broken
        assert found.tolist() == [[False] * 4 + [True, False]]
        # One seed does not disagree, and a size without a run has none.
        assert not Curves.of([rates], [np.exp(y[:, :1])]).broken.any()
        assert not Curves.of([rates], [np.full((6, 2), np.inf)]).broken.any()
        assert not Curves.of([rates], [np.full((6, 2), np.nan)]).broken.any()

    @pytest.mark.parametrize("count", [2, 3, 4])
    def test_their_scatter_is_no_noise(self, count):
        losses, worse, _ = self.blown(3, count=count)
        clean = seeds.averages(Curves.of(RATES, losses))
        shown = seeds.averages(Curves.of(RATES, worse))
        noise = np.sqrt(float(clean.square / clean.freedom))
        assert np.sqrt(float(shown.square / shown.freedom)) < 3 * noise

    def test_drifts_are_known_as_if_they_had_diverged(self):
        losses, worse, far = self.blown(5)
        walls = losses.copy()
        walls[:, far] = np.inf
        wide, bounded = (of(y).estimate(ROW) for y in (worse, walls))
        assert wide.low < -0.2 < wide.high
        assert wide.high - wide.low < 1.5 * (bounded.high - bounded.low)

    def test_seeds_at_a_wall_differ_alike(self):
        """A wall of three nats per octave, at places that differ by a twentieth of an octave."""
        rng = np.random.default_rng(0)
        u = RATES[:, None] - 0.05 * rng.standard_normal(3)
        y = 0.05 * u**2 + 3.0 * np.maximum(u - 0.4, 0)
        assert not Curves.of([RATES], [np.exp(y)]).broken.any()
