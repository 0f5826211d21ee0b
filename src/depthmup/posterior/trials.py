"""Runs with several tuned values, as plain arrays, and a first guess of their valley."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index

GENTLEST = 0.003
"""Of the steepest curvature: no direction's is taken for smaller."""

OF_ITS_OWN = 4
"""Runs of a seed at a size from which on it has a level there: of fewer, levels are noise."""

PASSES = 4
MOST = 300
"""Runs of one size: others lie far up its valley, and cost the cube of their number."""

BEYOND = 0.5
"""Octaves beyond the runs of a size at which its first guess may lie."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trials:
    """Runs of one variant.

    Attributes:
        x: log2 of the tuned values, (runs, values).
        y: log losses, (runs,); infinite where a run diverged.
        size, seed: numbers of each run's size and seed, (runs,).
        s: doublings of the sizes from the base, (sizes, axes).
    """

    x: Array
    y: Array
    size: Index
    seed: Index
    s: Array

    @cached_property
    def ended(self) -> Flags:
        """Which ended with a finite loss."""
        return np.isfinite(self.y)

    @cached_property
    def finite(self) -> "Trials":
        """Those alone."""
        return self.part(self.ended)

    def part(self, of: Flags | Index) -> "Trials":
        """Some runs."""
        return replace(self, x=self.x[of], y=self.y[of], size=self.size[of], seed=self.seed[of])

    @property
    def sizes(self) -> int:
        return len(self.s)

    @property
    def values(self) -> int:
        return int(self.x.shape[1])

    @cached_property
    def there(self) -> Array:
        """Whether a size has runs of a seed, (sizes, seeds)."""
        found = np.zeros((self.sizes, int(self.seed.max()) + 1))
        found[self.size, self.seed] = 1.0
        return found[:, found.any(0)]

    @cached_property
    def levels(self) -> Array:
        """Which runs share a level, (runs, levels): those of a seed at a size, if they are many."""
        key = self.size * (int(self.seed.max()) + 1) + self.seed
        _, number, count = np.unique(key, return_inverse=True, return_counts=True)
        many = count[number.reshape(-1)] >= OF_ITS_OWN
        shared = np.where(many, key + 1, -1 - self.size)
        _, level = np.unique(shared, return_inverse=True)
        level = level.reshape(-1)
        return np.asarray(level[:, None] == np.arange(int(level.max()) + 1), float)

    @cached_property
    def height(self) -> Array:
        """Log losses above the lowest of their size, of runs that ended."""
        low = np.full(self.sizes, np.inf)
        np.minimum.at(low, self.size, self.y)
        return np.asarray(self.y - low[self.size])


@dataclass(frozen=True, kw_only=True, eq=False)
class Guess:
    """Parabolas of one curvature: centres, (sizes, values), curvature, and scatter about them."""

    centre: Array
    curvature: Array
    noise: float

    def rise(self, runs: Trials) -> Array:
        """Log loss above the minimum at every run."""
        away = runs.x - self.centre[runs.size]
        return 0.5 * np.asarray(np.einsum("ni,ij,nj->n", away, self.curvature, away))

    @cached_property
    def directions(self) -> tuple[Array, Array]:
        """Curvatures, the largest first, and principal directions as rows."""
        values, vectors = np.linalg.eigh(self.curvature)
        return values[::-1], vectors.T[::-1]


def first_guess(trials: Trials) -> Guess:
    """Weighted least squares of parabolas that sizes share but for their centres and levels.

    What lies high counts little: valleys are no parabolas far from their minimum.
    """
    runs = trials.finite
    count, values = runs.sizes, runs.values
    of_size = np.asarray(runs.size[:, None] == np.arange(count), float)
    levels = runs.levels
    usual = np.array([np.median(runs.height[runs.size == i]) for i in range(count)])
    usual = np.maximum(usual, 1e-9)[runs.size]
    middle = best_quarter(runs)
    u = runs.x - middle[runs.size]
    rows, columns = np.triu_indices(values)
    squares = u[:, rows] * u[:, columns] * np.where(rows == columns, 0.5, 1.0)
    linear = (of_size[:, :, None] * u[:, None]).reshape(len(u), -1)
    design = np.concatenate([squares, levels, linear], 1)
    height, noise, found = runs.height, 1.0, np.zeros(0)
    terms = len(rows)
    for _ in range(PASSES):
        root = 1 / np.sqrt(1 + (np.maximum(height, 0.0) / usual) ** 2)
        # A slope that few runs show is taken to be small against the curvature's.
        prior = np.r_[
            np.zeros(terms + levels.shape[1]), np.full(count * values, 1e-3 * root.mean())
        ]
        found = np.linalg.lstsq(
            np.concatenate([design * root[:, None], np.diag(prior)]),
            np.concatenate([runs.y * root, np.zeros(len(prior))]),
            rcond=1e-10,
        )[0]
        rest = (runs.y - design @ found) * root
        noise = float(np.sqrt((rest**2).sum() / max(len(rest) - design.shape[1], 1)))
        curvature = np.zeros((values, values))
        curvature[rows, columns] = curvature[columns, rows] = found[:terms]
        curvature = _steep(curvature, float(runs.height.max()) / 32)
        slope = found[terms + levels.shape[1] :].reshape(count, values)
        centre = _inside(runs, middle - np.linalg.solve(curvature, slope.T).T)
        away = runs.x - centre[runs.size]
        height = 0.5 * np.einsum("ni,ij,nj->n", away, curvature, away)
    return Guess(centre=centre, curvature=curvature, noise=noise)


def nearest(runs: Trials, guess: Guess) -> Trials:
    """The runs of each size that lie lowest in a first guess, which no loss of theirs decides."""
    rise, kept = guess.rise(runs), np.zeros(len(runs.y), bool)
    for i in range(runs.sizes):
        own = np.flatnonzero(runs.size == i)
        kept[own[np.argsort(rise[own], kind="stable")[:MOST]]] = True
    return runs.part(kept)


def best_quarter(runs: Trials) -> Array:
    """The middle of each size's best quarter of runs, (sizes, values)."""
    middle = np.full((runs.sizes, runs.values), np.nan)
    for i in range(runs.sizes):
        own = np.flatnonzero(runs.size == i)
        best = own[np.argsort(runs.y[own])[: max(1, len(own) // 4)]]
        if len(own):
            middle[i] = runs.x[best].mean(0)
    return np.where(np.isnan(middle), np.nanmean(middle, 0), middle)


def _steep(curvature: Array, otherwise: float) -> Array:
    """The same without directions that fall."""
    values, vectors = np.linalg.eigh(curvature)
    most = values.max() if values.max() > 0 else max(otherwise, 1e-6)
    return np.asarray((vectors * np.maximum(values, GENTLEST * most)) @ vectors.T)


def _inside(runs: Trials, centre: Array) -> Array:
    """Centres that lie among the runs of their size, or near them."""
    low, high = np.full((2, runs.sizes, runs.values), np.nan)
    for i in range(runs.sizes):
        own = runs.x[runs.size == i]
        if len(own):
            low[i], high[i] = own.min(0), own.max(0)
    low, high = (np.where(np.isnan(end), centre, end) for end in (low, high))
    return np.clip(centre, low - BEYOND, high + BEYOND)
