"""What a search for optima asks for, and where it stands after the losses so far."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from depthmup.records import LEARNING_RATE, Tuned, Verdict
from depthmup.records.finding import verdict_of
from depthmup.records.text import counted
from depthmup.statistics.bracket import GRAIN, STEP, Bracket, Losses
from depthmup.statistics.curve import Curves
from depthmup.statistics.drift import TOLERANCE
from depthmup.statistics.intervals import Array, around
from depthmup.statistics.law import Size
from depthmup.statistics.looks import LOOKS, looked_at
from depthmup.statistics.optimum import Optima, optima

EXHAUSTED = ": undecided, and every run that could be asked for was made"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A run: the index of its size, its log2 learning rate and its seed."""

    size: int
    log2_lr: float
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Runs to be made next, in any order, and why; without runs the search is over.

    ``rest`` is the cost that is expected to follow, ``rest_runs`` the number of runs.
    """

    asks: tuple[Ask, ...] = ()
    why: str
    rest: float = 0.0
    rest_runs: int = 0


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched, the optima of one scheme and how they move; and where it stands.

    Attributes:
        sizes: values by axis.
        costs: of a run at each size, in any unit.
        base: the size where the arms of the axes meet; its rates are those that are asked for.
        axes: along which the optimum may move.
        start: log2 learning rate at which the search starts.
        seeds: most seeds of a rate.
        region: of the drift, (low, high): the search ends where the interval lies inside or outside
            of it; by default -tolerance to tolerance.
        whole: whether all sizes are wanted, whatever the smaller ones say.
        precision: half-width of every drift's interval that ends the search, instead of a verdict.
        complete: whether all sizes are wanted with four seeds and half steps, for a prediction,
            whatever the verdict.
        grain: octaves to which rates are rounded, counted from the start, so that equal runs get
            equal keys.
        losses: of every size, so far.
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
    losses: Sequence[Losses] = field(default=(), repr=False)

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

    @cached_property
    def brackets(self) -> list[Bracket]:
        """Of every size."""
        return [Bracket(losses=of_size, chance=self.chance) for of_size in self.losses]

    @cached_property
    def closed(self) -> list[int]:
        """Sizes whose optimum lies between two rates."""
        return [i for i in self.order if self.brackets[i].closed]

    @cached_property
    def look(self) -> int:
        """The number of seeds that the sizes measured so far have, or are about to have.

        Half of them have it: where a bracket moves on, its new rates are behind all others.
        """
        seeds = sorted(self.brackets[i].seeds for i in self.closed)
        common = seeds[len(seeds) // 2] if seeds else 0
        looks = self.looks
        return max([look for look in looks if look <= common], default=looks[0])

    def fitted(self, sizes: Sequence[int]) -> Optima:
        """The optima of some sizes."""
        return optima(curves_of([self.losses[i] for i in sizes], chance=self.chance))

    def verdict(self, axis: str, sizes: Sequence[int]) -> Verdict:
        """What some sizes along an axis show; "transfers" takes all of them."""
        drift = around(*looked_at(self.positions(axis, sizes), self.fitted(sizes)))
        verdict = verdict_of(drift, *self.edges)
        part = verdict is Verdict.TRANSFERS and len(sizes) < len(self.arm(axis))
        return Verdict.UNDECIDED if part else verdict

    def positions(self, axis: str, sizes: Sequence[int]) -> Array:
        """log2 of sizes along an axis."""
        return np.log2([self.sizes[i][axis] for i in sizes])

    def named(self, i: int) -> str:
        """A size in words."""
        sizes, base = self.sizes, self.base
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
        look = next(look for look in self.looks if look > self.look)
        asks = [ask for i in sizes for ask in self.missing(i, self.brackets[i].window, look)]
        why = f"{counted(look, 'seed')} at every size"
        return Round(asks=tuple(asks), why=why if asks else f"{why}{EXHAUSTED}")


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
