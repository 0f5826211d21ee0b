"""What a search for optima asks for, and where it stands after the losses so far."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from depthmup.posterior import Posterior, posterior, slope_row
from depthmup.posterior.curve import Curves
from depthmup.posterior.intervals import CONFIDENCE, Array, together
from depthmup.posterior.law import Size
from depthmup.records import LEARNING_RATE, UNKNOWN, Estimate, Tuned, Verdict
from depthmup.records.finding import verdict_of
from depthmup.records.search import Values
from depthmup.records.text import counted
from depthmup.statistics.bracket import GRAIN, STEP, Bracket, Losses
from depthmup.statistics.drift import TOLERANCE

MOST_SEEDS = 8
"""Seeds of a rate at most, unless more are allowed."""

LOOKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of seeds after which the interval is looked at."""

EXHAUSTED = ": undecided, and every run that could be asked for was made"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A run: the index of its size, its log2 learning rate and its seed.

    ``beside`` are the log2 of further values that are tuned together with the rate.
    """

    size: int
    log2_lr: float
    seed: int
    beside: tuple[float, ...] = ()

    @property
    def values(self) -> Values:
        """The log2 value that is tuned, or those that are tuned together."""
        return (self.log2_lr, *self.beside) if self.beside else self.log2_lr


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Runs to be made next, in any order, and why; without runs the search is over.

    ``rest`` is the cost that is expected to follow.
    """

    asks: tuple[Ask, ...] = ()
    why: str
    rest: float = 0.0


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
        persistent: whether to go on to the most seeds where they are not expected to decide.
        confidence: of the drift's interval, which decides.
        precision: half-width of every drift's interval that ends the search, instead of a verdict.
        complete: whether all sizes are wanted with four seeds and half steps, for a prediction,
            whatever the verdict.
        minima: whether those of all sizes are wanted, and no verdict on them.
        only: indices of the sizes that are searched, each for itself; all unless given.
        expected: log2 rates around which the optimum of a size is looked for first.
        grain: octaves to which rates are rounded, counted from the start, so that equal runs get
            equal keys.
        losses: of every size, so far.
    """

    sizes: tuple[Size, ...]
    costs: tuple[float, ...]
    base: Size
    axes: tuple[str, ...]
    start: float
    seeds: int = MOST_SEEDS
    tolerance: float = TOLERANCE
    region: tuple[float, float] | None = None
    whole: bool = False
    persistent: bool = False
    confidence: float = CONFIDENCE
    precision: float | None = None
    complete: bool = False
    minima: bool = False
    only: tuple[int, ...] = ()
    expected: Mapping[int, float] = field(default_factory=dict)
    chance: float = math.inf
    grain: float = GRAIN
    tuned: Tuned = LEARNING_RATE
    losses: Sequence[Losses] = field(default=(), repr=False)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Indices of sizes, the cheapest first."""
        searched = self.only or range(len(self.sizes))
        return tuple(sorted(searched, key=lambda i: (self.costs[i], i)))

    @cached_property
    def looks(self) -> tuple[int, ...]:
        """Numbers of seeds after which the interval is looked at.

        Any number where a width is asked for: there intervals are those of one look.
        """
        several = LOOKS if self.precision is None else range(LOOKS[0], self.seeds)
        return (*(look for look in several if look < self.seeds), self.seeds)

    @property
    def level(self) -> float:
        """Confidence of an interval that is looked at now, stricter before the last look.

        The error is spent evenly over the looks; the last one keeps its own (Haybittle 1971, Peto
        et al. 1976). Searches that end at the first 95% interval that decides give 8.5% of false
        verdicts next to the tolerance; 2.5% may be (docs/studies/adaptive.md).
        """
        last = self.precision is not None or self.look >= self.looks[-1]
        return self.confidence if last else max(self.confidence, together(len(self.looks)))

    def arm(self, axis: str) -> list[int]:
        """Indices of the sizes along an axis, the others at the base's, in increasing order."""
        along = [
            i
            for i, size in enumerate(self.sizes)
            if i in self.order
            and all(size[other] == self.base[other] for other in self.base if other != axis)
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

    @cached_property
    def sharp(self) -> tuple[int, ...]:
        """Indices of the sizes whose optimum is bracketed by rates with seeds."""
        return tuple(i for i in self.closed if self.brackets[i].seeds > 0)

    @cached_property
    def curves(self) -> Curves:
        """All runs of the sizes that are bracketed."""
        return curves_of([self.losses[i] for i in self.sharp])

    @cached_property
    def posterior(self) -> Posterior:
        """The minima of the sizes that are bracketed, by all of their runs."""
        at = np.array([self.position(i) for i in self.sharp])
        return posterior(self.curves, at[:, np.ptp(at, axis=0) > 0])

    def row(self, axis: str, sizes: Sequence[int]) -> Array:
        """The slope along an axis over some sizes, as weights of all that are bracketed."""
        row = np.zeros(len(self.sharp))
        row[[self.sharp.index(i) for i in sizes]] = slope_row(self.positions(axis, sizes))
        return row

    def drift(self, axis: str, sizes: Sequence[int]) -> Estimate:
        """The slope along an axis over some sizes."""
        if len(sizes) < 2 or not {*sizes} <= {*self.sharp}:
            return UNKNOWN
        return self.posterior.estimate(self.row(axis, sizes), self.level)

    def verdict(self, axis: str, sizes: Sequence[int]) -> Verdict:
        """What some sizes along an axis show; "transfers" takes all of them."""
        verdict = verdict_of(self.drift(axis, sizes), *self.edges)
        part = verdict is Verdict.TRANSFERS and len(sizes) < len(self.arm(axis))
        return Verdict.UNDECIDED if part else verdict

    def planned(self, asks: Sequence[Ask]) -> Curves:
        """The runs of the sizes that are bracketed, and those asked for, as the fit foretells."""
        rows = [{k: list(row) for k, row in self.losses[i].items()} for i in self.sharp]
        for at, i in enumerate(self.sharp):
            seeds: dict[float, list[int]] = {}
            for ask in asks:
                if ask.size == i:
                    seeds.setdefault(ask.log2_lr, []).append(ask.seed)
            foretold = self.posterior.foretold(at, np.array([*seeds])) if seeds else ()
            for (k, of_rate), loss in zip(seeds.items(), foretold, strict=True):
                row = rows[at].setdefault(k, [])
                row += [math.nan] * (max(of_rate) + 1 - len(row))
                for seed in of_rate:
                    row[seed] = math.exp(loss + self._aside[at].get(seed, 0.0))
        return curves_of(rows)

    @cached_property
    def _aside(self) -> list[dict[int, float]]:
        """Of every bracketed size: by how much a seed that is there lies above what the fit
        foretells of its runs, the median.
        """
        result = []
        for at, i in enumerate(self.sharp):
            bracket = self.brackets[i]
            apart = np.log(bracket.values) - self.posterior.foretold(at, bracket.rates)[:, None]
            finite = [column[np.isfinite(column)] for column in apart.T]
            result.append({seed: float(np.median(a)) for seed, a in enumerate(finite) if len(a)})
        return result

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

    def farther(self, i: int, side: int) -> tuple[Ask, ...]:
        """Runs at a rate two steps from the lowest on one side; none beside a divergence."""
        bracket = self.brackets[i]
        return () if bracket.walled else self.missing(i, [bracket.beyond(side)], self.look)

    def more_seeds(self, sizes: Sequence[int]) -> Round:
        """The next number of seeds that is looked at, for some sizes."""
        asks: list[Ask] = []
        look = self.look
        for look in (later for later in self.looks if later > self.look):
            asks = [ask for i in sizes for ask in self.missing(i, self.brackets[i].window, look)]
            if asks:
                break
        why = f"{counted(look, 'seed')} at every size"
        return Round(asks=tuple(asks), why=why if asks else f"{why}{EXHAUSTED}")


def curves_of(losses: Sequence[Losses]) -> Curves:
    """The curves of sizes, every run in them."""
    found = [Bracket(losses=of_size) for of_size in losses]
    return Curves.of([b.rates for b in found], [b.values for b in found])
