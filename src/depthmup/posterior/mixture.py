"""A mixture of normal distributions: what every answer of a posterior is, with its quantiles."""

from dataclasses import dataclass

import numpy as np

from depthmup.posterior.intervals import Array, Index
from depthmup.records import Estimate

HALVINGS = 40

ENDS, POINTS = 1e-4, 400
"""The part of a distribution beyond which nothing is drawn, and the points between."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalMixture:
    """Normal distributions and their weights, (..., nodes)."""

    mean: Array
    deviation: Array
    weight: Array

    @property
    def value(self) -> Array:
        """Its mean, (...,)."""
        return np.asarray((self.weight * self.mean).sum(-1))

    def below(self, at: Array) -> Array:
        """Probability of less, (...,)."""
        from scipy.special import ndtr

        standard = (at[..., None] - self.mean) / np.maximum(self.deviation, 1e-300)
        return np.asarray((self.weight * ndtr(standard)).sum(-1))

    def quantile(self, share: float | Array) -> Array:
        """(...,), by bisection; of shares that broadcast with the answers, all together."""
        reach = 40 * self.deviation
        low, high = (self.mean - reach).min(-1), (self.mean + reach).max(-1)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            under = self.below(middle) < share
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        return np.asarray((low + high) / 2)

    def interval(self, confidence: float) -> tuple[Array, Array, Array]:
        """The end below, the median and the end above, between equal tails, (...,) each."""
        tail = (1 - confidence) / 2
        shares = np.array([tail, 0.5, 1 - tail]).reshape(3, *(1 for _ in self.mean.shape[:-1]))
        low, middle, high = self.quantile(shares)
        return low, middle, high

    def estimate(self, confidence: float, unit: str = "") -> Estimate:
        """The first answer: its median, and the interval between equal tails."""
        low, value, high = (float(end[0]) for end in self.interval(confidence))
        return Estimate(value=value, low=low, high=high, unit=unit)

    def quantiles(self, shares: Array) -> Array:
        """Many quantiles of the first answer, (shares,), to a thousandth of its spread."""
        from scipy.special import ndtr

        mean, deviation, weight = self.mean[0], self.deviation[0], self.weight[0]
        low, high = self.quantile(np.array([[ENDS], [1 - ENDS]]))[:, 0]
        at = np.linspace(low, high, POINTS)
        below = ndtr((at[:, None] - mean) / np.maximum(deviation, 1e-300)) @ weight
        return np.interp(shares, below, at)


def heaviest(log: Array, share: float) -> Index:
    """Indices of the entries that have this share of the weight."""
    order = np.argsort(-log)
    weight = np.exp(log[order] - log[order[0]])
    total = np.cumsum(weight)
    return np.asarray(order[: int(np.searchsorted(total, share * total[-1])) + 1], np.int64)
