"""How levels go on with size: log losses at the minima, and how far two variants' lie apart.

With s_a doublings of a size along axis a, a level or a gap is one of

    g = p + sum_a b_a s_a + bend,    g = A prod_a r_a^s_a,    g = p + A prod_a r_a^s_a,

normal in p, b and A, and sizes scatter about it. Two power laws of one floor lie apart by a gap that
fades as r^s, of different exponents by one that grows in a straight line, of one exponent and no
floor by a constant; a level comes nearer its floor as r^s.

Seeds have a level of their own, of variance o^2. Contrasts of f seeds, of mean square S, say

    log p(S | o) = -f/2 (log v + S / v),    v = o^2 + n,

n the part of S that the noise of their runs is. With one seed the prior stays, and what sizes
scatter by.

*Source:* Kaplan et al. (2020), arXiv 2001.08361, and Hoffmann et al. (2022), arXiv 2203.15556, for
laws with and without a floor; Rasmussen and Williams (2006), Section 2.2, for their posterior.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from depthmup.posterior.intervals import Array
from depthmup.posterior.law import integrated
from depthmup.posterior.mixture import NormalMixture
from depthmup.posterior.priors import (
    BENT_OVER,
    BETWEEN,
    GAP_AMPLITUDES,
    GAP_PLACE,
    GAP_SCATTERS,
    GAP_SLOPES,
    LEVEL_AMPLITUDES,
    LEVEL_PLACE,
    LEVEL_SCATTERS,
    LEVEL_SLOPES,
    OWN_LEVELS,
    RATIOS,
    SHARES,
)


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
    """Laws, and what sizes may scatter by, with weights."""

    laws: tuple[LevelLaw, ...]
    scatters: tuple[tuple[float, float], ...]


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
    falling = sum(weight for ratio, _, weight in _along(axes) if ratio < 1)
    for (amplitude, wa), (ratio, ratios, wr) in product(amplitudes, _along(axes)):
        if ratio < 1:
            weight = floor * wa * wr / falling
            yield LevelLaw(place=place, amplitude=amplitude, ratio=ratios, weight=weight)


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
    return Beliefs(laws=laws, scatters=LEVEL_SCATTERS)


@dataclass(frozen=True, kw_only=True, eq=False)
class SeedContrasts:
    """What seeds show of the level that each has of its own.

    Attributes:
        count: seeds of every size, (sizes,).
        square, freedom: S and f.
        noise: n; also the variance of one run.
        run: the variance of one run's noise, which ``OWN_LEVELS`` count in.
    """

    count: Array
    square: float
    freedom: float
    noise: float
    run: float

    @cached_property
    def nodes(self) -> tuple[Array, Array]:
        """o^2 of every node, and log weights."""
        own, weight = np.array(OWN_LEVELS).T
        variance = own * self.run
        expected = np.maximum(variance + self.noise, 1e-300)
        told = -self.freedom / 2 * (np.log(expected) + self.square / expected)
        return variance, np.log(weight) + told


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

    @cached_property
    def _centre(self) -> float:
        """Levels count from their mean: their place is not known. Gaps count from none."""
        return float(self.value.mean()) if self.beliefs.laws[0].place >= LEVEL_PLACE else 0.0

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
        own, of_seeds = self.seeds.nodes
        error = np.einsum("o,i,ij->oij", own, 1 / np.maximum(self.seeds.count, 1), np.eye(count))
        error += self.fitted + 1e-12 * np.eye(count)
        apart = np.diag(np.r_[np.ones(count), np.full(len(places), float(scatter))])
        value = self.value - self._centre
        means, deviations, weights = [], [], []
        for law in self.beliefs.laws:
            smooth = law.covariance(everywhere)
            for tau, share in self.beliefs.scatters:
                whole = smooth + tau**2 * apart
                total = whole[:count, :count] + error
                root = np.linalg.cholesky(total)
                read = rows @ whole[:, :count]
                both = np.concatenate(
                    [
                        np.broadcast_to(read.T, (len(own), *read.T.shape)),
                        np.broadcast_to(value[:, None], (len(own), count, 1)),
                    ],
                    -1,
                )
                solved = np.linalg.solve(root, both)
                halves, right = solved[..., :-1], solved[..., -1]
                prior = np.einsum("ai,ij,aj->a", rows, whole, rows)
                logs = np.log(np.einsum("oii->oi", root)).sum(-1)
                means.append(np.einsum("oia,oi->ao", halves, right))
                deviations.append(np.maximum(prior[:, None] - (halves**2).sum(1).T, 0.0))
                told = of_seeds - logs - 0.5 * (right**2).sum(-1)
                weights.append(told + np.log(law.weight * share))
        log = np.concatenate(weights)
        weight = np.exp(log - log.max())
        mean = np.concatenate(means, -1) + self._centre * rows.sum(-1)[:, None]
        return NormalMixture(
            mean=mean,
            deviation=np.sqrt(np.concatenate(deviations, -1)),
            weight=np.broadcast_to(weight / weight.sum(), mean.shape),
        )
