"""What a search for optima asks for, and what it is about."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from depthmup.records import LEARNING_RATE, Tuned
from depthmup.statistics.bracket import GRAIN
from depthmup.statistics.drift import TOLERANCE
from depthmup.statistics.intervals import Array
from depthmup.statistics.looks import LOOKS

Size: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A run: the index of its size, its log2 learning rate and its seed."""

    size: int
    log2_lr: float
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Runs to be made next, in any order.

    ``rest`` is the cost that is expected to follow, ``rest_runs`` the number of runs.
    """

    asks: tuple[Ask, ...]
    why: str
    rest: float = 0.0
    rest_runs: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """Nothing more is to be trained, and why."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched: the optima of one scheme, and how they move.

    Attributes:
        sizes: values by axis.
        costs: of a run at each size, in any unit.
        base: the size where the arms of the axes meet; its rates are those that are asked for.
        axes: along which the optimum may move.
        start: log2 learning rate at which the search starts.
        seeds: most seeds of a rate.
        tolerance: octaves per doubling within which an optimum counts as staying.
        region: of the drift, (low, high): the search ends where the interval lies inside or outside
            of it; by default -tolerance to tolerance.
        whole: whether all sizes are wanted, whatever the smaller ones say.
        precision: half-width of every drift's interval that is wanted, instead of a verdict.
        complete: whether all sizes are wanted with four seeds and half steps, for a prediction,
            whatever the verdict.
        chance: the loss of guessing.
        grain: octaves to which rates are rounded, counted from the start, so that equal runs get
            equal keys.
        tuned: whose best value is looked for.
    """

    sizes: tuple[Size, ...]
    costs: tuple[float, ...]
    base: Size
    axes: tuple[str, ...]
    start: float
    seeds: int = LOOKS[-1]
    tolerance: float = TOLERANCE
    region: tuple[float, float] | None = None
    whole: bool = False
    precision: float | None = None
    complete: bool = False
    chance: float = math.inf
    grain: float = GRAIN
    tuned: Tuned = LEARNING_RATE

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Indices of sizes, the cheapest first."""
        return tuple(sorted(range(len(self.sizes)), key=lambda i: (self.costs[i], i)))

    @cached_property
    def looks(self) -> tuple[int, ...]:
        """Numbers of seeds after which the interval is looked at.

        Any number where a width is asked for: there no error is spent over the looks.
        """
        several = LOOKS if self.precision is None else range(LOOKS[0], LOOKS[-1] + 1)
        looks = tuple(look for look in several if look <= self.seeds)
        return looks or (self.seeds,)

    def arm(self, axis: str) -> list[int]:
        """Indices of the sizes along an axis, the others at the base's, in increasing order."""
        along = [
            i
            for i, size in enumerate(self.sizes)
            if all(size[other] == self.base[other] for other in self.base if other != axis)
        ]
        return sorted(along, key=lambda i: self.sizes[i][axis])

    def position(self, i: int) -> Array:
        """log2 of a size over the base, (axes,)."""
        return np.array([math.log2(self.sizes[i][a] / self.base[a]) for a in self.base])

    @property
    def edges(self) -> tuple[float, float]:
        """The ends of the region that decides."""
        return self.region or (-self.tolerance, self.tolerance)

    @property
    def grid(self) -> str:
        """The argument that gives a grid instead of a search."""
        return "lrs" if self.tuned.is_learning_rate else "values"

    def rounded(self, log2_lr: float) -> float:
        """A rate rounded to the grain."""
        return round(self.start + round((log2_lr - self.start) / self.grain) * self.grain, 9)
