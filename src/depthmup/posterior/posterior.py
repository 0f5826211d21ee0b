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
from depthmup.posterior.intervals import CONFIDENCE, Array, Index, Numbers
from depthmup.posterior.law import Covariances, Prior, prior_of
from depthmup.posterior.likelihood import Information, Mode, expected, information
from depthmup.posterior.mixture import NormalMixture, heaviest
from depthmup.posterior.seeds import shared_errors
from depthmup.posterior.valley import SHARED, rise
from depthmup.records import Estimate

KEPT = 0.998
"""Share of the weight that the nodes kept have."""

FEW, MOST = 4, 500
"""Nodes by which laws are weighed first, and pairs of a node and a law that are kept."""

ENTRIES, TOGETHER = 20, 8192
"""Sizes up to which matrices are factored entry by entry, and how many of them at a time."""


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
    def _prior(self) -> Prior:
        return prior_of(self.s)

    @cached_property
    def _solved(self) -> tuple[Array, Index, Array, Array]:
        """Of every pair of a node and a law that counts: weight, law, M^-1 and M^-1 L'b."""
        prior = self._prior
        # A node's constant is its weight at the origin alone: what counts is all of the minima.
        usual = [int(prior.log_weight.argmax())]
        of_nodes = _log_weights(prior.root[usual], self.linear, self.precision)[0] + self.constant
        heavy = heaviest(of_nodes, KEPT)[:FEW]
        first = _log_weights(prior.root, self.linear[heavy], self.precision[heavy])
        first = np.logaddexp.reduce(first + self.constant[heavy], axis=1)
        some = heaviest(first + prior.log_weight, KEPT)
        log = (
            _log_weights(prior.root[some], self.linear, self.precision)
            + prior.log_weight[some, None]
            + self.constant
        )
        flat = heaviest(log.ravel(), KEPT)[:MOST]
        law, node = np.unravel_index(flat, log.shape)
        weight = np.exp(log.ravel()[flat] - log.max())
        root = prior.root[some][law]
        inner = np.swapaxes(root, -1, -2) @ self.precision[node] @ root + np.eye(len(self.s))
        right = np.einsum("nij,ni->nj", root, self.linear[node])
        inverse = np.linalg.inv(inner)
        solved = np.einsum("nij,nj->ni", inverse, right)
        return weight / weight.sum(), some[law], np.asarray(inverse, float), solved

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
        constant, linear, precision = _blurred(np.zeros(1), linear, precision, self.seeds, errors)
        return replace(self, constant=constant, linear=linear, precision=precision)

    def of_sizes(self, rows: Array) -> NormalMixture:
        """Combinations of the minima of trained sizes, (answers, sizes): these sizes."""
        weight, law, inverse, solved = self._solved
        read = np.einsum("ai,nij->anj", rows, self._prior.root[law])
        mean = (read * solved).sum(-1) + self.origin * rows.sum(-1)[:, None]
        variance = np.einsum("ani,nij,anj->an", read, inverse, read)
        variance += (self.place * rows.sum(-1)[:, None]) ** 2
        return NormalMixture(
            mean=mean,
            deviation=np.sqrt(np.maximum(variance, 0.0)),
            weight=np.broadcast_to(weight, mean.shape),
        )

    def of_law(self, rows: Array, places: Array, *, scatter: bool) -> NormalMixture:
        """Combinations of places, (answers, places), at doublings (places, axes): the law.

        Of the minima there, with their scatter, or of the law alone.
        """
        weight, law, inverse, solved = self._solved
        count = len(self.s)
        everywhere = Covariances(s=np.concatenate([self.s, places]))
        laws, which = np.unique(law, return_inverse=True)
        part = everywhere.whole if scatter else everywhere.smooth
        total = np.stack([part(self._prior.nodes[int(i)]) for i in laws])
        cross = rows @ total[:, count:, :count]
        target = np.einsum("ai,lij,aj->al", rows, total[:, count:, count:], rows)
        read = np.linalg.solve(self._prior.root[laws], np.swapaxes(cross, 1, 2))[which]
        means = np.einsum("nja,nj->an", read, solved)
        gone = np.eye(count) - inverse
        variances = target[:, which] - np.einsum("nia,nij,nja->an", read, gone, read)
        mean = means + self.origin * rows.sum(-1)[:, None]
        variances += (self.place * rows.sum(-1)[:, None]) ** 2
        return NormalMixture(
            mean=mean,
            deviation=np.sqrt(np.maximum(variances, 0.0)),
            weight=np.broadcast_to(weight, mean.shape),
        )


def _log_weights(root: Array, linear: Array, precision: Array) -> Array:
    """log of how likely each law (roots of covariances) makes each node's runs, (laws, nodes).

    Of few sizes for as many laws together as stay in cache, of many for one law at a time.
    """
    together = 1 if root.shape[-1] > ENTRIES else max(1, TOGETHER // len(linear))
    weigh = _by_matrices if root.shape[-1] > ENTRIES else _by_entries
    parts = [
        weigh(root[start : start + together], linear, precision)
        for start in range(0, len(root), together)
    ]
    return np.concatenate(parts)


def _by_matrices(root: Array, linear: Array, precision: Array) -> Array:
    """By the Cholesky factor of [[M, b], [b', c]] of one law: its last row is L^-1 b."""
    (law,), sizes = root, root.shape[-1]
    right, diagonal = linear @ law, np.arange(sizes)
    bordered = np.empty((len(linear), sizes + 1, sizes + 1))
    bordered[:, :sizes, :sizes] = law.T @ precision @ law
    bordered[:, diagonal, diagonal] += 1
    bordered[:, sizes, :sizes] = right
    bordered[:, sizes, sizes] = 1 + (right**2).sum(-1)  # more than b' M^-1 b, as M is at least 1
    factor = np.linalg.cholesky(bordered)
    solved = factor[:, sizes, :sizes]
    logs = np.log(factor[:, diagonal, diagonal])
    return np.asarray(0.5 * (solved**2).sum(-1) - logs.sum(-1))[None]


def _by_entries(root: Array, linear: Array, precision: Array) -> Array:
    """By Cholesky's factors, entry by entry for all nodes and laws together.

    Matrices of a few sizes, one call each, would take five times as long.
    """
    turned, sizes = np.swapaxes(root, -1, -2), root.shape[-1]
    inner = turned @ np.moveaxis(precision, 0, -1).reshape(sizes, -1)
    inner = turned[:, None] @ inner.reshape(*root.shape, -1)
    right = turned @ linear.T
    factor: dict[tuple[int, int], Array] = {}
    solved: list[Array] = []
    log = np.zeros((len(root), len(linear)))
    for j in range(sizes):
        square = 1 + inner[:, j, j] - sum(factor[j, k] ** 2 for k in range(j))
        for i in range(j + 1, sizes):
            rest = sum(factor[i, k] * factor[j, k] for k in range(j))
            factor[i, j] = (inner[:, i, j] - rest) / np.sqrt(square)
        rest = sum(factor[j, k] * solved[k] for k in range(j))
        solved.append((right[:, j] - rest) / np.sqrt(square))
        log += 0.5 * (solved[j] ** 2 - np.log(square))
    return log


def _blurred(
    constant: Array, linear: Array, precision: Array, seeds: Array, errors: Array
) -> tuple[Array, Array, Array]:
    """Nodes with the errors that seeds' own minima are: k + error has Lambda (1 + D Lambda)^-1."""
    some = heaviest(seeds, 0.99)
    own, d = seeds[some] - seeds.max(), errors[some]
    sizes = d.shape[-1]
    inner = np.eye(sizes) + precision[:, None] @ d[None]
    right = np.concatenate([linear[..., None], precision], -1)
    solved = np.linalg.solve(inner, np.broadcast_to(right[:, None], (*inner.shape[:3], sizes + 1)))
    new_linear, new_precision = solved[..., 0], solved[..., 1:]
    _, logs = np.linalg.slogdet(inner)
    gain = np.einsum("ni,sij,nsj->ns", linear, d, new_linear)
    total = constant[:, None] + own - 0.5 * logs + 0.5 * gain
    symmetric = (new_precision + np.swapaxes(new_precision, -1, -2)) / 2
    return total.ravel(), new_linear.reshape(-1, sizes), symmetric.reshape(-1, sizes, sizes)


def _one(seen: Information, curves: Curves, s: Array, i: int) -> Posterior:
    """That of one experiment of a batch."""
    alive = np.isfinite(seen.nodes.constant[i])
    errors = shared_errors(curves.seeds[i].astype(float), s.sum(-1))
    constant, linear, precision = _blurred(
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
