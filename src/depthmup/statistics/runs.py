"""The runs of one variant, whoever made them: sizes and their curves, and slices of sizes.

Sizes of which one axis changes alone are a *slice*: an arm of a design, or several of a table.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from depthmup.posterior.curve import Curves
from depthmup.posterior.intervals import CONFIDENCE, Array, Flags, Index
from depthmup.posterior.law import Size
from depthmup.records import Axis, Estimate, Optimum, Place
from depthmup.statistics.minimum import Minima, failed, measured, minima
from depthmup.statistics.optimum import Optima, optima
from depthmup.statistics.table import changing_together, confounded, slices

FEWEST_RATES = 3
"""With fewer a curve has no optimum."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """The runs of one variant: its sizes and their curves.

    Attributes:
        name, title: of the variant.
        sizes: a value for every axis.
        curves: all runs.
        chance: the loss of guessing, which a size must beat to count as trained.
        base: where the arms of a design meet; without one every slice of sizes counts.
        alpha, gamma: of the variant's scheme, as text.
        gathered: of a random design, whose sizes are cells, the number of runs in them.
        seeds: names of the columns of the curves; none where these are repeats.
        question: by axis what its drift answers; a plain one where there is none.
        problem: why nothing can be fitted, if so.
    """

    name: str
    title: str
    sizes: tuple[Size, ...]
    curves: Curves
    chance: float = math.inf
    base: Size | None = None
    gathered: int = 0
    alpha: str = ""
    gamma: str = ""
    seeds: tuple[str, ...] = ()
    question: Mapping[Axis, str] | None = None
    problem: str = ""

    def varied(self, sizes: Index | slice = slice(None)) -> dict[Axis, int]:
        """The axes of which some sizes have several values, with their columns."""
        columns = enumerate(self.array[sizes].T)
        several = [i for i, column in columns if len(np.unique(column)) > 1]
        return {axis: i for i, axis in enumerate(self.sizes[0]) if i in several} if several else {}

    def at(self, sizes: Iterable[int]) -> "Runs":
        """The runs of some sizes."""
        index = [int(i) for i in sizes]
        part = self.curves[index]
        # Rates and seeds that other sizes have are none of these.
        rates = ~np.isnan(part.log2_lrs).all(0)
        seeds = ~np.isnan(part.losses).all((0, 1))
        curves = Curves(log2_lrs=part.log2_lrs[:, rates], losses=part.losses[:, rates][..., seeds])
        return replace(self, sizes=tuple(self.sizes[i] for i in index), curves=curves)

    @cached_property
    def optima(self) -> Optima:
        """The curves of all sizes, one by one."""
        return optima(self.curves, chance=self.chance)

    @cached_property
    def trains(self) -> list[int]:
        """The sizes at which some value trains; all where none does."""
        places = enumerate(self.optima.places())
        return [i for i, place in places if place is not Place.FAILED] or [*range(len(self.sizes))]

    @cached_property
    def minima(self) -> Minima:
        """The minima of the sizes that train."""
        fitted = self.optima
        if len(self.trains) < len(self.sizes):
            fitted = optima(self.curves[self.trains], chance=self.chance)
        return minima(fitted, [self.sizes[i] for i in self.trains], self.base)

    def estimate(self, row: Array, *, scale: float = 1.0, unit: str = "") -> Estimate:
        """A combination of the minima of the sizes that train; ``row`` weighs all sizes."""
        return self.minima.posterior.estimate(row[self.trains], scale=scale, unit=unit)

    def best(self, confidence: float = CONFIDENCE) -> tuple[Optimum, ...]:
        """Every size's best value, with intervals."""
        if confidence not in self._best:
            self._best[confidence] = self._measured(confidence)
        return self._best[confidence]

    @cached_property
    def _best(self) -> dict[float, tuple[Optimum, ...]]:
        """By confidence: every axis, chart and rule asks for them."""
        return {}

    def _measured(self, confidence: float) -> tuple[Optimum, ...]:
        sizes = [self.sizes[i] for i in self.trains]
        best = measured(self.minima, sizes, confidence=confidence)
        trained = dict(zip(self.trains, best, strict=True))
        return tuple(trained.get(i) or failed(size) for i, size in enumerate(self.sizes))

    @cached_property
    def inside(self) -> Flags:
        """Whether the optimum of a size lies inside its grid."""
        return np.array([place is Place.INTERIOR for place in self.optima.places()], bool)

    @cached_property
    def together(self) -> list[tuple[Axis, ...]]:
        """Sets of axes that always change together among the sizes that can be used."""
        inside = self.array[self.inside]
        # Two sizes do so by chance: other ones may vary an axis alone.
        several = len(np.unique(inside, axis=0)) > 2
        sets = changing_together(inside, list(self.sizes[0]))
        return [s for s in sets if several or s in self.together_everywhere]

    @cached_property
    def together_everywhere(self) -> list[tuple[Axis, ...]]:
        """Those of all sizes."""
        return changing_together(self.array, list(self.sizes[0]))

    @cached_property
    def in_step(self) -> list[tuple[Axis, ...]]:
        """Those of which no law tells one from the others; of a table alone."""
        if not self.sizes or self.base is not None:
            return []
        sets = confounded(self.array[self.inside], list(self.sizes[0]))
        return [axes for axes in sets if any({*axes} <= {*all_of} for all_of in self.together)]

    @cached_property
    def array(self) -> Array:
        """The sizes as (sizes, axes)."""
        return np.array([list(size.values()) for size in self.sizes], float)

    def at_size(self, size: Size) -> frozenset[tuple[float, int, float]]:
        """The runs of a size as values: octaves of the rate, number of the seed, loss."""
        i = [dict(own) for own in self.sizes].index(dict(size))
        losses = self.curves.losses[i]
        rate, seed = np.nonzero(~np.isnan(losses))
        x = np.round(self.curves.log2_lrs[i, rate], 9)
        return frozenset(zip(x.tolist(), seed.tolist(), losses[rate, seed].tolist(), strict=True))

    def along(self, axis: Axis) -> Array:
        """The values along an axis, (sizes,)."""
        return np.array([size[axis] for size in self.sizes], float)


def slices_of(runs: Runs, axis: Axis) -> tuple[list[Index], tuple[Axis, ...]]:
    """Indices of the sizes of each slice, increasing along the axis; axes that change with it."""
    if runs.base is not None:
        others = {a: n for a, n in runs.base.items() if a != axis}
        on_arm = [i for i, s in enumerate(runs.sizes) if all(s[a] == n for a, n in others.items())]
        return [np.array(sorted(on_arm, key=lambda i: runs.sizes[i][axis]), int)], ()
    axes = list(runs.sizes[0])
    number = axes.index(axis)
    together = next((p for p in runs.together if axis in p), ())
    # Axes that never change apart are one: what else they are held at makes the slices. A size
    # without an optimum of its own, at which they do, lies on none.
    parted = together and together not in runs.together_everywhere
    among = np.flatnonzero(runs.inside) if parted else np.arange(len(runs.sizes))
    others_too = [axes.index(a) for a in together if a != axis]
    columns = np.delete(runs.array[among], others_too, axis=1)
    found = slices(columns, number - sum(o < number for o in others_too))
    return [among[member] for member in found], together
