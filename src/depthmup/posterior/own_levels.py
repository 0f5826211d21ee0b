"""What seeds have of a level of their own.

A seed's level at a size lies aside by a part of variance o^2. Contrasts of f seeds, of mean square
S, say

    log p(S | o) = -f/2 (log v + S / v),    v = o^2 + n,

n the part of S that the noise of their runs is. With one seed the prior stays, and what sizes
scatter by.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.posterior.curve import Curves
from depthmup.posterior.intervals import Array
from depthmup.posterior.priors import OWN_LEVELS
from depthmup.posterior.seeds import averages


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
class SeedCurves:
    """Curves of some sizes, and the variance of a run's noise."""

    curves: Curves
    noise: float

    @cached_property
    def levels(self) -> tuple[Array, Array]:
        """Of each seed over the average of its size, NaN without; and the noise's part of them."""
        found = averages(self.curves)
        level = found.level
        rates = (found.weight > 0).sum(-2)
        there = ~np.isnan(level) & (rates > 0)
        return np.where(there, level, np.nan), np.where(there, self.noise / np.maximum(rates, 1), 0)


def contrasts(a: SeedCurves, b: SeedCurves | None, *, paired: bool) -> SeedContrasts:
    """What seeds show of their own levels: of one variant, or of the gap between two."""
    (level, noise), run = a.levels, a.noise
    if b is None:
        return _pooled(level, noise, run)
    other, noise_b = b.levels
    run += b.noise
    if paired:
        return _pooled(level - other, noise + noise_b, run)
    one, two = _pooled(level, noise, a.noise), _pooled(other, noise_b, b.noise)
    # Seeds of their own: both variances count, and as many of each as their harmonic mean.
    count = 2 / (1 / np.maximum(one.count, 1) + 1 / np.maximum(two.count, 1))
    return SeedContrasts(
        count=count,
        square=one.square + two.square,
        freedom=min(one.freedom, two.freedom),
        noise=one.noise + two.noise,
        run=run,
    )


def _pooled(level: Array, noise: Array, run: float) -> SeedContrasts:
    there = ~np.isnan(level)
    count = there.sum(-1)
    mean = np.where(there, level, 0.0).sum(-1, keepdims=True) / np.maximum(count, 1)[:, None]
    freedom = float(np.maximum(count - 1, 0).sum())
    square = float((np.where(there, level - mean, 0.0) ** 2).sum() / max(freedom, 1))
    part = float(np.where(there, noise, 0.0).sum() / max(count.sum(), 1))
    return SeedContrasts(
        count=count.astype(float), square=square, freedom=freedom, noise=part, run=run
    )
