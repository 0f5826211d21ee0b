"""Do the intervals of drifts and certificates hold what they say? Simulated, with known truth.

    python -m studies.coverage                # the tables of docs/studies/statistics.md; hours
    python -m studies.coverage --only drifts --experiments 54      # a minute for ten worlds
    python -m studies.coverage --only drifts --world "steep V"
    python -m studies.coverage --only edges       # drifts of sizes whose optimum lies beyond a grid

Worlds are shapes of valley and noises: five shapes under twelve noises, walls where nothing
diverges, valleys that change with size, sizes that scatter about their law. Sweeps of a world have
1 to 6 seeds, 4 to 6 sizes and drifts of 0, 0.1 and 0.2 octaves per doubling, on grids of half an
octave or one octave at random phase. The truth is the slope of the minima that were realized. A
star says that a world is below 88% of coverage, or above 2.5% of false verdicts, by a one-sided
test at 1%.

Certificates: sizes along one axis, and along two with a corner, under laws that are straight, that
die out, and with sizes that scatter about their law; the truth is the true minimum of the target's
valley.

Edges: four to six sizes on one grid that ends short of the optimum of the farthest one or two,
fitted with these sizes and without.
"""

import argparse
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from depthmup.posterior import Curves, drifts
from depthmup.posterior.intervals import Array, Flags
from depthmup.records import LEARNING_RATE, Verdict
from depthmup.statistics import TOLERANCE, calibrate
from depthmup.statistics.along import Along, along_axis
from depthmup.statistics.runs import Runs

SHAPES: dict[str, Callable[[Array], Array]] = {
    "parabola": lambda u: 0.07 * u**2,
    "lopsided": lambda u: np.where(u < 0, 0.05, 0.10) * u**2,
    "V": lambda u: 0.13 * np.abs(u),
    "steep V": lambda u: np.where(u < 0, 0.06, 0.25) * np.abs(u),
    "wall": lambda u: 0.05 * u**2 + 0.6 * np.maximum(u - 0.4, 0),
}
"""Log loss above the minimum, u octaves from it; the measured curves rise by 0.07 in an octave."""

WALLS: dict[str, Callable[[Array], Array]] = {
    "steep wall": lambda u: 0.05 * u**2 + 3.0 * np.maximum(u - 0.4, 0),
    "steeper wall": lambda u: 0.05 * u**2 + 6.0 * np.maximum(u - 0.4, 0),
    "jump to guessing": lambda u: 0.07 * u**2 + 2.4 * (u > 0.5),
    "slope to guessing": lambda u: 0.07 * u**2 + 2.4 * np.clip(u - 0.5, 0, 1),
    "nearly flat side": lambda u: np.where(u < 0, 0.03, 0.40) * np.abs(u),
}
"""Nothing diverges, and yet one side rises many times as steeply as the other."""

CLIFFS = {"cliff at 0.35": 0.35, "cliff at 0.6": 0.6, "cliff at 1": 1.0}
NOISES = (
    "quiet",
    "like real",
    "loud",
    "heavy tails",
    "unequal sizes",
    "unequal rates",
    "own slopes",
    "own slopes, heavy",
    "spikes",
    *CLIFFS,
)
TURNING, RECEDING, SHARPENS = "turning lopsided", "a side that flattens", "sharpening"
CHANGING: dict[str, Callable[[Array, Array], Array]] = {
    TURNING: lambda u, i: 0.07 * u**2 * np.where(u < 0, 2 ** (-i / 2.5), 2 ** (i / 2.5)),
    # As a wall does that recedes.
    RECEDING: lambda u, i: 0.03 * u**2 * np.where(u < 0, 1.0, (2 / (i + 2)) ** 2),
    SHARPENS: lambda u, i: 0.07 * u**2 * 1.2**i,
    "a wall comes nearer": lambda u, i: 0.05 * u**2 + 0.6 * np.maximum(u - 1.2 + 0.15 * i, 0),
    "a plateau sinks": lambda u, i: 0.5 * 0.8**i * (1 - np.exp(-0.14 * u**2 / 0.8**i)),
    "a power grows": lambda u, i: 0.1 * np.abs(u) ** (1.2 + 0.15 * i),
    "both sides flatten": lambda u, i: 0.07 * 0.7**i * u**2,
    "a left side bends": lambda u, i: np.where(u < 0, 0.12 * np.log1p((1 + i) * u**2), 0.07 * u**2),
}
"""Log loss above the minimum u octaves from it, at the i-th size."""

SCATTERED = {"sizes scatter by 0.1": 0.1, "sizes scatter by 0.2": 0.2}
"""Octaves by which optima scatter about their law."""

OTHERS: dict[str, Callable[[Array], Array]] = {
    "quartic": lambda u: 0.03 * u**4 / (1 + 0.1 * u**2),
    "saturating": lambda u: 0.5 * (1 - np.exp(-0.14 * u**2)),
    "kink and parabola": lambda u: np.where(u < 0, 0.1 * np.abs(u), 0.08 * u**2),
    "two shallow minima": lambda u: 0.05 * u**2 + 0.012 * (1 - np.cos(4 * u)),
}
UNSEEN: dict[str, Callable[[Array], Array]] = {
    "logarithmic": lambda u: 0.12 * np.log1p(u**2),
    "tilted": lambda u: 0.07 * u**2 * (1 + 0.5 * np.tanh(u)),
}
"""Shapes that were written after the statistics; those unseen were run once, at the end."""

SHIFTING = {"sizes shift together": (0.7, 0.1), "as on tables": (0.5, 0.1)}
"""Optima by autoregressive octaves, the same for all seeds: correlation a doubling apart, and
standard deviation. On tables runs scatter by 0.016, 6% of a common valley's rise in two octaves."""

UNSEEN_NOISES = ("missing runs", "rounded losses", "louder with size")
"""15% of the runs; to 0.01; by half with every size."""

BREAKING = {"breaks at 0.6": 0.6, "breaks at 1.5": 1.5}
"""Octaves from the optimum beyond which a run's loss is 10 to 1e5 times as large, at random."""

REAL = 0.009
"""Standard deviation of log losses between runs, beside what a seed shares; as measured."""


@dataclass(frozen=True, kw_only=True)
class World:
    """What is simulated: a valley, a noise, a grid, sizes and seeds."""

    shape: str
    noise: str
    spacing: float
    seeds: int

    def valley(self, u: Array) -> Array:
        """Log loss above the minimum; sizes are the second axis."""
        if self.shape in CHANGING:
            return np.asarray(
                CHANGING[self.shape](u, np.arange(u.shape[1], dtype=float)[:, None, None])
            )
        return {**SHAPES, **WALLS, **OTHERS, **UNSEEN}[self.shape](u)

    def curves(self, rng: np.random.Generator, optimum: Array) -> Curves:
        """Curves whose minima lie at (experiments, sizes), on one grid for each experiment."""
        return self.sweeps(rng, optimum)[0]

    def sweeps(self, rng: np.random.Generator, optimum: Array) -> tuple[Curves, Array]:
        """The curves, and the minima that were realized about the law."""
        experiments, sizes = optimum.shape
        if self.noise in SHIFTING:
            alike, deviation = SHIFTING[self.noise]
            shifts = deviation * rng.standard_normal(optimum.shape)
            for i in range(1, sizes):
                shifts[:, i] = alike * shifts[:, i - 1] + math.sqrt(1 - alike**2) * shifts[:, i]
            optimum = optimum + shifts
        optimum = optimum + SCATTERED.get(self.noise, 0.0) * rng.standard_normal(optimum.shape)
        low = float(optimum.min()) - 3
        count = math.ceil((float(optimum.max()) + 3 - low) / self.spacing) + 1
        phase = rng.uniform(0, self.spacing, (experiments, 1))
        rates = low + phase + self.spacing * np.arange(count)
        shift = optimum[:, :, None] + self._shifts(rng, experiments, sizes)
        u = rates[:, None, :, None] - shift[:, :, None, :]
        level = 0.03 * rng.standard_normal((experiments, 1, 1, self.seeds))
        log_loss = self.valley(u) + level + self._scatter(rng, u)
        if self.noise in CLIFFS:
            edge = 0.1 * rng.standard_normal((experiments, 1, 1, self.seeds))
            log_loss = np.where(u > CLIFFS[self.noise] + edge, math.inf, log_loss)
        elif self.noise in BREAKING:
            broke = u > BREAKING[self.noise] + 0.1 * rng.standard_normal(u.shape)
            log_loss = log_loss + broke * math.log(10) * rng.uniform(1, 5, u.shape)
        grid = np.broadcast_to(rates[:, None, :], log_loss.shape[:-1])
        losses, realized = np.exp(log_loss), optimum
        if self.noise == "missing runs":
            losses = np.where(rng.random(losses.shape) < 0.15, math.nan, losses)
        elif self.noise == "rounded losses":
            losses = np.round(losses, 2)
        return Curves(log2_lrs=grid, losses=losses), realized

    def _shifts(self, rng: np.random.Generator, experiments: int, sizes: int) -> Array:
        """Each seed's own optimum, and its own slope over sizes: (experiments, sizes, seeds)."""
        shape = (experiments, 1, self.seeds)
        slope = np.zeros(shape)
        if self.noise == "own slopes":
            slope = 0.05 * rng.standard_normal(shape)
        elif self.noise == "own slopes, heavy":
            slope = 0.03 * np.clip(rng.standard_t(2, shape), -15, 15)
        step = np.arange(sizes) - (sizes - 1) / 2
        return np.asarray(0.05 * rng.standard_normal(shape) + slope * step[None, :, None])

    def _scatter(self, rng: np.random.Generator, u: Array) -> Array:
        deviation = {"quiet": 0.002, "loud": 0.03, "as on tables": 0.016}.get(self.noise, REAL)
        scatter = deviation * rng.standard_normal(u.shape)
        if self.noise == "heavy tails":
            scatter = deviation * rng.standard_t(3, u.shape) / math.sqrt(3)
        elif self.noise == "unequal sizes":
            scatter = scatter * np.linspace(0.4, 2, u.shape[1])[None, :, None, None]
        elif self.noise == "unequal rates":
            scatter = scatter * 2 ** np.clip(u / 2, -2, 2)
        elif self.noise == "louder with size":
            scatter = scatter * 1.5 ** np.arange(u.shape[1])[None, :, None, None]
        elif self.noise == "spikes":
            scatter = scatter + 0.2 * (rng.random(u.shape) < 0.02)
        return np.asarray(scatter)


KINDS: tuple[tuple[str, str], ...] = (
    *product(SHAPES, NOISES),
    *product([*WALLS, *OTHERS, *CHANGING, *UNSEEN], ["like real"]),
    *product(SHAPES, [*SCATTERED, *SHIFTING, *UNSEEN_NOISES, *BREAKING]),
    *product(CHANGING, ["as on tables"]),
    (RECEDING, "quiet"),
)
"""Every shape and noise that is simulated; what is rare with the noise of real runs alone."""

EVERY = tuple(product(range(1, 7), (4, 5, 6)))
DRIFTS = (0.0, 0.1, 0.2)
"""Seeds and sizes of a world's sweeps, and octaves per doubling, in equal parts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Told:
    """What drifts of simulated sweeps say beside the truth, one entry a sweep."""

    truth: Array
    value: Array
    low: Array
    high: Array

    @staticmethod
    def all(parts: Iterable["Told"]) -> "Told":
        rows = list(parts)
        names = ("truth", "value", "low", "high")
        return Told(**{n: np.concatenate([getattr(row, n) for row in rows]) for n in names})

    @property
    def held(self) -> Flags:
        return np.asarray((self.low <= self.truth) & (self.truth <= self.high))

    @property
    def half(self) -> Array:
        return np.asarray((self.high - self.low) / 2)

    @property
    def over_needed(self) -> float:
        """How much narrower all intervals could be and hold 95%."""
        away = np.abs(self.value - self.truth) / np.maximum(self.half, 1e-9)
        return 1 / max(float(np.quantile(away, 0.95)), 1e-9)

    @property
    def stays(self) -> Flags:
        return np.asarray((self.low >= -TOLERANCE) & (self.high <= TOLERANCE))

    @property
    def moves(self) -> Flags:
        return np.asarray((self.low > TOLERANCE) | (self.high < -TOLERANCE))

    @property
    def false(self) -> Flags:
        """Verdicts that the minima which were realized contradict."""
        within = np.asarray(np.abs(self.truth) <= TOLERANCE)
        return np.asarray((self.moves & within) | (self.stays & ~within))

    def row(self, name: str) -> str:
        low = tail(self.held, 0.88, below=True)
        wrong = tail(self.false, 0.025, below=False)
        return (
            f"| {name} | {self.held.mean():.1%}{'*' if low < 0.01 else ''} | "
            f"{np.median(self.half):.3f} | {self.over_needed:.1f} | "
            f"{(self.stays | self.moves).mean():.0%} | "
            f"{self.false.mean():.1%}{'*' if wrong < 0.01 else ''} |"
        )


def tail(flags: Flags, share: float, *, below: bool) -> float:
    """Probability of so few, or so many, of these if each had this share."""
    from scipy.stats import binom

    count, n = int(flags.sum()), len(flags)
    return float(binom.cdf(count, n, share) if below else binom.sf(count - 1, n, share))


def drifts_of(shape: str, noise: str, spacing: float, experiments: int) -> Told:
    """Drifts of one world's sweeps, of every number of seeds, sizes and drift."""
    parts = []
    each = math.ceil(experiments / len(EVERY) / len(DRIFTS))
    drift = np.repeat(DRIFTS, each)
    for seeds, sizes in EVERY:
        world = World(shape=shape, noise=noise, spacing=spacing, seeds=seeds)
        rng = np.random.default_rng(zlib.crc32(f"{world} {sizes}".encode()))
        curves, realized = world.sweeps(rng, drift[:, None] * np.arange(sizes))
        # These sizes: how the optimum moved between them, whatever the law says of others.
        truth = np.polyfit(np.arange(sizes), realized.T, 1)[0]
        value, low, high = drifts(np.arange(sizes), curves)
        parts.append(Told(truth=truth, value=value, low=low, high=high))
    return Told.all(parts)


def group_of(shape: str, noise: str) -> str:
    """What a world tests beyond the shapes and noises of real runs, if anything."""
    if shape in WALLS:
        return "walls where nothing diverges"
    if shape in CHANGING:
        return "valleys that change with size"
    if shape in UNSEEN or noise in UNSEEN_NOISES:
        return "unseen until the end"
    if noise in BREAKING:
        return "breaks"
    if shape in OTHERS:
        return "other shapes"
    if noise in CLIFFS:
        return "five shapes, beside a divergence"
    if noise in (*SCATTERED, *SHIFTING):
        return "sizes that scatter or shift"
    return "five shapes, nine noises"


def report_drifts(experiments: int, only: str) -> None:
    """Coverage, width, and verdicts of every world, as Markdown; a star where one is off at 1%."""
    kinds = [(shape, noise) for shape, noise in KINDS if only in f"{shape}, {noise}"]
    for spacing in (0.5, 1.0):
        print(f"\n### Drift, grids of {spacing:g} octave, {experiments} sweeps a world\n")
        print("| | coverage | half-width | / needed | decided | false |")
        print("| --- | --- | --- | --- | --- | --- |", flush=True)
        groups: dict[str, list[Told]] = defaultdict(list)
        for shape, noise in kinds:
            told = drifts_of(shape, noise, spacing, experiments)
            print(told.row(f"{shape}, {noise}"), flush=True)
            groups["all"].append(told)
            groups[group_of(shape, noise)].append(told)
        for name, some in groups.items():
            print(Told.all(some).row(f"**{name}**, {len(some)} worlds"), flush=True)


def cut_short(world: World, rng: np.random.Generator, drift: float) -> Along | None:
    """Sizes along an axis, the optima of the farthest beyond the grid; None unless they count."""
    sizes = int(rng.choice([4, 5, 6]))
    beyond = int(rng.choice([1, 2])) if sizes > 4 else 1
    optimum = np.asarray(drift * np.arange(sizes), float)
    curves = world.curves(rng, optimum[None])
    rates = curves.log2_lrs[0][0]
    end = float(optimum[-1 - beyond]) + math.copysign(rng.uniform(0.1, 0.6), drift)
    kept = rates <= end if drift > 0 else rates >= end
    cut = Curves(log2_lrs=curves.log2_lrs[0][:, kept], losses=curves.losses[0][:, kept])
    grown = tuple({"width": 2.0**i} for i in range(sizes))
    along = along_axis(Runs(name="", title="", sizes=grown, curves=cut), "width")
    return None if along is None or along.inside.all() else along


def report_edges(experiments: int) -> None:
    """What optima at an edge of their grid do to drifts, as Markdown."""
    print(f"\n### Optima at an edge, {experiments} tables of each shape and noise\n")
    print(
        "| shape | tables | r.m.s. error | half-width | held | without: error | half-width | held |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    every: list[tuple[list[Array], list[Array]]] = []
    for shape in [*SHAPES, *WALLS, *OTHERS, *CHANGING, *UNSEEN]:
        rng = np.random.default_rng(zlib.crc32(shape.encode()))
        told: tuple[list[Array], list[Array]] = [], []
        for noise, spacing, seeds, _ in product(
            ("like real", "as on tables", "sizes scatter by 0.1", "own slopes"),
            (0.5, 1.0),
            (1, 3),
            range(experiments),
        ):
            world = World(shape=shape, noise=noise, spacing=spacing, seeds=seeds)
            drift = float(rng.choice([-1.0, -0.5, -0.3, 0.1, 0.3]))
            along = cut_short(world, rng, drift)
            if along is None:
                continue
            inside = along_axis(along.runs.at(np.flatnonzero(along.inside)), "width")
            if inside is None:
                continue
            both = [a.drift(LEARNING_RATE) for a in (along, inside)]
            if all(found.known for found in both):
                for some, found in zip(told, both, strict=True):
                    held = found.low <= drift <= found.high
                    some.append(np.array([found.value - drift, found.high - found.value, held]))
        every.append(told)
        print(f"| {shape} | {len(told[0])} | {_told(told[0])} | {_told(told[1])} |")
    whole = [[row for told in every for row in told[i]] for i in (0, 1)]
    print(f"| all | {len(whole[0])} | {_told(whole[0])} | {_told(whole[1])} |")


def _told(rows: Sequence[Array]) -> str:
    """Error, half-width and coverage of drifts, as cells of a table."""
    if not rows:
        return " | | "
    away, half, held = np.array(rows).T
    return f"{math.sqrt((away**2).mean()):.3f} | {np.median(half):.3f} | {held.mean():.1%}"


LAWS: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "straight": lambda x, rng: rng.choice([0.0, 0.1, -0.3, -0.5]) * x,
    "dies out": lambda x, rng: rng.choice([0.3, -0.3, -0.6]) * (1 - 0.6**x) / 0.4,
    "sizes scatter by 0.1": lambda x, rng: (
        rng.choice([0.0, 0.1, -0.3]) * x + 0.1 * rng.standard_normal(len(x))
    ),
    "slope wanders by 0.1": lambda x, rng: np.cumsum(
        rng.choice([0.0, 0.1, -0.3]) + np.cumsum(0.1 * rng.standard_normal(len(x)))
    ),
}
DEPTHS, WIDTHS = (4, 8, 16, 32), (16, 32, 64)
ALONG = [{"depth": d} for d in DEPTHS]
STAR = [{"width": 16, "depth": d} for d in DEPTHS] + [{"width": w, "depth": 4} for w in WIDTHS[1:]]
CORNER = {"width": 32, "depth": 32}
JOINT = [{"width": w, "depth": d} for w, d in ((64, 32), (32, 64), (64, 64), (128, 32))]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A certificate beside the truth."""

    issued: bool
    held: bool = False
    dearer: bool = False
    claimed: bool = False
    false: bool = False
    half: float = math.nan


def one_axis(world: World, law: str, rng: np.random.Generator) -> Judged:
    """Four depths, and a target at four times the largest."""
    x = np.arange(len(DEPTHS) + 2)
    optimum = LAWS[law](x.astype(float), rng)
    return judged(world, rng, ALONG, {"depth": 128}, optimum[:4], optimum[5])


def two_axes(world: World, interaction: float, rng: np.random.Generator) -> Judged:
    """Two arms and a corner, and a target that grows along both."""
    target = JOINT[rng.integers(len(JOINT))]
    slope = rng.uniform(-0.2, 0.2, 2)

    def at(size: dict[str, int]) -> float:
        x = np.log2([size["width"] / 16, size["depth"] / 4])
        return float(slope @ x + interaction * x[0] * x[1])

    sizes = [*STAR, CORNER]
    wobble = 0.03 * rng.standard_normal(len(sizes) + 1)
    optimum = np.array([at(size) for size in [*sizes, target]]) + wobble
    return judged(world, rng, sizes, target, optimum[:-1], optimum[-1])


def judged(
    world: World,
    rng: np.random.Generator,
    sizes: list[dict[str, int]],
    target: dict[str, int],
    optimum: Array,
    truth: float,
) -> Judged:
    """Certify a simulated sweep, and compare with the true valley at the target."""
    curves = world.curves(rng, optimum[None])
    curves = Curves(log2_lrs=curves.log2_lrs[0], losses=curves.losses[0])
    certificate = calibrate(sizes=sizes, curves=curves, target=target)
    if not certificate.issued:
        return Judged(issued=False)
    valley, p = world.valley, certificate.predicted
    kept = certificate.optima[0].log2_lr.value
    price = math.expm1(float(valley(np.array(p.value - truth))))
    regret = math.expm1(float(valley(np.array(kept - truth))))
    claimed = certificate.verdict is Verdict.TRANSFERS
    return Judged(
        issued=True,
        held=p.low <= truth <= p.high,
        dearer=price > certificate.penalty.high,
        claimed=claimed,
        false=claimed and regret > certificate.base_regret.high,
        half=p.high - p.value,
    )


def report_certificates(experiments: int) -> None:
    """How many certificates hold the true minimum, by law and by shape, as Markdown."""
    print(f"\n### Certificates, nominal 90%, true minimum, {experiments} sweeps a cell\n")
    print("| law | issued | held | by shape | half-width | penalty above its bound | transfer "
          "claimed | of these falsely |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    rows: list[tuple[str, Callable[[World, np.random.Generator], Judged]]] = [
        *((f"one axis, {law}", lambda w, rng, law=law: one_axis(w, law, rng)) for law in LAWS),
        *(
            (f"two axes, interaction {i:g}", lambda w, rng, i=i: two_axes(w, i, rng))
            for i in (0.0, -0.05, -0.1)
        ),
    ]
    for name, run in rows:
        results: list[tuple[World, Judged]] = []
        for spacing, shape, noise, seeds in product(
            (0.5, 1.0), SHAPES, ("quiet", "like real", "unequal sizes", "own slopes"), (3, 5)
        ):
            world = World(shape=shape, noise=noise, spacing=spacing, seeds=seeds)
            rng = np.random.default_rng(zlib.crc32(f"{name} {world}".encode()))
            results += [(world, run(world, rng)) for _ in range(experiments)]
        issued = [(w, r) for w, r in results if r.issued]
        claimed = [r for _, r in issued if r.claimed]
        shapes = ", ".join(
            f"{shape} {_mean(r.held for w, r in issued if w.shape == shape):.0%}"
            for shape in SHAPES
        )
        print(
            f"| {name} | {len(issued)} of {len(results)} | {_mean(r.held for _, r in issued):.1%} "
            f"| {shapes} | {np.median([r.half for _, r in issued]):.2f} | "
            f"{_mean(r.dearer for _, r in issued):.1%} | {len(claimed)} | "
            f"{sum(r.false for r in claimed)} |"
        )


def _mean(values: Iterable[float]) -> float:
    numbers = [float(v) for v in values]
    return sum(numbers) / len(numbers) if numbers else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=432, help="sweeps a world of drifts")
    parser.add_argument("--certificates", type=int, default=10, help="per cell of certificates")
    parser.add_argument("--edges", type=int, default=8, help="tables per cell of edges")
    parser.add_argument("--only", choices=["drifts", "edges", "certificates"])
    parser.add_argument("--world", default="", help="words of the worlds of drifts")
    options = parser.parse_args()
    asked = [options.only] if options.only else ["drifts", "edges", "certificates"]
    if "drifts" in asked:
        report_drifts(options.experiments, options.world)
    if "edges" in asked:
        report_edges(options.edges)
    if "certificates" in asked:
        report_certificates(options.certificates)


if __name__ == "__main__":
    main()
