"""The minima of all sizes given all runs: normal nodes times laws, of which answers are rows.

A size has one minimum, or the vector of several values' minima: the law of sizes then holds for
each of them, with hyperparameters in common. Entries are ordered size by size, and within a size
value by value.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.posterior.intervals import Array, Index
from depthmup.posterior.law import Covariances, Prior, prior_of, stacked
from depthmup.posterior.mixture import NormalMixture, heaviest

KEPT = 0.998
"""Share of the weight that the nodes kept have."""

FEW, MOST = 4, 500
"""Nodes by which laws are weighed first, and pairs of a node and a law that are kept."""

ENTRIES, TOGETHER = 20, 8192
"""Minima up to which matrices are factored entry by entry, and how many of them at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MinimaPosterior:
    """What nodes and laws tell of the minima.

    Attributes:
        s: doublings of the sizes from the base, (sizes, axes).
        origin: log2 values from which the nodes count, (values,).
        constant, linear, precision: of every node, as in ``posterior.nodes``, seeds' own included.
        directions: principal ones of several values, as rows, (values, values).
        place: root of the covariance by which all minima may lie aside alike, (values, values).
    """

    s: Array
    origin: Array
    constant: Array
    linear: Array
    precision: Array
    directions: Array
    place: Array

    @property
    def values(self) -> int:
        """Of each size."""
        return len(self.origin)

    @cached_property
    def _prior(self) -> Prior:
        return prior_of(self.s, self.directions)

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
        inner = np.swapaxes(root, -1, -2) @ self.precision[node] @ root + np.eye(
            len(self.s) * self.values
        )
        right = np.einsum("nij,ni->nj", root, self.linear[node])
        inverse = np.linalg.inv(inner)
        solved = np.einsum("nij,nj->ni", inverse, right)
        return weight / weight.sum(), some[law], np.asarray(inverse, float), solved

    def _sums(self, rows: Array) -> Array:
        """Of the weights that answers give each value, (answers, values)."""
        return np.stack([rows[:, i :: self.values].sum(-1) for i in range(self.values)], -1)

    def _moved(self, rows: Array) -> Array:
        """The origin's part of answers, (answers,)."""
        return np.asarray((self._sums(rows) * self.origin).sum(-1))

    def _aside(self, rows: Array) -> Array:
        """Variance of answers because all minima may lie aside alike, (answers,)."""
        return np.asarray(((self._sums(rows) @ self.place) ** 2).sum(-1))

    def of_sizes(self, rows: Array) -> NormalMixture:
        """Combinations of the minima of trained sizes, (answers, sizes * values): these sizes."""
        weight, law, inverse, solved = self._solved
        read = np.einsum("ai,nij->anj", rows, self._prior.root[law])
        mean = (read * solved).sum(-1) + self._moved(rows)[:, None]
        variance = np.einsum("ani,nij,anj->an", read, inverse, read)
        variance += self._aside(rows)[:, None]
        return NormalMixture(
            mean=mean,
            deviation=np.sqrt(np.maximum(variance, 0.0)),
            weight=np.broadcast_to(weight, mean.shape),
        )

    @cached_property
    def covariance(self) -> Array:
        """Of the minima of all sizes about where each other lie, (sizes * values, same)."""
        weight, law, inverse, solved = self._solved
        root = self._prior.root[law]
        mean = np.einsum("nij,nj->ni", root, solved)
        apart = mean - weight @ mean
        within = np.einsum("n,nij,njk,nlk->il", weight, root, inverse, root, optimize=True)
        return np.asarray(within + np.einsum("n,ni,nj->ij", weight, apart, apart))

    def draws(self, rows: Array, count: int, rng: np.random.Generator) -> Array:
        """Draws of some combinations together, (count, answers)."""
        weight, law, inverse, solved = self._solved
        read = np.einsum("ai,nij->naj", rows, self._prior.root[law])
        mean = np.einsum("naj,nj->na", read, solved) + self._moved(rows)
        covariance = np.einsum("nai,nij,nbj->nab", read, inverse, read)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
        node = rng.choice(len(weight), size=count, p=weight)
        drawn = np.einsum("nab,nb->na", root[node], rng.standard_normal((count, len(rows))))
        aside = rng.standard_normal((count, self.values)) @ (self._sums(rows) @ self.place).T
        return np.asarray(mean[node] + drawn + aside)

    def of_law(self, rows: Array, places: Array, *, scatter: bool) -> NormalMixture:
        """Combinations of places, (answers, places * values), at doublings (places, axes): the law.

        Of the minima there, with their scatter, or of the law alone.
        """
        weight, law, inverse, solved = self._solved
        count = len(self.s) * self.values
        everywhere = Covariances(s=np.concatenate([self.s, places]))
        prior = self._prior
        laws, which = np.unique(law, return_inverse=True)
        total = np.stack(
            [
                stacked(everywhere, prior.nodes[i], prior.ways[i], scatter=scatter)
                for i in map(int, laws)
            ]
        )
        cross = rows @ total[:, count:, :count]
        target = np.einsum("ai,lij,aj->al", rows, total[:, count:, count:], rows)
        read = np.linalg.solve(prior.root[laws], np.swapaxes(cross, 1, 2))[which]
        means = np.einsum("nja,nj->an", read, solved)
        gone = np.eye(count) - inverse
        variances = target[:, which] - np.einsum("nia,nij,nja->an", read, gone, read)
        mean = means + self._moved(rows)[:, None]
        variances += self._aside(rows)[:, None]
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
    try:
        factor = np.linalg.cholesky(bordered)
    except np.linalg.LinAlgError:  # a node that rounding left without a positive matrix: NaN there
        return _by_entries(root, linear, precision)
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


def blurred(
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
