"""One posterior of the minima of all sizes: a mixture of normal ones, of which answers are rows.

Every node of the likelihood (``posterior.likelihood``), every belief about seeds
(``posterior.seeds``) and every law of sizes (``posterior.law``) gives the minima a normal posterior
and a weight. An answer is a row of weights of minima: at sizes that were trained (*these sizes*),
or of the law elsewhere (*the law*). Its interval holds quantiles of the mixture.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from depthmup.posterior.curve import Curves
from depthmup.posterior.intervals import CONFIDENCE, Array, Numbers
from depthmup.posterior.likelihood import Information, Mode, expected, information
from depthmup.posterior.minima import MinimaPosterior, blurred
from depthmup.posterior.mixture import NormalMixture
from depthmup.posterior.seeds import shared_errors
from depthmup.posterior.valley import SHARED, rise
from depthmup.records import Estimate


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """The minima of all sizes of one variant, given all of its runs, of one experiment.

    Attributes:
        s: doublings of the sizes from the base, (sizes, axes).
        origin: log2 rate from which the nodes count.
        constant, linear, precision: of every node, as in ``posterior.nodes``, seeds' own included.
        seeds: log weights of what seeds may have of their own.
        mode: the heaviest node, of a batch of one; its shape has ``shape_covariance``.
        level, level_covariance: log losses at the minima, (sizes,); ``level_fitted`` is the part
            of their covariance that seeds have not of their own.
        place: standard error of the place of all minima alike, octaves.
    """

    s: Array
    origin: float
    constant: Array
    linear: Array
    precision: Array
    seeds: Array
    mode: Mode
    shape_covariance: Array
    level: Array
    level_covariance: Array
    level_fitted: Array
    place: float = 0.0

    @cached_property
    def minima(self) -> MinimaPosterior:
        """All of what is known of the minima."""
        return MinimaPosterior(
            s=self.s,
            origin=np.array([self.origin]),
            constant=self.constant,
            linear=self.linear,
            precision=self.precision,
            directions=np.eye(1),
            place=np.array([[self.place]]),
        )

    def estimate(
        self, row: Array, confidence: float = CONFIDENCE, *, scale: float = 1.0, unit: str = ""
    ) -> Estimate:
        """One combination of the minima of trained sizes, times a scale."""
        weights = scale * np.asarray(row, float)
        # A search asks for one drift in every rule that may end it, and again for its story.
        asked = weights.tobytes(), confidence
        if asked not in self._estimates:
            self._estimates[asked] = self.of_sizes(weights[None]).estimate(confidence)
        return replace(self._estimates[asked], unit=unit)

    @cached_property
    def _estimates(self) -> dict[tuple[bytes, float], Estimate]:
        return {}

    @cached_property
    def minimum(self) -> Array:
        """log2 rates, (sizes,)."""
        return self.of_sizes(np.eye(len(self.s))).value

    @cached_property
    def deviation(self) -> Array:
        """Standard deviations of the minima, (sizes,)."""
        found = self.of_sizes(np.eye(len(self.s)))
        apart = found.mean - found.value[:, None]
        return np.asarray(np.sqrt((found.weight * (found.deviation**2 + apart**2)).sum(-1)))

    def rise(self, size: int, octaves: Array) -> Array:
        """Log loss above the minimum of a size, so far from it."""
        u = np.asarray(octaves, float).reshape(1, 1, -1)
        high = rise(u, self.mode.fit.shape, self.s[[size]]).height
        return np.asarray(high.reshape(np.shape(octaves)))

    def rise_at(self, place: Array, octaves: Array) -> Array:
        """The same at a size that was not trained, (1, axes) in doublings."""
        u = np.asarray(octaves, float).reshape(1, 1, -1)
        return np.asarray(rise(u, self.mode.fit.shape, place).height[0, 0])

    def bend(self, size: int, octaves: Array) -> tuple[float, float]:
        """The mean rise at some distances, and its standard error."""
        high = rise(octaves.reshape(1, 1, -1), self.mode.fit.shape, self.s[[size]])
        gradient = high.by_shape[0, 0].mean(0)
        return float(high.height.mean()), float(
            np.sqrt(gradient @ self.shape_covariance @ gradient)
        )

    def foretold(self, size: int, log2_rate: Array) -> Array:
        """Log losses of runs that are planned at a size."""
        away = np.asarray(log2_rate, float) - self.origin - self.mode.fit.k[0, size]
        return np.asarray(self.level[size] + self.rise(size, away))

    def turn(self, axis: int) -> Estimate:
        """T along an axis: by what log steepness right over left grows per doubling, halved."""
        at = SHARED + self.s.shape[1] + axis
        value = float(self.mode.fit.shape[0, at])
        half = 1.96 * float(np.sqrt(self.shape_covariance[at, at]))
        return Estimate(value=value, low=value - half, high=value + half)

    def planned(self, curves: Curves, *, quieter: float = 1.0) -> "Posterior":
        """The posterior that is expected of curves with planned runs, at the heaviest node."""
        batch = Curves(log2_lrs=curves.log2_lrs[None], losses=curves.losses[None])
        linear, precision = expected(self.mode, np.array([self.origin]), batch, self.s, quieter)
        errors = shared_errors(curves.seeds.astype(float), self.s.sum(-1))
        constant, linear, precision = blurred(np.zeros(1), linear, precision, self.seeds, errors)
        return replace(self, constant=constant, linear=linear, precision=precision)

    def of_sizes(self, rows: Array) -> NormalMixture:
        """Combinations of the minima of trained sizes, (answers, sizes): these sizes."""
        return self.minima.of_sizes(rows)

    def of_law(self, rows: Array, places: Array, *, scatter: bool) -> NormalMixture:
        """Combinations of places, (answers, places), at doublings (places, axes): the law.

        Of the minima there, with their scatter, or of the law alone.
        """
        return self.minima.of_law(rows, places, scatter=scatter)


def _one(seen: Information, curves: Curves, s: Array, i: int) -> Posterior:
    """That of one experiment of a batch."""
    alive = np.isfinite(seen.nodes.constant[i])
    errors = shared_errors(curves.seeds[i].astype(float), s.sum(-1))
    constant, linear, precision = blurred(
        seen.nodes.constant[i][alive],
        seen.nodes.linear[i][alive],
        seen.nodes.precision[i][alive],
        seen.seeds[i],
        errors,
    )
    return Posterior(
        s=s,
        origin=float(seen.origin[i]),
        constant=constant,
        linear=linear,
        precision=precision,
        seeds=seen.seeds[i],
        mode=seen.mode.part(np.array([i])),
        shape_covariance=seen.levels.shape_covariance[i],
        level=seen.levels.level[i],
        level_covariance=seen.levels.covariance[i],
        level_fitted=seen.levels.fitted[i],
        place=float(seen.place[i]),
    )


def posteriors(curves: Curves, doublings: Array) -> Sequence[Posterior]:
    """One for each experiment of a batch (experiments, sizes, rates, seeds)."""
    s = np.asarray(doublings, float)
    seen = information(curves, s)
    return [_one(seen, curves, s, i) for i in range(len(seen.origin))]


def posterior(curves: Curves, doublings: Array) -> Posterior:
    """That of one experiment, (sizes, rates, seeds), whatever the order of its sizes.

    Numbers are rounded far below what runs tell, so that equal tables have equal answers.
    """
    s = np.ascontiguousarray(doublings, float)
    numbers = tuple((a.shape, a.tobytes()) for a in (curves.log2_lrs, curves.losses, s))
    return _kept(_Asked(curves=curves, s=s, numbers=numbers))


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A posterior that is asked for, equal to another of the same numbers."""

    curves: Curves = field(compare=False)
    s: Array = field(compare=False)
    numbers: tuple[tuple[tuple[int, ...], bytes], ...]


@lru_cache(maxsize=64)
def _kept(asked: _Asked) -> Posterior:
    """A study asks for one posterior in each of its answers, and a search in each of its rounds."""
    curves, s = asked.curves, asked.s
    order = np.lexsort((np.arange(len(s)), *s.T[::-1]))
    x, losses = _packed(curves.log2_lrs[order], curves.losses[order])
    found = posteriors(Curves(log2_lrs=x[None], losses=losses[None]), s[order])[0]
    back = np.argsort(order)
    return replace(
        found,
        s=s,
        linear=found.linear[:, back],
        precision=found.precision[:, back][:, :, back],
        mode=found.mode.reordered(back),
        level=found.level[back],
        level_covariance=found.level_covariance[back][:, back],
        level_fitted=found.level_fitted[back][:, back],
    )


def _packed(x: Array, losses: Array) -> tuple[Array, Array]:
    """Curves whose rates with runs stand first, without empty columns, rounded."""
    there = ~np.isnan(losses).all(-1) & ~np.isnan(x)
    first = np.argsort(~there, axis=-1, kind="stable")
    kept = max(int(there.sum(-1).max()), 1)
    x = np.take_along_axis(np.where(there, x, np.nan), first, -1)[:, :kept]
    losses = np.take_along_axis(np.where(there[..., None], losses, np.nan), first[..., None], -2)
    losses = losses[:, :kept]
    seeds = ~np.isnan(losses).all((0, 1))
    losses = losses[..., seeds] if seeds.any() else losses[..., :1]
    return np.round(x, 9), np.exp(np.round(np.log(losses), 9))


def slope_row(positions: Array) -> Array:
    """Weights by which values have a least-squares slope against log2 sizes."""
    x = positions - positions.mean()
    return np.asarray(x / (x @ x))


def drifts(
    positions: Numbers, curves: Curves, confidence: float = CONFIDENCE
) -> tuple[Array, Array, Array]:
    """Least-squares slopes of minima against log2 sizes, of a batch: values, and interval ends."""
    x = np.asarray(positions, float)
    row = slope_row(x)
    found = [p.estimate(row, confidence) for p in posteriors(curves, (x - x.min())[:, None])]
    value, low, high = np.array([(e.value, e.low, e.high) for e in found]).reshape(-1, 3).T
    return value, low, high
