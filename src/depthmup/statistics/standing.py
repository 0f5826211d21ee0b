"""Where a search stands: what its losses say so far, and the runs that a size may get next."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.records import Verdict
from depthmup.statistics.bracket import STEP, Bracket, Losses
from depthmup.statistics.curve import Curves
from depthmup.statistics.intervals import Array, around
from depthmup.statistics.looks import looked_at
from depthmup.statistics.optimum import Optima, optima
from depthmup.statistics.search import Ask, Round, Search


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a search stands: losses so far, and what follows from them.

    Sizes are told by their indices in ``search``.
    """

    search: Search
    losses: Sequence[Losses]

    @cached_property
    def brackets(self) -> list[Bracket]:
        """Of every size."""
        return [Bracket(losses=of_size, chance=self.search.chance) for of_size in self.losses]

    @cached_property
    def closed(self) -> list[int]:
        """Sizes whose optimum lies between two rates."""
        return [i for i in self.search.order if self.brackets[i].closed]

    @cached_property
    def look(self) -> int:
        """The number of seeds that the sizes measured so far have, or are about to have.

        Half of them have it: where a bracket moves on, its new rates are behind all others.
        """
        seeds = sorted(self.brackets[i].seeds for i in self.closed)
        common = seeds[len(seeds) // 2] if seeds else 0
        looks = self.search.looks
        return max([look for look in looks if look <= common], default=looks[0])

    def fitted(self, sizes: Sequence[int]) -> Optima:
        """The optima of some sizes."""
        return optima(curves_of([self.losses[i] for i in sizes], chance=self.search.chance))

    def verdict(self, axis: str, sizes: Sequence[int]) -> Verdict:
        """What some sizes along an axis show; "transfers" takes all of them."""
        slope = looked_at(self.positions(axis, sizes), self.fitted(sizes))
        drift, (low, high) = around(float(slope.value), float(slope.half)), self.search.edges
        if drift.outside(low, high):
            return Verdict.DRIFTS
        inside = drift.inside(low, high) and len(sizes) == len(self.search.arm(axis))
        return Verdict.TRANSFERS if inside else Verdict.UNDECIDED

    def positions(self, axis: str, sizes: Sequence[int]) -> Array:
        """log2 of sizes along an axis."""
        return np.log2([self.search.sizes[i][axis] for i in sizes])

    def named(self, i: int) -> str:
        """A size in words."""
        sizes, base = self.search.sizes, self.search.base
        varied = [axis for axis in base if len({size[axis] for size in sizes}) > 1]
        return ", ".join(f"{axis} {sizes[i][axis]}" for axis in varied or base)

    def missing(self, i: int, rates: Sequence[float] | Array, seeds: int) -> tuple[Ask, ...]:
        """The missing ones of the first seeds at some rates."""
        asks = []
        for k in map(float, rates):
            row = np.asarray(self.losses[i].get(k, ()), float)
            asks += [
                Ask(size=i, log2_lr=k, seed=seed)
                for seed in range(seeds)
                if seed >= len(row) or np.isnan(row[seed])
            ]
        return tuple(asks)

    def half_steps(self, i: int, halvings: int = 1) -> tuple[Ask, ...]:
        """Runs that fill a size's bracket with rates so many times closer, out to its ends."""
        bracket = self.brackets[i]
        step = bracket.spacing / 2**halvings
        reach = round(STEP / step)
        rates = [round(bracket.at + k * step, 9) for k in range(-reach, reach + 1)]
        new = [k for k in rates if np.abs(bracket.rates - k).min() > STEP / 16]
        return self.missing(i, new, self.look)

    def far_rate(self, i: int) -> tuple[Ask, ...]:
        """Runs at a rate two steps from the lowest, on the side of a bracket that hardly rises."""
        bracket = self.brackets[i]
        return self.missing(i, [bracket.far], self.look) if bracket.gentle else ()

    def more_seeds(self, sizes: Sequence[int]) -> Round:
        """The next number of seeds that is looked at, for some sizes."""
        look = next(look for look in self.search.looks if look > self.look)
        asks = [ask for i in sizes for ask in self.missing(i, self.brackets[i].window, look)]
        return Round(asks=tuple(asks), why=f"{look} seeds at every size")


def curves_of(losses: Sequence[Losses], *, chance: float = math.inf) -> Curves:
    """The curves to fit: the rates of every size's bracket, with the seeds that all have."""
    grids, values = [], []
    for of_size in losses:
        bracket = Bracket(losses=of_size, chance=chance)
        fitted = bracket.closed and bracket.seeds > 0
        rows = np.isin(bracket.rates, bracket.window) if fitted else bracket.rates < math.inf
        inside = bracket.values[rows][:, : bracket.seeds] if fitted else bracket.values
        # While seeds are missing, those that all rates have may put the lowest rate at an end.
        if fitted and not _interior(inside):
            rows, inside = bracket.rates < math.inf, bracket.values
        grids.append(bracket.rates[rows])
        values.append(inside)
    return Curves.of(grids, values)


def _interior(losses: Array) -> bool:
    """Whether the lowest rate of (rates, seeds) is neither the first nor the last."""
    with np.errstate(invalid="ignore"):
        mean = np.log(losses).mean(-1)
    return 0 < int(mean.argmin()) < len(mean) - 1
