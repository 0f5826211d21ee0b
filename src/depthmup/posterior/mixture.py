"""A mixture of normal distributions: what every answer of a posterior is, with its quantiles."""

from dataclasses import dataclass

import numpy as np

from depthmup.posterior.distributions import normal_below, normal_density
from depthmup.posterior.intervals import Array, Index
from depthmup.records import Estimate

NEWTON, HALVINGS = 20, 40
EXACT, ALMOST = 1e-13, 1e-11
"""A quantile stands where Newton's step is this share of the reach, 80 deviations or more, and less
than this probability lacks."""

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

    @property
    def variance(self) -> Array:
        """(...,)."""
        apart = self.mean - self.value[..., None]
        return np.asarray((self.weight * (self.deviation**2 + apart**2)).sum(-1))

    def below(self, at: Array) -> tuple[Array, Array]:
        """Probability of less and its density, (...,)."""
        deviation = np.maximum(self.deviation, 1e-300)
        standard = (at[..., None] - self.mean) / deviation
        density = normal_density(standard) / deviation
        below = (self.weight * normal_below(standard)).sum(-1)
        return np.asarray(below), np.asarray((self.weight * density).sum(-1))

    def quantile(self, share: float | Array) -> Array:
        """(...,), by Newton's steps between ends that close in; of shares that broadcast."""
        reach = 40 * self.deviation
        ends = (self.mean - reach).min(-1), (self.mean + reach).max(-1)
        low, high, share = np.broadcast_arrays(*ends, share)
        near = EXACT * (high - low)
        at = (low + high) / 2
        for number in range(NEWTON + HALVINGS):
            below, density = self.below(at)
            low, high = np.where(below < share, at, low), np.where(below < share, high, at)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = (share - below) / density
            # At a step of the distribution the density is infinite, and Newton's step is none.
            small, solved = np.abs(newton) <= near, np.abs(share - below) <= ALMOST
            inside = (low <= at + newton) & (at + newton <= high)
            good = inside & (solved | ~small) & (number < NEWTON)
            # What is solved stays, whatever the others still need.
            step = np.where(good, newton, (low + high) / 2 - at) * ~(small & solved)
            at = at + step
            if not (np.abs(step) > near).any():
                break
        return np.asarray(at)

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
        mean, deviation, weight = self.mean[0], self.deviation[0], self.weight[0]
        low, high = self.quantile(np.array([[ENDS], [1 - ENDS]]))[:, 0]
        at = np.linspace(low, high, POINTS)
        below = normal_below((at[:, None] - mean) / np.maximum(deviation, 1e-300)) @ weight
        return np.interp(shares, below, at)


def heaviest(log: Array, share: float) -> Index:
    """Indices of the entries that have this share of the weight."""
    order = np.argsort(-log)
    weight = np.exp(log[order] - log[order[0]])
    total = np.cumsum(weight)
    return np.asarray(order[: int(np.searchsorted(total, share * total[-1])) + 1], np.int64)
