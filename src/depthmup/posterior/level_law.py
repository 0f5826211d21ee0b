"""How levels go on with size: log losses at the minima, and how far two variants' lie apart.

With s_a doublings of a size along axis a, a level or a gap is

    g = p + sum_a b_a s_a + bend,    g = A prod_a r_a^s_a,    g = p + b s + A prod_a r_a^s_a,

normal in p, b and A, and sizes scatter about it. Two power laws of one floor lie apart by a gap
that fades as r^s, of different exponents by one that grows in a straight line, of one exponent and
no floor by a constant. A level comes nearer its floor as r^s, and along an axis that has a best
value of its own, such as the batch, leaves it so.

*Source:* Kaplan et al. (2020), arXiv 2001.08361, and Hoffmann et al. (2022), arXiv 2203.15556, for
laws with and without a floor; Rasmussen and Williams (2006), Section 2.2, for their posterior.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from depthmup.posterior.curve import Curves
from depthmup.posterior.intervals import Array, Index
from depthmup.posterior.law import integrated
from depthmup.posterior.mixture import NormalMixture, heaviest
from depthmup.posterior.own_levels import SeedContrasts, SeedCurves, contrasts
from depthmup.posterior.posterior import Posterior
from depthmup.posterior.priors import (
    BENT_OVER,
    BETWEEN,
    DEPTH,
    GAP_AMPLITUDES,
    GAP_PLACE,
    GAP_SCATTERS,
    GAP_SLOPES,
    LEVEL_AMPLITUDES,
    LEVEL_PLACE,
    LEVEL_SCATTERS,
    LEVEL_SLOPES,
    RATIOS,
    SHARES,
)

KEPT = 0.9995
"""Share of the weight that the nodes kept have."""

TINY = 1e-12
"""Nats squared by which gaps that cannot differ may: a covariance has a root."""


@dataclass(frozen=True, kw_only=True)
class LevelLaw:
    """One law: deviations in nats, and its weight before any run.

    Attributes:
        place: of p.
        slope: of b, per doubling.
        bend: of a slope that is forgotten over ``BENT_OVER`` doublings.
        amplitude: of A.
        ratio: r along every axis.
    """

    place: float = 0.0
    slope: float = 0.0
    bend: float = 0.0
    amplitude: float = 0.0
    ratio: tuple[float, ...] = ()
    weight: float

    def covariance(self, s: Array) -> Array:
        """Of values at sizes, (sizes, axes) in doublings."""
        total = np.full((len(s), len(s)), self.place**2)
        if self.slope:
            total += self.slope**2 * (s @ s.T)
        if self.bend:
            total += self.bend**2 * integrated(s, BENT_OVER)
        if self.amplitude:
            power = np.exp(s @ np.log(self.ratio))
            # The ratio lies between the nodes': to first order in its logarithm.
            moved = BETWEEN * (s @ (np.array(self.ratio) != 1.0)) * power
            total += self.amplitude**2 * (np.outer(power, power) + np.outer(moved, moved))
        return total


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """Laws, and what sizes may scatter by, with weights.

    ``centred`` values count from their mean, as levels do, whose place nobody knows.
    """

    laws: tuple[LevelLaw, ...]
    scatters: tuple[tuple[float, float], ...]
    centred: bool = False


def _along(axes: int) -> Iterator[tuple[float, tuple[float, ...], float]]:
    """Ratios along one axis at a time, and along all alike, with their weights."""
    ways = [tuple(a == b for b in range(axes)) for a in range(axes)]
    ways += [(True,) * axes] if axes > 1 else []
    for (ratio, weight), way in product(RATIOS, ways):
        yield ratio, tuple(ratio if on else 1.0 for on in way), weight / max(len(ways), 1)


def _laws(
    axes: int,
    place: float,
    slopes: Sequence[tuple[float, float]],
    amplitudes: Sequence[tuple[float, float]],
    shares: Sequence[float],
) -> Iterator[LevelLaw]:
    stays, straight, fades, floor = shares
    yield LevelLaw(place=place, weight=stays)
    for (slope, weight), bent in product(slopes, (0.0, 0.5)):
        yield LevelLaw(place=place, slope=slope, bend=bent * slope, weight=straight * weight / 2)
    for _, ratios, weight in _along(axes):
        if fades:
            yield LevelLaw(amplitude=place, ratio=ratios, weight=fades * weight)
    tilts = ((0.0, 0.5), (slopes[0][0], 0.5))
    for (amplitude, wa), (_, ratios, wr), (tilt, wt) in product(amplitudes, _along(axes), tilts):
        weight = floor * wa * wr * wt
        yield LevelLaw(place=place, slope=tilt, amplitude=amplitude, ratio=ratios, weight=weight)


def gaps(axes: int) -> Beliefs:
    """What is believed of how far two variants lie apart."""
    laws = tuple(_laws(axes, GAP_PLACE, GAP_SLOPES, GAP_AMPLITUDES, SHARES))
    return Beliefs(laws=laws, scatters=GAP_SCATTERS)


def levels(axes: int) -> Beliefs:
    """What is believed of levels themselves, none of which fades to nothing."""
    stays, straight, _, floor = SHARES
    laws = tuple(
        _laws(axes, LEVEL_PLACE, LEVEL_SLOPES, LEVEL_AMPLITUDES, (stays, straight, 0.0, floor))
    )
    return Beliefs(laws=laws, scatters=LEVEL_SCATTERS, centred=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Course:
    """The posterior of levels or gaps at all sizes, trained or not.

    Attributes:
        s: doublings of the trained sizes, (sizes, axes).
        value: what was measured there, (sizes,).
        fitted: its covariance, but for what seeds have of their own.
        seeds: that part.
        beliefs: laws.
    """

    s: Array
    value: Array
    fitted: Array
    seeds: SeedContrasts
    beliefs: Beliefs

    def none_at(self, sizes: Sequence[int]) -> "Course":
        """The same, where values at some sizes are zero without an error."""
        some = np.zeros(len(self.s), bool)
        some[list(sizes)] = True
        apart = np.outer(~some, ~some)
        count = np.where(some, np.inf, self.seeds.count)
        return replace(
            self,
            value=np.where(some, 0.0, self.value),
            fitted=np.where(apart, self.fitted, 0.0),
            seeds=replace(self.seeds, count=count),
        )

    @cached_property
    def _centre(self) -> float:
        return float(self.value.mean()) if self.beliefs.centred else 0.0

    @cached_property
    def _nodes(self) -> tuple[Array, Index, Array, Array, Array]:
        """Of what counts of laws, scatters and seeds: weight, law, scatter^2, L^-1, L^-1 value.

        L is the root of the covariance of what was measured.
        """
        beliefs, count = self.beliefs, len(self.s)
        own, of_seeds = self.seeds.nodes
        tau, share = np.array(beliefs.scatters).T
        smooth = np.stack([law.covariance(self.s) for law in beliefs.laws])
        prior = np.log([law.weight for law in beliefs.laws])
        law, scatter, seed = (
            index.ravel() for index in np.indices((len(smooth), len(tau), len(own)))
        )
        each = tau[scatter, None] ** 2 + own[seed, None] / np.maximum(self.seeds.count, 1)
        # Far from the base a steep law's variance is so large that its rounding hides all else.
        rounding = TINY + np.finfo(float).eps * count * smooth.max((-2, -1))[law]
        total = smooth[law] + self.fitted + np.eye(count) * (each + rounding[:, None])[:, None]
        root = np.linalg.cholesky(total)
        value = np.broadcast_to((self.value - self._centre)[:, None], (len(law), count, 1))
        right = np.linalg.solve(root, value)[..., 0]
        logs = np.log(np.einsum("nii->ni", root)).sum(-1)
        told = of_seeds[seed] - logs - 0.5 * (right**2).sum(-1)
        log = prior[law] + np.log(share)[scatter] + told
        kept = heaviest(log, KEPT)
        weight = np.exp(log[kept] - log.max())
        inverse = np.asarray(np.linalg.inv(root[kept]), float)
        of_law = np.asarray(law[kept], np.int64)
        return (
            weight / weight.sum(),
            of_law,
            tau[scatter[kept]] ** 2,
            inverse,
            np.asarray(right[kept], float),
        )

    def of(
        self, rows: Array, places: Array | None = None, *, scatter: bool = True
    ) -> NormalMixture:
        """Combinations of values at trained sizes and then at places, (answers, sizes + places).

        Values at trained sizes are those that were realized; at places those of the law, with
        their own scatter or without.
        """
        count = len(self.s)
        places = np.zeros((0, self.s.shape[1])) if places is None else places
        everywhere = np.concatenate([self.s, places])
        weight, law, tau, inverse, right = self._nodes
        apart = np.diag(np.r_[np.ones(count), np.full(len(places), float(scatter))])
        used, again = np.unique(law, return_inverse=True)
        smooth = np.stack([self.beliefs.laws[i].covariance(everywhere) for i in used])
        of_rows = (rows @ smooth)[again] + tau[:, None, None] * (rows @ apart)
        halves = of_rows[..., :count] @ np.swapaxes(inverse, -1, -2)
        mean = np.einsum("nai,ni->an", halves, right) + self._centre * rows.sum(-1)[:, None]
        variance = np.einsum("nai,ai->an", of_rows, rows) - (halves**2).sum(-1).T
        return NormalMixture(
            mean=mean,
            deviation=np.sqrt(np.maximum(variance, 0.0)),
            weight=np.broadcast_to(weight, mean.shape),
        )


_SIDES = np.array([-1.0, 1.0])


@dataclass(frozen=True, kw_only=True, eq=False)
class Frontier:
    """The best losses of one variant at some of its sizes.

    Attributes:
        found: the posterior of all of its sizes.
        curves: of those.
        spacing: of their grids around the lowest point, octaves.
        at: the numbers of some, and ``s`` their doublings.
    """

    found: Posterior
    curves: Curves
    spacing: Array
    at: Sequence[int]
    s: Array

    @property
    def level(self) -> Array:
        return np.asarray(self.found.level[list(self.at)])

    @property
    def fitted(self) -> Array:
        """The covariance of the fit, and of what the family of valleys misses between two rates.

        It rounds kinks and blunts flat grounds; of parabolas, which rise fourfold where the
        distance doubles, it misses nothing. All sizes share it, so that it bends no law.
        """
        spacing = self.spacing[list(self.at)]
        near, far = (
            np.array(
                [self.found.rise(i, u * _SIDES).mean() for i, u in zip(self.at, away, strict=True)]
            )
            for away in (spacing / 2, spacing)
        )
        bent = np.log2(np.maximum(far, TINY) / np.maximum(near, TINY)) - 2
        missed = DEPTH * near * np.minimum(abs(bent), 1)
        return self.found.level_fitted[np.ix_(self.at, self.at)] + np.outer(missed, missed)

    @property
    def seeds(self) -> SeedCurves:
        noise = float(self.found.mode.sigma[0]) ** 2
        return SeedCurves(curves=self.curves[list(self.at)], noise=noise)

    @cached_property
    def course(self) -> Course:
        return Course(
            s=self.s,
            value=self.level,
            fitted=self.fitted,
            seeds=contrasts(self.seeds, None, paired=False),
            beliefs=levels(self.s.shape[1]),
        )

    def over(self, other: "Frontier", *, paired: bool) -> Course:
        """The course of how far the other one's best losses lie above these."""
        return Course(
            s=self.s,
            value=other.level - self.level,
            fitted=other.fitted + self.fitted,
            seeds=contrasts(other.seeds, self.seeds, paired=paired),
            beliefs=gaps(self.s.shape[1]),
        )
