"""How much training does a search for the verdict save, and are its verdicts and intervals true?

    python -m studies.adaptive real        # the tables of docs/studies/adaptive.md; minutes
    python -m studies.adaptive simulated   # whole searches at known drifts
    python -m studies.adaptive looks       # rules for stopping
    python -m studies.adaptive curves      # made to deceive
    python -m studies.adaptive early       # do early losses rank learning rates?

Real: the stored sweeps of ``studies.resampled`` (train them first). Every experiment shuffles
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from depthmup.posterior import drifts
from depthmup.records import UNKNOWN, Estimate, Verdict
from depthmup.records.finding import verdict_of
from depthmup.rules import Scheme
from depthmup.statistics import (
    CONFIDENCE,
    LOOKS,
    MOST_SEEDS,
    TOLERANCE,
    Array,
    Curves,
    Search,
    next_round,
    optima,
    together,
)
from depthmup.statistics import drift as fitted_drift
from depthmup.sweep import Store
from studies.coverage import CLIFFS, NOISES, REAL, SHAPES, World
from studies.resampled import SCHEMES, SWEEPS, grid_of

USUAL = tuple(look for look in LOOKS if look <= MOST_SEEDS)
"""Seeds after which a search looks, as it does by default."""

FULL_RATES, FULL_SEEDS = 8, 4
"""Of the grid whose cost is compared: as many rates as one takes who does not know the optimum. In
brackets, the stored grid: as wide as the optima of this scheme needed, as one knew afterwards."""

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

    def drift(self, search: Search) -> tuple[Estimate, int]:
        """The drift along depth, and over how many sizes."""
        state = replace(search, losses=self.losses)
        sizes = sorted(state.sharp)
        return state.drift("depth", sizes), len(sizes)


def searched(search: Search, answer: Answer, most: int = 400) -> Outcome:
    """Run a search to its end; the bound is there to be refuted."""
    outcome = Outcome(why="", losses=[{} for _ in search.sizes])
    while outcome.rounds < most:
        step = next_round(search, outcome.losses)
        if not step.asks:
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


def judged(drift: Estimate, *, all_sizes: bool = True) -> Verdict:
    """The verdict that an interval gives."""
    verdict = verdict_of(drift, -TOLERANCE, TOLERANCE)
    part = verdict is Verdict.TRANSFERS and not all_sizes
    return Verdict.UNDECIDED if part else verdict


def holds(interval: Estimate, drift: float) -> bool:
    """Whether an interval holds the true drift."""
    return bool(interval.low <= drift <= interval.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class Population:
    """One scheme's stored half-octave grid; the first ``trained`` depths train at some rate."""

    name: str
    scheme: Scheme
    rates: Array
    depths: tuple[int, ...]
    losses: Array
    steps: Array
    trained: int

    def truth(self, sizes: int) -> Estimate:
        """The drift over the first sizes that train, from all seeds and rates."""
        sizes = min(sizes, self.trained)
        return fitted_drift(self.depths[:sizes], self.rates, self.losses[:sizes])

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

    def full(self, seeds: Array, phase: int) -> tuple[Estimate, float]:
        """Drift and cost of the full grid of one octave, with four seeds."""
        some = seeds[:FULL_SEEDS]
        losses = self.losses[: self.trained, phase::2][..., some]
        interval = fitted_drift(self.depths[: self.trained], self.rates[phase::2], losses)
        cost = (np.array(self.depths)[:, None, None] * self.steps[:, phase::2][..., some]).sum()
        return interval, float(cost)

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
                depths=tuple(design.arm("depth")),
                losses=losses,
                steps=steps,
                trained=trains,
            )


def real(store: Store, draws: int) -> None:
    """Verdicts, coverage, bias and costs by scheme, as Markdown."""
    print(
        "| networks | scheme | drift, all seeds | grid of 4 seeds | search | opposite | covers | "
        "bias | cost to the verdict | to the grid's interval |\n" + "| --- " * 10 + "|"
    )
    everything: dict[str, list[float]] = defaultdict(list)
    for population in populations(store):
        name = f"{population.name} {population.scheme.name}"
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        tally: dict[str, list[Any]] = defaultdict(list)
        for draw in range(draws):
            seeds = rng.permutation(population.losses.shape[-1])
            _one(population, seeds, draw % 2, tally)
        truth = population.truth(len(population.depths))
        mean = {
            k: float(np.mean(v)) for k, v in tally.items() if k not in ("grid", "search", "dense")
        }
        ratios = {
            goal: (mean["default"] / mean[goal], mean["tight"] / mean[goal])
            for goal in ("verdict", "interval")
        }
        print(
            f"| {population.name} | {population.scheme.title} | {_interval(truth)} | "
            f"{_shares(tally['grid'])} | {_shares(tally['search'])} | {mean['opposite']:.0%} | "
            f"{mean['covers']:.0%}, {mean['covers then']:.0%} | {mean['bias']:+.3f} | "
            + " | ".join(f"1/{a:.1f} (1/{b:.1f})" for a, b in ratios.values())
            + " |",
            flush=True,
        )
        for goal, (default, tight) in ratios.items():
            everything[goal].append(default)
            everything[f"{goal}, tight grid"].append(tight)
        for name in ("grid", "search"):
            everything[f"{name} as all seeds"].append(
                float(np.mean([v == d for v, d in zip(tally[name], tally["dense"], strict=True)]))
            )
        everything["covers"].append(mean["covers"])
        everything["covers, interval of that width"].append(mean["covers then"])
    print()
    for name, values in everything.items():
        # A mean of ratios of costs is the harmonic one: of costs for equal work.
        mean_of = len(values) / sum(1 / v for v in values) if min(values) > 0 else 0.0
        print(f"{name}: {mean_of:.2f}, from {min(values):.2f} to {max(values):.2f}")


def _interval(drift: Estimate) -> str:
    return f"{drift.value:+.3f} ({drift.low:+.3f} to {drift.high:+.3f})"


def _shares(verdicts: Sequence[Verdict]) -> str:
    counts = {v: sum(w is v for w in verdicts) / len(verdicts) for v in Verdict}
    return ", ".join(f"{v.value} {share:.0%}" for v, share in counts.items() if share)


def _one(population: Population, seeds: Array, phase: int, tally: dict[str, list[Any]]) -> None:
    """One experiment: the grid, the search for the verdict, and that for the grid's interval."""
    grid, cost = population.full(seeds, phase)
    full = judged(grid)
    search, answer = population.search(phase), population.answer(seeds)
    outcome = searched(search, answer)
    drift, sizes = outcome.drift(search)
    verdict = judged(drift, all_sizes=sizes == population.trained)
    truth = population.truth(sizes) if sizes > 1 else UNKNOWN
    dense = judged(population.truth(len(population.depths)))
    decided = {Verdict.TRANSFERS, Verdict.DRIFTS}
    rates = len(population.rates[phase::2])
    tally["grid"].append(full)
    tally["search"].append(verdict)
    tally["dense"].append(dense)
    tally["opposite"].append({verdict, full} == decided or {verdict, dense} == decided)
    tally["covers"].append(holds(drift, truth.value))
    tally["bias"].append(drift.value - truth.value)
    tally["tight"].append(cost)
    tally["default"].append(cost * max(FULL_RATES, rates) / rates)
    tally["verdict"].append(outcome.cost)
    precise = replace(search, precision=(grid.high - grid.low) / 2)
    narrow = searched(precise, answer)
    drift, sizes = narrow.drift(precise)
    tally["interval"].append(narrow.cost)
    tally["covers then"].append(holds(drift, population.truth(sizes).value))


@dataclass(frozen=True, kw_only=True)
class SimulatedWorld:
    """A valley and a noise, as in ``studies.coverage``, at any rate that is asked for."""

    shape: str
    noise: str

    def answer(self, rng: np.random.Generator, drift: float, sizes: int, seeds: int) -> Answer:
        """Runs of one experiment; the best rate of the first size lies near zero."""
        optimum = rng.uniform(-1.5, 1.5) + drift * np.arange(sizes)
        slope = np.zeros(seeds)
        if self.noise == "own slopes":
            slope = 0.05 * rng.standard_normal(seeds)
        elif self.noise == "own slopes, heavy":
            slope = 0.03 * np.clip(rng.standard_t(2, seeds), -15, 15)
        step = np.arange(sizes) - (sizes - 1) / 2
        shift = 0.05 * rng.standard_normal(seeds) + slope * step[:, None]
        level, edge = 0.03 * rng.standard_normal(seeds), 0.1 * rng.standard_normal(seeds)

        def of(size: int, log2_lr: float, seed: int) -> tuple[float, float]:
            u = log2_lr - optimum[size] - shift[size, seed]
            if self.noise in CLIFFS and u > CLIFFS[self.noise] + edge[seed]:
                return math.inf, 2.0**size
            y = float(SHAPES[self.shape](np.array(u))) + level[seed]
            return math.exp(y + self._scatter(rng, u, size, sizes)), 2.0**size

        return of

    def _scatter(self, rng: np.random.Generator, u: float, size: int, sizes: int) -> float:
        deviation = {"quiet": 0.002, "loud": 0.03}.get(self.noise, REAL)
        scatter = deviation * rng.standard_normal()
        if self.noise == "heavy tails":
            scatter = deviation * rng.standard_t(3) / math.sqrt(3)
        elif self.noise == "unequal sizes":
            scatter = scatter * np.linspace(0.4, 2, sizes)[size]
        elif self.noise == "unequal rates":
            scatter = scatter * 2 ** float(np.clip(u / 2, -2, 2))
        elif self.noise == "spikes":
            scatter = scatter + 0.2 * (rng.random() < 0.02)
        return float(scatter)


def simulated_search(start: float = 0.0, sizes: int = 5, **options: Any) -> Search:
    """A search over depths that double, each twice as costly as the one before."""
    return Search(
        sizes=tuple({"depth": 4 * 2**i} for i in range(sizes)),
        costs=tuple(2.0**i for i in range(sizes)),
        base={"depth": 4},
        axes=("depth",),
        start=start,
        **options,
    )


def simulated(draws: int) -> None:
    """False verdicts, coverage and cost of whole searches by noise, at known drifts."""
    print(
        "| noise | covers | false 'transfers' at 0.2, 0.3 | false 'drifts' at 0, 0.1 | "
        "'transfers' at 0 | 'drifts' at 0.3 | cost at 0, 0.3 |\n" + "| --- " * 7 + "|"
    )
    search, full = simulated_search(), FULL_RATES * FULL_SEEDS * (2.0**5 - 1)
    for noise in NOISES:
        by: dict[float, list[tuple[Verdict, bool, float]]] = defaultdict(list)
        for shape, drift in ((s, d) for s in SHAPES for d in (0.0, 0.1, 0.2, 0.3)):
            rng = np.random.default_rng(zlib.crc32(f"{shape} {noise} {drift}".encode()))
            for _ in range(draws):
                answer = SimulatedWorld(shape=shape, noise=noise).answer(rng, drift, 5, 8)
                outcome = searched(search, answer)
                interval, sizes = outcome.drift(search)
                verdict = judged(interval, all_sizes=sizes == 5)
                by[drift].append((verdict, holds(interval, drift), outcome.cost))

        def share(verdict: Verdict, drift: float, by: Any = by) -> float:
            return float(np.mean([v is verdict for v, _, _ in by[drift]]))

        t, d = Verdict.TRANSFERS, Verdict.DRIFTS
        covers = np.mean([inside for of in by.values() for _, inside, _ in of])
        cost = [np.mean([c for _, _, c in by[drift]]) for drift in (0.0, 0.3)]
        print(
            f"| {noise} | {covers:.1%} | {share(t, 0.2):.1%}, {share(t, 0.3):.1%} | "
            f"{share(d, 0.0):.1%}, {share(d, 0.1):.1%} | {share(t, 0.0):.0%} | "
            f"{share(d, 0.3):.0%} | 1/{full / cost[0]:.1f}, 1/{full / cost[1]:.1f} |",
            flush=True,
        )


def looks(experiments: int) -> None:
    """False verdicts next to the tolerance, and coverage, where one stops at the first verdict."""
    for shape in ("V", "parabola"):
        print(f"\n{shape}:\n")
        print("| noise | looked at once, with all seeds | ended by the first 95% | spent |")
        print("| --- " * 4 + "|")
        rules = ((USUAL[-1:], CONFIDENCE), (USUAL, CONFIDENCE), (USUAL, together(len(USUAL))))
        for noise in (*NOISES[:-3], "own slopes of 0.08"):
            told = [_told(shape, noise, *rule, experiments) for rule in rules]
            print(f"| {noise} | {' | '.join(told)} |", flush=True)


def _told(shape: str, noise: str, numbers: Sequence[int], early: float, experiments: int) -> str:
    """False verdicts and coverage, next to the tolerance on either side, and the seeds taken."""
    wrong, inside, seeds = [], [], []
    for drift in (TOLERANCE - 0.001, TOLERANCE + 0.001):
        curves = brackets(noise, drift, experiments, shape=shape)
        verdicts, covered, took = stopped(curves, drift, numbers, early)
        false = Verdict.DRIFTS if drift < TOLERANCE else Verdict.TRANSFERS
        wrong.append(np.mean([v is false for v in verdicts]))
        inside.append(covered.mean())
        seeds.append(took.mean())
    return f"{np.mean(wrong):.1%} (covers {np.mean(inside):.0%}; {np.mean(seeds):.1f} seeds)"


def brackets(
    noise: str, drift: float, experiments: int, *, shape: str = "V", seeds: int = 8
) -> Curves:
    """Three rates an octave apart around the optima of five sizes."""
    rng = np.random.default_rng(zlib.crc32(f"{noise} {drift}".encode()))
    named = "own slopes" if noise.startswith("own slopes of") else noise
    world = World(shape=shape, noise=named, spacing=1.0, seeds=seeds)
    size = (experiments, 1, seeds)
    slope = np.zeros(size)
    if noise.startswith("own slopes"):
        slope = {"own slopes": 0.05, "own slopes of 0.08": 0.08}.get(noise, 0.03) * (
            np.clip(rng.standard_t(2, size), -15, 15)
            if "heavy" in noise
            else rng.standard_normal(size)
        )
    step = np.arange(5) - 2.0
    shift = 0.05 * rng.standard_normal(size) + slope * step[None, :, None]
    phase = rng.uniform(-0.25, 0.25, (experiments, 5, 1))
    grid = drift * np.arange(5.0)[:, None] + phase + np.array([-1.0, 0.0, 1.0])
    u = grid[..., None] - drift * np.arange(5)[:, None, None] - shift[:, :, None, :]
    level = 0.03 * rng.standard_normal((experiments, 1, 1, seeds))
    log_losses = world.valley(u) + level + world._scatter(rng, u)
    return Curves(log2_lrs=grid, losses=np.exp(log_losses))


def stopped(
    curves: Curves, drift: float, numbers: Sequence[int] = USUAL, early: float = CONFIDENCE
) -> tuple[list[Verdict], Array, Array]:
    """The verdicts at the first look that decides, or at the last; whether they cover; the seeds.

    ``numbers`` are those of seeds after which one looks, ``early`` is the confidence of intervals
    before the last.
    """
    experiments = len(curves.losses)
    verdicts = [Verdict.UNDECIDED] * experiments
    covered, going_on = np.zeros(experiments, bool), np.arange(experiments)
    took = np.zeros(experiments)
    for number in numbers:
        took[going_on] = number
        some = Curves(
            log2_lrs=curves.log2_lrs[going_on], losses=curves.losses[going_on][..., :number]
        )
        confidence = CONFIDENCE if number == numbers[-1] else early
        ends = zip(going_on, *drifts(np.arange(5.0), some, confidence), strict=True)
        for i, value, low, high in ends:
            interval = Estimate(value=float(value), low=float(low), high=float(high))
            verdicts[i], covered[i] = judged(interval), holds(interval, drift)
        going_on = np.flatnonzero([verdict is Verdict.UNDECIDED for verdict in verdicts])
        if not len(going_on):
            break
    return verdicts, covered, took


HARD: dict[str, tuple[str, Callable[[float, int, int], float]]] = {
    "two minima, the second as deep": (
        "refused",
        lambda u, i, s: math.exp(min(0.07 * (u + 1) ** 2, 0.02 + 0.3 * (u - 2.5) ** 2)),
    ),
    "a cliff half an octave above the optimum": (
        "transfers or open",
        lambda u, i, s: math.inf if u > 0.5 else math.exp(0.07 * u * u),
    ),
    "a flat valley": ("open", lambda u, i, s: math.exp(0.0002 * u * u)),
    "an optimum four octaves above the start": (
        "transfers",
        lambda u, i, s: math.exp(0.07 * (u - 4) ** 2),
    ),
    "an optimum seven octaves below the start": (
        "transfers",
        lambda u, i, s: math.exp(0.07 * (u + 7) ** 2),
    ),
    "one seed that diverges everywhere": (
        "refused",
        lambda u, i, s: math.inf if s == 1 else math.exp(0.07 * u * u),
    ),
    "the fourth size never trains": (
        "open",
        lambda u, i, s: 12.0 if i == 3 else math.exp(0.07 * u * u),
    ),
    "a loss that falls with every rate": ("refused", lambda u, i, s: math.exp(-0.05 * u)),
    "noise alone": ("open or refused", lambda u, i, s: 1.0),
}
"""Curves made to deceive, at true drift 0: what is right, and the loss u octaves from the start."""


def curves(draws: int) -> None:
    """What the search makes of curves that were made to deceive."""
    print("| curve | right is | verdicts | runs | rounds, most |\n" + "| --- " * 5 + "|")
    for name, (right, loss) in HARD.items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        verdicts: dict[str, int] = defaultdict(int)
        runs, rounds = [], 0
        for _ in range(draws):
            search = simulated_search(chance=10.0)

            outcome = searched(search, _with_noise(loss, rng))
            interval, sizes = outcome.drift(search)
            verdict = judged(interval, all_sizes=sizes == 5).value
            refused = any(word in outcome.why for word in ("valleys", "trains.", "lies"))
            verdicts["refused" if refused else verdict] += 1
            runs.append(outcome.runs)
            rounds = max(rounds, outcome.rounds)
        told = ", ".join(f"{verdict} {n / draws:.0%}" for verdict, n in sorted(verdicts.items()))
        print(f"| {name} | {right} | {told} | {np.median(runs):.0f} | {rounds} |", flush=True)


DECEPTIVE: dict[str, Callable[[float], float]] = {
    "slopes 0.03 and 1.5": lambda u: max(-0.03 * u, 1.5 * u),
    "slopes 1.5 and 0.03": lambda u: max(-1.5 * u, 0.03 * u),
    "curvatures 0.01 and 1": lambda u: (0.01 if u < 0 else 1.0) * u * u,
    "two shallow minima": lambda u: 0.06 * u * u + 0.03 * math.cos(3 * u),
    "slopes 0.06 and 0.25": lambda u: max(-0.06 * u, 0.25 * u),
    "parabola": lambda u: 0.07 * u * u,
}
"""Log loss of valleys nearly flat on one side or at their bottom, and of two ordinary ones, u
octaves from where the optimum is."""

LOUD = 0.03
"""Standard deviation of their log losses between runs: what the flat side rises by in an octave."""


def deceived(
    valley: str, sizes: int, drift: float, draws: int
) -> list[tuple[Verdict, bool, float]]:
    """Verdicts, whether they cover the drift, and costs of searches on one of ``DECEPTIVE``.

    Args:
        valley: its name.
        sizes: how many.
        drift: the true one, octaves per doubling.
        draws: searches. One that is refused has no interval and is left out.
    """
    rng = np.random.default_rng(zlib.crc32(f"{valley} {sizes} {drift}".encode()))
    search, outcomes = simulated_search(sizes=sizes), []
    for _ in range(draws):
        best = rng.uniform(-1.5, 1.5)

        def answer(i: int, k: float, s: int, best: float = best) -> tuple[float, float]:
            rise = DECEPTIVE[valley](k - best - drift * i)
            return math.exp(rise + LOUD * rng.standard_normal()), 2.0**i

        outcome = searched(search, answer)
        interval, measured = outcome.drift(search)
        if interval.known:
            verdict = judged(interval, all_sizes=measured == sizes)
            outcomes.append((verdict, holds(interval, drift), outcome.cost))
    return outcomes


def one_sided(draws: int) -> None:
    """Coverage and verdicts of searches whose valleys are nearly flat somewhere, as Markdown."""
    print(
        "\n| valley | sizes | covers | false 'drifts' at 0, 0.1 | false 'transfers' at 0.2, 0.3 | "
        "decided at 0, 0.3 | refused | cost |\n" + "| --- " * 8 + "|"
    )
    for valley, sizes in ((v, n) for v in DECEPTIVE for n in (3, 5)):
        by = {drift: deceived(valley, sizes, drift, draws) for drift in (0.0, 0.1, 0.2, 0.3)}

        def share(verdict: Verdict, drift: float, by: Any = by) -> float:
            return float(np.mean([v is verdict for v, _, _ in by[drift]] or [0.0]))

        everything = [outcome for of_drift in by.values() for outcome in of_drift]
        covers = np.mean([inside for _, inside, _ in everything])
        cost = np.mean([c for _, _, c in everything])
        full = FULL_RATES * FULL_SEEDS * (2.0**sizes - 1)
        t, d = Verdict.TRANSFERS, Verdict.DRIFTS
        print(
            f"| {valley} | {sizes} | {covers:.1%} | {share(d, 0.0):.1%}, {share(d, 0.1):.1%} | "
            f"{share(t, 0.2):.1%}, {share(t, 0.3):.1%} | {share(t, 0.0):.0%}, {share(d, 0.3):.0%} "
            f"| {1 - len(everything) / 4 / draws:.0%} | 1/{full / cost:.1f} |",
            flush=True,
        )


def _with_noise(loss: Callable[[float, int, int], float], rng: np.random.Generator) -> Answer:
    return lambda i, k, s: (loss(k, i, s) * math.exp(REAL * rng.standard_normal()), 2.0**i)


FRACTIONS = (0.1, 0.25, 0.5, 0.75)


def early(store: Store) -> None:
    """Do early losses rank learning rates as the last ones do? By fraction of the steps."""
    head = " | ".join(f"{f:.0%}" for f in FRACTIONS)
    print(
        f"| networks | scheme | rank correlation at {head} | optimum then, octaves from the last |"
    )
    print("| --- " * 7 + "| --- |")
    for name in SWEEPS:
        for scheme in SCHEMES:
            grid = grid_of(name, scheme)
            design = grid.design
            records = store.records(grid.runs)
            points = grid.points(design.variant(), design.sizes_along("depth"))
            by = [_mean_log(records, points, design.window, design.steps, f) for f in FRACTIONS]
            last = _mean_log(records, points, design.window, design.steps, 1.0)
            rates = np.array(design.log2_lrs)
            ranks: dict[int, list[float]] = defaultdict(list)
            shifts: dict[int, list[float]] = defaultdict(list)
            for size, final in enumerate(last):
                if not (final < math.log(math.log(10.0))).any():
                    continue
                best = rates[int(final.argmin())]
                near = np.isfinite(final) & (np.abs(rates - best) <= 2)
                for n, values in enumerate(by):
                    if near.sum() > 2 and np.isfinite(values[size][near]).all():
                        ranks[n].append(spearman(values[size][near], final[near]))
                        shifts[n].append(float(rates[int(values[size].argmin())] - best))
            told = " | ".join(f"{np.mean(ranks[n]):.2f}" for n in range(len(FRACTIONS)))
            moved = ", ".join(f"{np.mean(shifts[n]):+.1f}" for n in range(len(FRACTIONS)))
            print(f"| {name} | {scheme.title} | {told} | {moved} |", flush=True)


def _mean_log(records: Any, points: Any, window: int, steps: int, fraction: float) -> list[Array]:
    """Log losses by size and rate over the window that ends at a fraction of the steps."""
    stop = max(round(fraction * steps), 1)
    start = max(stop - window, 0)
    means = []
    for of_size in points:
        losses = [[records[r].mean_loss(start, stop) for r in of_rate] for of_rate in of_size]
        with np.errstate(over="ignore"):
            means.append(np.log(np.array(losses)).mean(-1))
    return means


def spearman(one: Array, other: Array) -> float:
    """Spearman's correlation: that of the ranks.

    Example:
        >>> spearman(np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 3.0]))
        0.5
    """
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["real", "simulated", "looks", "curves", "early"])
    parser.add_argument("--store", type=Path, default=Path("runs/resampled/results.sqlite"))
    parser.add_argument("--draws", type=int, default=100)
    options = parser.parse_args()
    if options.action == "simulated":
        simulated(options.draws)
    elif options.action == "looks":
        looks(options.draws)
    elif options.action == "curves":
        curves(options.draws)
        one_sided(options.draws)
    elif options.action == "early":
        with Store(options.store) as store:
            early(store)
    else:
        with Store(options.store) as store:
            real(store, options.draws)


if __name__ == "__main__":
    main()
