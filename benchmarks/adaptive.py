"""How much training does a search for the verdict save, and are its verdicts and intervals true?

    python -m benchmarks.adaptive real        # the tables of docs/adaptive.md; minutes
    python -m benchmarks.adaptive simulated
    python -m benchmarks.adaptive curves      # made to deceive
    python -m benchmarks.adaptive early       # do early losses rank learning rates?

Real: the stored sweeps of ``benchmarks.resampled`` (train them first). Every experiment shuffles
their seeds; the search asks, and the stored runs answer. Between and beyond the rates of the stored
half-octave grid nothing can be asked for: rates are rounded to it, and beyond its ends the curve's
last slope goes on. The full grid, to which costs are compared, has one octave between its rates and
four of the same seeds, at either of its two phases. A run's cost is its depth times the steps that
it took.
"""

import argparse
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.resampled import SCHEMES, SWEEPS, grid_of
from depthmup.records import Verdict
from depthmup.rules import Scheme
from depthmup.statistics import (
    TOLERANCE,
    Curves,
    Done,
    Search,
    curves_of,
    drifts,
    looked_at,
    next_round,
    optima,
)
from depthmup.statistics.intervals import Array
from depthmup.sweep import Store

FULL_SEEDS = 4
Answer = Callable[[int, float, int], tuple[float, float]]
"""The loss and the cost of a run, by its size's index, log2 learning rate and seed."""


@dataclass(kw_only=True)
class Outcome:
    """What a search came to."""

    why: str
    cost: float = 0.0
    runs: int = 0
    rounds: int = 0
    losses: list[dict[float, list[float]]] = field(default_factory=list)
    asked: list[tuple[int, float, int]] = field(default_factory=list)

    def drift(self, search: Search) -> tuple[float, float, int]:
        """The drift, its half-width, and over how many sizes."""
        sizes = [i for i in range(len(search.sizes)) if self.losses[i]]
        fitted = optima(curves_of([self.losses[i] for i in sizes], chance=search.chance))
        inside = [n for n, i in enumerate(sizes) if fitted.places()[n].value == "interior"]
        if len(inside) < 2:
            return math.nan, math.inf, len(inside)
        x = np.log2([search.sizes[sizes[n]]["depth"] for n in inside])
        slope = looked_at(x, optima(fitted.curves[inside]))
        return float(slope.value), float(slope.half), len(inside)


def searched(search: Search, answer: Answer, most: int = 400) -> Outcome:
    """Run a search to its end; the bound is there to be refuted."""
    outcome = Outcome(why="", losses=[{} for _ in search.sizes])
    while outcome.rounds < most:
        step = next_round(search, outcome.losses)
        if isinstance(step, Done):
            outcome.why = step.why
            return outcome
        outcome.rounds += 1
        for ask in step.asks:
            loss, cost = answer(ask.size, ask.log2_lr, ask.seed)
            row = outcome.losses[ask.size].setdefault(ask.log2_lr, [])
            row += [math.nan] * (ask.seed + 1 - len(row))
            row[ask.seed] = loss
            outcome.cost += cost
            outcome.runs += 1
            outcome.asked.append((ask.size, ask.log2_lr, ask.seed))
    raise AssertionError("The search does not end.")


def verdict_of(value: float, half: float, *, all_sizes: bool = True) -> Verdict:
    """The verdict that an interval gives."""
    if abs(value) - half > TOLERANCE:
        return Verdict.DRIFTS
    inside = abs(value) + half <= TOLERANCE and all_sizes
    return Verdict.TRANSFERS if inside else Verdict.UNDECIDED


@dataclass(frozen=True, kw_only=True, eq=False)
class Population:
    """One scheme's stored half-octave grid, up to the first depth at which nothing trains."""

    name: str
    scheme: Scheme
    rates: Array
    depths: tuple[int, ...]
    losses: Array
    steps: Array

    def truth(self, sizes: int) -> tuple[float, float]:
        """The drift over the first sizes, from all seeds and rates."""
        curves = Curves.of(self.rates, self.losses[:sizes])
        slope = drifts(np.log2(self.depths[:sizes]), optima(curves))
        return float(slope.value), float(slope.half)

    def answer(self, seeds: Array) -> Answer:
        """The stored runs, with their seeds shuffled."""

        def of(size: int, log2_lr: float, seed: int) -> tuple[float, float]:
            at = round(2 * (log2_lr - self.rates[0]))
            n = min(max(at, 0), len(self.rates) - 1)
            s = seeds[seed % len(seeds)]
            loss, cost = self.losses[size, n, s], self.depths[size] * self.steps[size, n, s]
            if at != n:  # beyond the grid: on at the slope of its last octave, uphill
                inner = self.losses[size, 2 if at < 0 else -3, s]
                with np.errstate(invalid="ignore"):
                    rise = max(float(np.log(loss) - np.log(inner)) / 2, 0.02) * abs(at - n)
                loss = loss * math.exp(rise) if math.isfinite(rise) else math.inf
            return float(loss), float(cost)

        return of

    def full(self, seeds: Array, phase: int) -> tuple[float, float, float]:
        """Drift, half-width and cost of the full grid of one octave, with four seeds."""
        some = seeds[:FULL_SEEDS]
        losses = self.losses[:, phase::2][..., some]
        slope = drifts(np.log2(self.depths), optima(Curves.of(self.rates[phase::2], losses)))
        cost = (np.array(self.depths)[:, None, None] * self.steps[:, phase::2][..., some]).sum()
        return float(slope.value), float(slope.half), float(cost)

    def search(self, phase: int, **options: Any) -> Search:
        """The search from the usual rate, on the stored grid at one of its phases."""
        return Search(
            sizes=tuple({"depth": d} for d in self.depths),
            costs=tuple(float(d) for d in self.depths),
            base={"depth": self.depths[0]},
            axes=("depth",),
            start=float(self.rates[np.abs(self.rates - self.middle).argmin() + phase]),
            chance=10.0,
            grain=0.5,
            **options,
        )

    @property
    def middle(self) -> float:
        """The middle of the usual rates at the base, 2^-3.5 / width."""
        return math.log2(2.0**-3.5 / (64 if self.name == "A" else 32))


def populations(store: Store) -> Iterator[Population]:
    """What is stored."""
    for name in SWEEPS:
        for scheme in SCHEMES:
            grid = grid_of(name, scheme)
            design = grid.design
            records = store.records(grid.runs)
            points = grid.points(design.variant(), design.sizes_along("depth"))
            window = (design.steps - design.window, design.steps)
            losses = np.array(
                [
                    [[records[run].mean_loss(*window) for run in runs] for runs in of_size]
                    for of_size in points
                ]
            )
            steps = np.array(
                [[[len(records[run].losses) for run in runs] for runs in s] for s in points]
            )
            fitted = optima(Curves.of(design.log2_lrs, losses), chance=10.0)
            trains = int(np.argmax([*fitted.failed, True]))
            yield Population(
                name=name,
                scheme=scheme,
                rates=np.array(design.log2_lrs),
                depths=tuple(design.arm("depth")[:trains]),
                losses=losses[:trains],
                steps=steps[:trains],
            )


def real(store: Store, draws: int) -> None:
    """Verdicts, coverage, bias and costs by scheme, as Markdown."""
    print(
        "| networks | scheme | drift | full grid says | agrees | opposite | holds the drift | bias "
        "| cost to the verdict | to the interval |\n" + "| --- " * 10 + "|"
    )
    for population in populations(store):
        name = f"{population.name} {population.scheme.name}"
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        tally: dict[str, list[float]] = defaultdict(list)
        says: dict[str, int] = defaultdict(int)
        for draw in range(draws):
            phase = draw % 2
            seeds = rng.permutation(population.losses.shape[-1])
            _one(population, seeds, phase, tally, says)
        truth, half = population.truth(len(population.depths))
        share = {k: float(np.mean(v)) for k, v in tally.items()}
        print(
            f"| {population.name} | {population.scheme.title} | {truth:+.3f} ± {half:.3f} | "
            f"{', '.join(f'{k} {n / draws:.0%}' for k, n in sorted(says.items()))} | "
            f"{share['agrees']:.0%} | {share['opposite']:.0%} | {share['covers']:.0%} | "
            f"{share['bias']:+.3f} | {share['full'] / share['cost']:.1f} | "
            f"{share['full'] / share['equal']:.1f} |",
            flush=True,
        )


def _one(
    population: Population,
    seeds: Array,
    phase: int,
    tally: dict[str, list[float]],
    says: dict[str, int],
) -> None:
    """One experiment: the search for the verdict, and the one for the full grid's interval."""
    value, half, cost = population.full(seeds, phase)
    full = verdict_of(value, half)
    search = population.search(phase)
    outcome = searched(search, population.answer(seeds))
    drift, width, sizes = outcome.drift(search)
    verdict = verdict_of(drift, width, all_sizes=sizes == len(population.depths))
    truth, _ = population.truth(sizes) if sizes > 1 else (math.nan, 0.0)
    dense = verdict_of(*population.truth(len(population.depths)))
    says[full.value] += 1
    decided = {verdict, full} == {Verdict.TRANSFERS, Verdict.DRIFTS}
    tally["agrees"].append(verdict is full or (full is Verdict.UNDECIDED and verdict is dense))
    tally["opposite"].append(decided or {verdict, dense} == {Verdict.TRANSFERS, Verdict.DRIFTS})
    tally["covers"].append(abs(drift - truth) <= width)
    tally["bias"].append(drift - truth)
    tally["full"].append(cost)
    tally["cost"].append(outcome.cost)
    equal = searched(replace(search, precision=half), population.answer(seeds))
    tally["equal"].append(equal.cost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["real", "simulated", "curves", "early"])
    parser.add_argument("--store", type=Path, default=Path("runs/resampled/results.sqlite"))
    parser.add_argument("--draws", type=int, default=100)
    options = parser.parse_args()
    if options.action == "real":
        with Store(options.store) as store:
            real(store, options.draws)


if __name__ == "__main__":
    main()
