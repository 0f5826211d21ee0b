"""Does a fit of a person's table hold what it says? Simulated tables with known truth.

    python -m studies.fit            # the tables of docs/studies/fit.md; ten minutes on one core
    python -m studies.fit --tables 400     # sharper

A table has 18 sizes, six depths and three widths; exponents drawn for each axis; valleys of five
shapes; grids of half an octave, one and two, drawn for each size at random phase; 20% of the cells
missing; heavy tails; cliffs beside the optimum; two sizes whose grid ends at their optimum. Defects
are planted on request: a size whose rates are 1000 times too large, one whose losses are in bits,
two impossible losses. The two sizes are noted and kept; a person then leaves them out.
"""

import argparse
import math
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

import depthmup
from depthmup.posterior.intervals import Array
from depthmup.records import Defect
from depthmup.statistics.scattered import gather
from studies.coverage import REAL, SHAPES

if TYPE_CHECKING:
    import pandas as pd

DEPTHS, WIDTHS = (4, 8, 16, 32, 64, 128), (128, 256, 512)
SPACINGS = (0.5, 1.0, 2.0)
MISSING = 0.2
EXPONENTS = (0.0, -0.25, -0.5, 0.2, 0.35)
CLIFF = 0.3
"""Share of the tables whose runs diverge 0.6 to 2 octaves above their optimum."""

SHOWN_BY = 3
"""Rates of a size that must train for its losses to show a valley."""

AXES = {"depth": "n_layers", "width": "d_model"}
TARGETS = ({"depth": 512, "width": 512}, {"depth": 128, "width": 2048})
"""Four times the largest size, along one axis each."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A simulated table and what it was made from."""

    runs: "pd.DataFrame"
    depth: float
    width: float
    base: float
    planted: dict[Defect, list[set[int]]]

    def optimum(self, depth: float, width: float) -> float:
        """log2 of the best rate."""
        return float(
            self.base
            + self.depth * math.log2(depth / DEPTHS[0])
            + self.width * math.log2(width / WIDTHS[0])
        )


def simulated(rng: np.random.Generator, *, seeds: int, planted: bool, edges: int = 2) -> Truth:
    """One table.

    Args:
        rng: draws everything.
        seeds: of every run, shared by all sizes.
        planted: whether two unit slips and two impossible rows are in it.
        edges: how many sizes have their grid end at their optimum.
    """
    import pandas as pd

    slope = {axis: float(rng.choice(EXPONENTS)) for axis in ("depth", "width")}
    base = rng.uniform(-9, -5)
    shape = SHAPES[str(rng.choice(list(SHAPES)))]
    cliff = rng.uniform(0.6, 2.0) if rng.random() < CLIFF else math.inf
    sizes = list(product(DEPTHS, WIDTHS))
    cut = set(rng.choice(len(sizes), edges, replace=False).tolist())
    level = 0.03 * rng.standard_normal(seeds)
    shift = 0.05 * rng.standard_normal(seeds)
    frames = []
    for number, (depth, width) in enumerate(sizes):
        best = base + slope["depth"] * math.log2(depth / DEPTHS[0])
        best += slope["width"] * math.log2(width / WIDTHS[0])
        spacing = float(rng.choice(SPACINGS))
        low, high = (best - 3, best + 3) if number not in cut else (best - 4, best)
        rates = np.arange(low + rng.uniform(0, spacing), high + 1e-9, spacing)
        u = rates[:, None] - best - shift
        tails = REAL * rng.standard_t(3, u.shape) / math.sqrt(3)
        trend = math.log(1.8 + 2.5 * (depth * width / 512) ** -0.25)
        loss = np.exp(np.where(u > cliff, math.inf, trend + shape(u) + level + tails))
        there = rng.random(u.shape) > MISSING
        rate, seed = np.broadcast_arrays(2.0 ** rates[:, None], np.arange(seeds))
        frame = {"n_layers": depth, "d_model": width, "lr": rate[there], "seed": seed[there]}
        frames.append(pd.DataFrame({**frame, "loss": loss[there]}))
    runs = pd.concat(frames, ignore_index=True)
    truth = {"depth": slope["depth"], "width": slope["width"], "base": base}
    defects = _plant(rng, runs) if planted else {}
    return Truth(runs=runs, planted=defects, **truth)


def _plant(
    rng: np.random.Generator, runs: "pd.DataFrame", *, fewest: int = SHOWN_BY
) -> dict[Defect, list[set[int]]]:
    """Put two unit slips and two impossible rows into a table; the rows of each, from 1.

    Slips are planted in any two sizes whose losses show a valley: in which runs at three rates end
    below twice the size's best. Of one run nothing can be told.
    """
    shown = runs["loss"] < 2 * runs.groupby(["n_layers", "d_model"])["loss"].transform("min")
    rates_of = runs[shown].groupby(["n_layers", "d_model"])["lr"].nunique()
    sizes = [size for size, count in rates_of.items() if count >= fewest]
    rates, bits = rng.choice(len(sizes), 2, replace=False)
    slipped = {}
    for number, column, factor in ((rates, "lr", 1000.0), (bits, "loss", 1 / math.log(2))):
        depth, width = sizes[number]
        rows = (runs["n_layers"] == depth) & (runs["d_model"] == width)
        runs.loc[rows, column] *= factor
        slipped[number] = set(np.flatnonzero(rows) + 1)
    others = np.flatnonzero(
        ~np.isin(np.arange(1, len(runs) + 1), list(set.union(*slipped.values())))
    )
    wrong = rng.choice(others, 2, replace=False)
    runs.loc[wrong, "loss"] = rng.uniform(1e-4, 0.05, 2)
    return {
        Defect.UNIT: list(slipped.values()),
        Defect.IMPOSSIBLE: [{int(i) + 1} for i in wrong],
    }


def fitted(truth: Truth, **asked: Any) -> depthmup.FitReport:
    """The fit of a simulated table."""
    given = {"axes": AXES, "lr": "lr", "loss": "loss", "seed": "seed", **asked}
    return depthmup.fit(truth.runs, **given)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one table."""

    covered: list[bool]
    halves: list[float]
    found: bool
    wrongly: int
    predicted: bool | None = None
    half: float = math.nan


def told_of(truth: Truth, report: depthmup.Report) -> set[int]:
    """The planted rows that a report says something of: by their rows, or by their size."""
    rows = {row for note in report.notes() for row in note.rows}
    sizes = [dict(note.size) for note in report.notes()]
    found: set[int] = set()
    for slipped in truth.planted.get(Defect.UNIT, ()):
        of_size = truth.runs.iloc[min(slipped) - 1]
        if rows & slipped or {axis: of_size[column] for axis, column in AXES.items()} in sizes:
            found |= slipped
    return found | rows


def judged(truth: Truth, target: dict[str, int] | None = None) -> Outcome:
    """The fit of one table beside its truth, once a person left out the sizes that are noted."""
    first = report = fitted(truth, target=target)
    told = told_of(truth, first)
    if slipped := set().union(*truth.planted.get(Defect.UNIT, ())) & told:
        left = truth.runs.drop(index=[row - 1 for row in slipped])
        report = fitted(replace(truth, runs=left), target=target)
    joint = report.law()
    estimates = [(report.exponent(axis), getattr(truth, axis)) for axis in ("depth", "width")]
    if joint is not None:
        estimates += [(s.estimate, getattr(truth, s.axis)) for s in joint.exponents]
    known = [(e, t) for e, t in estimates if e.known]
    rows = {row.row for row in first.excluded}
    planted = {row for slices in truth.planted.values() for rows in slices for row in rows}
    predicted, half = None, math.nan
    for certificate in report.certificates:
        if certificate.issued:
            best = truth.optimum(**{a: certificate.target[a] for a in ("depth", "width")})
            at = certificate.predicted
            predicted, half = bool(at.low <= best <= at.high), (at.high - at.low) / 2
    return Outcome(
        covered=[e.low <= t <= e.high for e, t in known],
        halves=[(e.high - e.low) / 2 for e, _ in known],
        found=all(rows_of & told for slices in truth.planted.values() for rows_of in slices),
        wrongly=len(rows - planted),
        predicted=predicted,
        half=half,
    )


def tables(count: int, *, seeds: int, planted: bool, start: int = 0) -> Iterator[Truth]:
    """Tables that are the same in every run."""
    for number in range(start, start + count):
        yield simulated(
            np.random.default_rng([number, seeds, planted]), seeds=seeds, planted=planted
        )


def report_coverage(count: int) -> None:
    """Coverage of exponents and predictions, planted defects, sound rows, as Markdown."""
    print("\n| tables | seeds | defects | 95% exponents | half-width | planted found | sound rows "
          "left out | 90% predictions | issued | half-width |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for seeds, planted in product((1, 3), (False, True)):
        outcomes = [
            judged(truth, dict(TARGETS[i % len(TARGETS)]))
            for i, truth in enumerate(tables(count, seeds=seeds, planted=planted))
        ]
        covered = [c for o in outcomes for c in o.covered]
        predicted = [o.predicted for o in outcomes if o.predicted is not None]
        halves = [o.half for o in outcomes if o.predicted is not None]
        print(
            f"| {count} | {seeds} | {'planted' if planted else 'none'} | "
            f"{np.mean(covered):.1%} | {np.median([h for o in outcomes for h in o.halves]):.3f} | "
            f"{np.mean([o.found for o in outcomes]):.0%} | {sum(o.wrongly for o in outcomes)} | "
            f"{np.mean(predicted):.1%} | {len(predicted)} | {np.median(halves):.2f} |"
        )


LAW = {"parameters": -0.734, "tokens": 0.342}
"""Exponents of the synthetic benchmark of arXiv 2609.01431, Appendix E."""

CURVATURE = 0.40
"""Of its log loss in ln lr: log loss = best + 0.40 (ln lr - ln lr*)^2 / 2."""


def published(
    rng: np.random.Generator, *, whole_sizes: bool, noise: float = 0.003
) -> "pd.DataFrame":
    """A tenth of the runs of the synthetic benchmark: six of its sizes, or runs of all at random.

    Eight model sizes from 6e7 to 1e9 parameters, eight budgets from 2e9 to 1e11 tokens, sixteen
    rates half an octave apart.
    """
    import pandas as pd

    grid = np.array([*product(np.geomspace(6e7, 1e9, 8), np.geomspace(2e9, 1e11, 8))])
    rates = 2.0 ** np.arange(-12, -4.4, 0.5)
    n, d = (np.repeat(column, len(rates)) for column in grid.T)
    lr = np.tile(rates, len(grid))
    best = np.log(1.79) + LAW["parameters"] * np.log(n) + LAW["tokens"] * np.log(d)
    level = np.log(1.7 + 400 / n**0.34 + 410 / d**0.28)
    loss = level + CURVATURE / 2 * (np.log(lr) - best) ** 2 + noise * rng.standard_normal(n.shape)
    runs = pd.DataFrame({"parameters": n, "tokens": d, "lr": lr, "loss": np.exp(loss)})
    if not whole_sizes:
        return runs.sample(frac=0.1, random_state=int(rng.integers(2**31)))
    number = np.repeat(np.arange(len(grid)), len(rates))
    return runs[np.isin(number, rng.choice(len(grid), 6, replace=False))]


def report_published(count: int) -> None:
    """Exponents from a tenth of the grid, as Markdown."""
    print("\n| a tenth | exponent | truth | mean | r.m.s. error | 95% intervals that hold it |")
    print("| --- | --- | --- | --- | --- | --- |")
    for whole in (True, False):
        estimates: dict[str, list[Any]] = {axis: [] for axis in LAW}
        for number in range(count):
            runs = published(np.random.default_rng(number), whole_sizes=whole)
            report = depthmup.fit(runs, axes=list(LAW), lr="lr", loss="loss")
            joint = report.law()
            for slope in joint.exponents if joint else ():
                estimates[slope.axis] += [slope.estimate] if slope.estimate.known else []
        for axis, of_axis in estimates.items():
            errors = np.array([e.value for e in of_axis]) - LAW[axis]
            held = np.mean([e.low <= LAW[axis] <= e.high for e in of_axis])
            print(
                f"| {'six sizes' if whole else 'runs at random'} | {axis} | {LAW[axis]} | "
                f"{LAW[axis] + errors.mean():.3f} | {math.sqrt(np.mean(errors**2)):.3f} | "
                f"{held:.0%} of {len(of_axis)} |"
            )


def many_rows(count: int) -> "pd.DataFrame":
    """A long table: 24 sizes, 40 rates, as many seeds as it takes."""
    import pandas as pd

    rng = np.random.default_rng(0)
    depth, width = rng.choice(DEPTHS, count), rng.choice((128, 256, 512, 1024), count)
    step = rng.integers(-20, 20, count)
    u: Array = step / 4 + 0.3 * np.log2(depth)
    loss = 2.5 * np.exp(0.07 * u**2 + REAL * rng.standard_normal(count))
    columns = {"n_layers": depth, "d_model": width, "lr": 2.0 ** (step / 4 - 6), "loss": loss}
    return pd.DataFrame({**columns, "seed": rng.integers(0, 1 + count // 1000, count)})


def report_speed(folder: str) -> None:
    """Seconds and memory of long tables as CSV, as Markdown."""
    from pathlib import Path

    print("\n| rows | file | seconds of processor | peak memory |")
    print("| --- | --- | --- | --- |")
    for count in (10_000, 100_000, 1_000_000):
        path = Path(folder) / f"rows-{count}.csv"
        many_rows(count).to_csv(path, index=False)
        start = time.process_time()
        depthmup.fit(path, axes=AXES, lr="lr", loss="loss", seed="seed")
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"| {count:,} | {path.stat().st_size / 1e6:.1f} MB | {seconds:.1f} | {peak:.2f} GB |")


SEARCHED = np.array([-0.5, 0.3])
"""Exponents of simulated random searches, along width and depth."""

STEEP = 0.03
"""Curvature of their valleys at the minimum, nats per octave squared."""


def lopsided(z: Array, r: float | Array = 0.3) -> Array:
    """Steeper to the right; r = 0 is a parabola."""
    return np.asarray(STEEP * (np.exp(np.clip(r * z, -9, 3)) - 1 - r * z) / r**2)


VALLEYS: dict[str, Callable[[Array, Array], Array]] = {
    "parabola": lambda z, s: STEEP / 2 * z**2,
    "lopsided": lambda z, s: lopsided(z),
    "saturating": lambda z, s: np.where(
        z < 0, 0.12 * (1 - np.exp(-((z / 3) ** 2))), 0.012 * (np.exp(0.9 * z) - 1 - 0.9 * z)
    ),
    "sharpening": lambda z, s: STEEP / 2 * 2 ** (0.3 * (s - 3)) * z**2,
    "turning": lambda z, s: lopsided(z, 0.05 + 0.1 * s),
    "turning kink": lambda z, s: STEEP / 2 * np.exp(np.where(z < 0, -0.12, 0.12) * (s - 3)) * z**2,
}
"""Shapes of random searches: nats above the minimum, z octaves from it, at s doublings of width."""


def searched(
    rng: np.random.Generator, runs: int, valley: str, noise: float = 0.01
) -> tuple[Array, Array, Array]:
    """Sizes (runs, 2), log2 rates and log losses of a search over 6 doublings and 12 octaves.

    Noise is Student's t with 5 degrees of freedom and grows away from the minimum.
    """
    s, x = rng.uniform(0, 6, (runs, 2)), rng.uniform(-14, -2, runs)
    z = x - (-7 + s @ SEARCHED)
    level = 0.5 - 0.08 * s.sum(1) + 0.15 * np.exp(-0.5 * s[:, 0])
    y = level + VALLEYS[valley](z, s[:, 0])
    y += noise * (1 + 0.3 * np.abs(z)) * rng.standard_t(5, runs)
    return 2.0**s, x, np.where((valley == "saturating") & (z > 4.5), np.inf, y)


def report_searched(count: int) -> None:
    """Tables in which every run has a size of its own."""
    print("\nRandom searches: exponents of width and depth, each run of a size of its own\n")
    print("| valley | runs | r.m.s. error | half-width | 95% intervals that hold it | refused |")
    print("| --- | --- | --- | --- | --- | --- |")
    for valley in VALLEYS:
        for runs in (100, 300, 1000):
            rng = np.random.default_rng(runs)
            laws = [gather(*searched(rng, runs, valley)) for _ in range(count)]
            found = [
                (e.value - truth, (e.high - e.low) / 2)
                for law in laws
                if law is not None
                for e, truth in zip(law[0].exponents, SEARCHED, strict=True)
            ]
            off, half = np.array(found).T
            print(
                f"| {valley} | {runs:,} | {np.sqrt(np.mean(off**2)):.3f} | {np.median(half):.3f} "
                f"| {(np.abs(off) <= half).mean():.0%} | {sum(law is None for law in laws)} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage, defects and speed of fits of tables.")
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--only", choices=("coverage", "published", "searched", "speed"))
    parser.add_argument("--folder", default="/tmp")
    asked = parser.parse_args()
    if asked.only in (None, "speed"):
        report_speed(asked.folder)
    if asked.only in (None, "published"):
        report_published(asked.tables)
    if asked.only in (None, "searched"):
        report_searched(asked.tables)
    if asked.only in (None, "coverage"):
        report_coverage(asked.tables)


if __name__ == "__main__":
    main()
