"""Averages over the neurons of an infinitely wide block: points of a standard Gaussian.

A neuron of a block with two matrices is a function of independent standard Gaussians (its initial
weights), and what training does to the network is made of averages over neurons. Where no closed
form exists they are sums over points: quasi-random ones (any dimension, error measured by the
spread over independent scrambles) or a product Gauss-Hermite rule (few dimensions, smooth
activations).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special, stats
from scipy.stats import qmc

from depthmup.limits.step import Array

_MOST_NODES = 2**22
"""A product rule's size: 32 MiB per dimension."""


class Averages:
    """Samples in the place of infinitely many neurons or entries."""

    def estimate(self, values: Array) -> tuple[Array, float]:
        """The value and its largest error, from ``values`` (solves, ...) of one solve per sample.

        The mean of independent solves, and half the width of its widest 95 % interval.
        """
        count = len(values)
        margin = float(stats.t.ppf(0.975, count - 1)) / math.sqrt(count)
        return values.mean(axis=0), float(margin * values.std(axis=0, ddof=1).max(initial=0.0))


class Neurons(Averages, ABC):
    """Which neurons stand for the infinitely many of a block."""

    @abstractmethod
    def samples(self, dimension: int) -> Iterator[tuple[Array, Array]]:
        """(points (count, dimension), weights (count,)) of each solve; weights sum to one."""


@dataclass(frozen=True, kw_only=True)
class Sobol(Neurons):
    """Scrambled Sobol points; several independent scrambles give the error.

    ``points`` is a power of two, per scramble. The value is the mean over scrambles and the error
    half the width of Student's 95 % interval.

    Attributes:
        scrambles: independent sets of points.
        seed: of the scrambling.

    >>> [weights.shape for _, weights in Sobol(points=64, scrambles=2).samples(3)]
    [(64,), (64,)]

    *Source:* Owen, "Randomly permuted (t,m,s)-nets and (t,s)-sequences" (1995); SciPy's
    ``qmc.Sobol``.
    """

    points: int = 4096
    scrambles: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.points < 2 or self.points & (self.points - 1):
            raise ValueError(f"points must be a power of two, at least 2; got {self.points}.")
        if self.scrambles < 2:
            raise ValueError(
                "The error is the spread over scrambles: at least 2 are needed; got "
                f"{self.scrambles}."
            )

    def samples(self, dimension: int) -> Iterator[tuple[Array, Array]]:
        if dimension > qmc.Sobol.MAXDIM:
            raise ValueError(
                f"The average over neurons has {dimension} dimensions; Sobol points have at most "
                f"{qmc.Sobol.MAXDIM}. Use fewer training vectors."
            )
        weights = np.full(self.points, 1.0 / self.points)
        for child in np.random.SeedSequence(self.seed).spawn(self.scrambles):
            yield gaussian_sobol(dimension, self.points, np.random.default_rng(child)), weights


@dataclass(frozen=True, kw_only=True)
class Hermite(Neurons):
    """A product Gauss-Hermite rule with ``order`` nodes per dimension: for few dimensions.

    It converges geometrically where neurons are smooth functions of their initial weights. The
    error is the difference to the rule with four nodes fewer.

    >>> points, weights = list(Hermite(order=6).samples(2))[-1]
    >>> points.shape, round(float(weights @ points[:, 0] ** 2), 12)
    ((36, 2), 1.0)

    *Source:* Golub and Welsch (1969), Mathematics of Computation 23:221-230; NumPy's
    ``hermegauss``.
    """

    order: int = 16

    def __post_init__(self) -> None:
        # NumPy vouches for its nodes up to degree 100, and the error needs a rule of four fewer.
        if not 6 <= self.order <= 100:
            raise ValueError(f"order must lie in 6..100; got {self.order}.")

    def samples(self, dimension: int) -> Iterator[tuple[Array, Array]]:
        if self.order**dimension > _MOST_NODES:
            raise ValueError(
                f"A product rule with {self.order} nodes in each of {dimension} dimensions is too "
                "large. Use limits.Sobol, fewer nodes, or a problem of fewer dimensions."
            )
        for order in (self.order - 4, self.order):
            nodes, weights = np.polynomial.hermite_e.hermegauss(order)
            # The rule integrates exp(-x^2 / 2), so that its weights sum to sqrt(2 pi).
            weights = weights / weights.sum()
            grid = np.stack(np.meshgrid(*[nodes] * dimension, indexing="ij"), axis=-1)
            product = np.ones(1)
            for _ in range(dimension):
                product = np.multiply.outer(product, weights).ravel()
            yield grid.reshape(-1, dimension), product

    def estimate(self, values: Array) -> tuple[Array, float]:
        return values[-1], float(np.abs(values[-1] - values[-2]).max(initial=0.0))


class Quadratic(Neurons):
    """Exact for quadratic forms, which is all that linear neurons need: one point per axis."""

    def samples(self, dimension: int) -> Iterator[tuple[Array, Array]]:
        # E x x^T = I. The mean is not 0, but linear neurons meet no odd moment.
        yield math.sqrt(dimension) * np.eye(dimension), np.full(dimension, 1.0 / dimension)

    def estimate(self, values: Array) -> tuple[Array, float]:
        return values[0], 0.0


@dataclass(frozen=True, kw_only=True)
class Particles(Averages):
    """Entries of the stream, by random particles; independent populations give the error.

    ``count`` particles (and, with two matrices, as many neurons) in each population. Memory is
    about 40 bytes per particle, block and training vector; the error falls as one over the root of
    ``count`` times ``populations``. It is half the width of Student's 95 % interval.

    Attributes:
        seed: of the random numbers.

    >>> Particles(count=1024).populations
    8

    *Source:* derived here by Gaussian conditioning; not proved.
    """

    count: int = 2**14
    populations: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 256 or self.count & (self.count - 1):
            raise ValueError(f"count must be a power of two, at least 256; got {self.count}.")
        if self.populations < 2:
            raise ValueError(
                "The error is the spread over populations: at least 2 are needed; got "
                f"{self.populations}."
            )

    def seeds(self) -> list[np.random.SeedSequence]:
        return np.random.SeedSequence(self.seed).spawn(self.populations)


def gaussian_sobol(dimension: int, count: int, rng: np.random.Generator) -> Array:
    """Scrambled Sobol points of a standard Gaussian: (count, dimension)."""
    uniform = qmc.Sobol(dimension, rng=rng).random(count)
    # A scrambled point can be 0 in 53 bits, whose quantile is infinite.
    return np.asarray(special.ndtri(np.clip(uniform, 2.0**-54, 1 - 2.0**-53)))
