"""How the minima of sizes lie: a Gaussian law, a mixture over what is not known of it.

At sizes s (doublings along each axis from the base)

    cov(k, k') = 4^2 + sum_a [b^2 s_a s_a' + w^2 O(s_a, s_a'; l)] + j^2 sum_{a<b} s_a s_b s_a' s_b'
                 + tau^2 0.6^|s - s'|,
    O(x, x'; l) = [g(|x|) + g(|x'|) - g(|x - x'|)] / 2,    g(d) = 2 l^2 (exp(-d/l) - 1 + d/l):

a slope b that stays, a slope of standard deviation w that is forgotten over l doublings
(Uhlenbeck and Ornstein's, integrated), products of two axes, and the scatter of sizes about all
that, of which 0.6 is shared a doubling on. Rates are counted from any common place: 4 octaves say
that it is not known.

Nothing is refused for want of knowledge about b, w, l, j and tau: ``laws`` lists what they may be,
with their weights before any run.

*Source:* Cressie, Statistics for Spatial Data (1993), Section 3.4; Uhlenbeck and Ornstein (1930),
Physical Review 36:823-841.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, product
from typing import TypeAlias

import numpy as np

from depthmup.posterior.intervals import Array
from depthmup.posterior.priors import (
    ALIKE,
    APART,
    BENDS,
    FAST,
    FORGETS,
    GOES_ON,
    LOST,
    MEMORIES,
    OWN_SLOPE,
    PLACE,
    PRODUCTS,
    SCATTERS,
    SLOPES,
    SLOW,
    STANDS,
    STILL,
    WALKS,
)

Size: TypeAlias = Mapping[str, float]
"""Values by axis, such as ``{"width": 64, "depth": 8}``."""


@dataclass(frozen=True, kw_only=True)
class LawNode:
    """One law that the minima may follow, and its weight before any run.

    Attributes:
        slope: standard deviation of a slope that stays, octaves per doubling.
        forgotten: pairs of standard deviation and memory, in doublings, of slopes that are lost.
        scatter: octaves by which sizes scatter.
        products: octaves per doubling squared of every pair of axes.
    """

    slope: float
    forgotten: tuple[tuple[float, float], ...]
    scatter: float
    products: float
    weight: float


def _slopes() -> Iterator[tuple[float, tuple[tuple[float, float], ...], float]]:
    """How slopes may stay or be forgotten, with weights."""
    yield STILL, (), STANDS
    for (stays, wb), (bend, wn), (walk, wf) in product(SLOPES, BENDS, WALKS):
        yield stays, _some((bend, SLOW), (walk, FAST)), GOES_ON * wb * wn * wf
    for (lost, wl), (memory, walk) in product(LOST, MEMORIES):
        yield STILL, _some((lost, memory), (walk, FAST)), FORGETS * wl / len(MEMORIES)


def _some(*forgotten: tuple[float, float]) -> tuple[tuple[float, float], ...]:
    return tuple(pair for pair in forgotten if pair[0])


@lru_cache(maxsize=2)
def laws(several: bool) -> tuple[LawNode, ...]:
    """Every law, of one axis or of several."""
    crossed = PRODUCTS if several else ((0.0, 1.0),)
    return tuple(
        LawNode(slope=b, forgotten=lost, scatter=tau, products=j, weight=weight * wt * wj)
        for (b, lost, weight), (tau, wt), (j, wj) in product(_slopes(), SCATTERS, crossed)
    )


def integrated(x: Array, memory: float) -> Array:
    """Covariance of slopes of unit deviation integrated from 0, summed over the axes of x."""

    def variance(distance: Array) -> Array:
        ratio = distance / memory
        exact = np.expm1(-ratio) + ratio
        return np.asarray(2 * memory**2 * np.where(ratio < 1e-3, ratio**2 / 2, exact))

    here = variance(np.abs(x))
    apart = variance(np.abs(x[:, None] - x[None]))
    return np.asarray((here[:, None] + here[None] - apart).sum(-1) / 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Covariances:
    """The parts of the covariance of minima at some sizes, (sizes, axes), each of unit scale."""

    s: Array

    @cached_property
    def _forgotten(self) -> dict[float, Array]:
        return {}

    def _walk(self, memory: float) -> Array:
        if memory not in self._forgotten:
            self._forgotten[memory] = integrated(self.s, memory)
        return self._forgotten[memory]

    def smooth(self, node: LawNode) -> Array:
        """Of the law alone: its place, its slopes, and their products."""
        total = np.full((len(self.s), len(self.s)), PLACE**2)
        total += node.slope**2 * (self.s @ self.s.T)
        for deviation, memory in node.forgotten:
            total += deviation**2 * self._walk(memory)
        if node.products:
            for a, b in combinations(range(self.s.shape[1]), 2):
                both = self.s[:, a] * self.s[:, b]
                total += node.products**2 * np.outer(both, both)
        return total

    def scatter(self, node: LawNode) -> Array:
        """What each size has of its own."""
        return np.asarray(node.scatter**2 * self._alike)

    @cached_property
    def _alike(self) -> Array:
        return np.asarray(ALIKE ** np.abs(self.s[:, None] - self.s[None]).sum(-1))

    def whole(self, node: LawNode) -> Array:
        """Of the minima themselves."""
        return self.smooth(node) + self.scatter(node)


def stacked(parts: Covariances, node: LawNode, way: Array, *, scatter: bool) -> Array:
    """Covariance of the minima of several values, size by size: the law holds for each of them.

    ``way`` is a direction in which they have a slope of their own beside, or zero.
    """
    total = parts.whole(node) if scatter else parts.smooth(node)
    if len(way) > 1:
        total = np.asarray(np.kron(total, np.eye(len(way))), float)
        if way.any():
            total += OWN_SLOPE**2 * np.kron(parts.s @ parts.s.T, np.outer(way, way))
    return np.asarray(total)


@dataclass(frozen=True, kw_only=True, eq=False)
class Prior:
    """Every law at some sizes: covariances of their minima, (laws, sizes, sizes), and roots.

    Of several values each law stands there without and with a slope of one direction's own.
    """

    nodes: tuple[LawNode, ...]
    ways: Array
    log_weight: Array
    whole: Array
    root: Array


TINY = 1e-10
"""Octaves squared by which sizes that cannot differ may: a covariance has a root."""


ONE = np.eye(1)
"""The direction of one value."""


def prior_of(s: Array, directions: Array = ONE) -> Prior:
    """The laws at sizes (sizes, axes), of values with principal directions; nobody writes into it.

    Directions are rows, (values, values).
    """
    s, directions = (np.ascontiguousarray(a, float) for a in (s, directions))
    # Directions are those of one table: nobody asks for the laws of several values again.
    made = _prior if len(directions) == 1 else _prior.__wrapped__
    return made(s.tobytes(), s.shape, directions.tobytes())


@lru_cache(maxsize=64)
def _prior(numbers: bytes, shape: tuple[int, int], turned: bytes) -> Prior:
    s = np.frombuffer(numbers).reshape(shape)
    every = laws(shape[1] > 1)
    covariances = Covariances(s=s)
    directions = np.frombuffer(turned)
    values = math.isqrt(len(directions))
    ways, shares = np.zeros((1, values)), np.ones(1)
    if values > 1:
        ways = np.concatenate([ways, directions.reshape(values, values)])
        shares = np.r_[1 - APART, np.full(values, APART / values)]
    pairs = list(product(every, range(len(ways))))
    whole = np.stack([stacked(covariances, node, ways[i], scatter=True) for node, i in pairs])
    return Prior(
        nodes=tuple(node for node, _ in pairs),
        ways=np.array([ways[i] for _, i in pairs]),
        log_weight=np.log([node.weight * shares[i] for node, i in pairs]),
        whole=whole,
        root=np.asarray(np.linalg.cholesky(whole + TINY * np.eye(whole.shape[-1])), float),
    )
