"""Do recipes that smaller sizes predict hold on random searches of other people?

    python -m studies.public_recipes FOLDER        # minutes

FOLDER has the files of ``TABLES``, which were chosen before the first fit. They are data of
github.com/nicholaslourie/opda (commit 9529a34b, CC licences beside each): random searches whose
runs also differ in what is not read here, such as epochs or label smoothing. That is their noise.

Of each table the largest size is left out, and its joint optimum is predicted from the others: by
all their runs, and by each of ``PARTS`` parts into which the runs of every size fall by chance. A
part of a search is a search. ``--sizes`` leaves out the next one, too.

The judge is no part of the library: a Gaussian process through the log losses of the left-out
size's own runs alone. Where draws of it are lowest is its optimum, with the middle 90% of draws as
its error. A value is judged where these are narrower than half of the range tried. (The first
judge, a quadratic through the better half, had no minimum in three tables and judged nothing.)
*held*: the judge's optimum lies in the 90% interval; *allowing for its error*: it lies within the
root of the sum of squares of both half-widths.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

import depthmup

PARTS, DRAWS, PLACES = 3, 400, 1200
CLIPPED = 0.75
"""Of the losses of a size that learn: those above are walls, of whatever height."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A random search: its file, the size that grows, what was tuned, and the loss of guessing."""

    file: str
    size: str
    tuned: tuple[str, ...]
    chance: float


SGD = ("lr", "one_minus_momentum", "weight_decay")
FINE_TUNING = ("learning_rate", "train_batch_size")
TABLES = (
    Table(file="alexnet_tuning.results.jsonl", size="batch_size", tuned=SGD, chance=0.999),
    Table(file="convnext-tiny_tuning.results.jsonl", size="batch_size", tuned=SGD, chance=0.999),
    Table(
        file="deberta-base_tuning.results.jsonl",
        size="num_train_epochs",
        tuned=FINE_TUNING,
        chance=2 / 3,
    ),
    Table(
        file="deberta-v3-base_tuning.results.jsonl",
        size="num_train_epochs",
        tuned=FINE_TUNING,
        chance=2 / 3,
    ),
)

LEARNS = 0.95
"""Of the loss of guessing: a run above learns nothing, and counts as one that diverged."""


def read(folder: Path, table: Table) -> pd.DataFrame:
    """Size, tuned values and error rate of every run."""
    rows = []
    for line in (folder / table.file).read_text().splitlines():
        run = json.loads(line)
        if "learning_curve" in run:
            curve = run["learning_curve"]
            whole = not run["nan_train_loss"] and len(curve) == run["epochs"]
            right = curve[-1]["top_1"] if whole else 0.0
        else:
            right = np.mean([curve[-1][1] for curve in run["learning_curves"].values()])
        run["one_minus_momentum"] = 1 - run.get("momentum", 0.0)
        error = 1 - right
        loss = error if error < LEARNS * table.chance else np.inf
        rows.append({name: run[name] for name in (table.size, *table.tuned)} | {"loss": loss})
    return pd.DataFrame(rows)


def joint(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Where draws of a Gaussian process through points are lowest, within their range."""
    low, high = x.min(0), x.max(0)
    unit, mean, scale = (x - low) / (high - low), y.mean(), y.std()
    told = (y - mean) / scale

    def covariance(one: np.ndarray, other: np.ndarray, reach: np.ndarray) -> np.ndarray:
        apart = ((one[:, None] - other) / reach) ** 2
        return np.exp(-apart.sum(-1) / 2)

    def misfit(hyper: np.ndarray) -> float:
        reach, height, noise = np.exp(hyper[:-2]), np.exp(hyper[-2]), np.exp(hyper[-1])
        own = height * covariance(unit, unit, reach) + noise * np.eye(len(unit))
        root = np.linalg.cholesky(own)
        inner = np.linalg.solve(root, told)
        # A weak prior keeps the scales of flat values finite.
        prior = ((hyper[:-2] + 0.5) ** 2).sum() / 2 + (hyper[-2] ** 2 + (hyper[-1] + 2) ** 2) / 8
        return float(inner @ inner / 2 + np.log(np.diag(root)).sum() + prior)

    first = np.r_[np.full(x.shape[1], -0.5), 0.0, -2.0]
    hyper = minimize(misfit, first, method="L-BFGS-B", bounds=[(-4.0, 3.0)] * len(first)).x
    reach, height, noise = np.exp(hyper[:-2]), np.exp(hyper[-2]), np.exp(hyper[-1])
    places = rng.uniform(size=(PLACES, x.shape[1]))
    own = height * covariance(unit, unit, reach) + noise * np.eye(len(unit))
    across = height * covariance(places, unit, reach)
    solved = np.linalg.solve(own, across.T)
    spread = height * covariance(places, places, reach) - across @ solved
    root = np.linalg.cholesky(spread + 1e-6 * np.eye(PLACES))
    draws = (across @ np.linalg.solve(own, told))[:, None] + root @ rng.normal(size=(PLACES, DRAWS))
    return low + (high - low) * places[draws.argmin(0)]


def judged(runs: pd.DataFrame, table: Table) -> Iterator[tuple[float, float, float, float]]:
    """Of each value: the judge's optimum, the ends of its error, and the range tried."""
    x, y = np.log2(runs[list(table.tuned)].to_numpy(float)), np.log(runs["loss"].to_numpy(float))
    worst = np.quantile(y[np.isfinite(y)], CLIPPED)
    draws = joint(x, np.minimum(y, worst), np.random.default_rng(0))
    low, point, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    yield from zip(point, low, high, np.ptp(x, axis=0), strict=True)


def parts(runs: pd.DataFrame, table: Table) -> Iterator[tuple[str, pd.DataFrame]]:
    """All runs, and parts that each have their share of every size."""
    yield "all", runs
    rng = np.random.default_rng(0)
    order = runs.groupby(table.size)["loss"].transform(lambda own: rng.permutation(len(own)))
    for part in range(PARTS):
        yield f"part {part + 1}", runs[order % PARTS == part]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", action="store_true")
    asked = parser.parse_args()
    heads = ("table", "left out", "runs", "value", "predicted", "judged", "held", "allowing")
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
    held: list[tuple[bool, bool]] = []
    for table in TABLES:
        runs = read(asked.folder, table)
        sizes = sorted(runs[table.size].unique())
        for out in sizes[:-3:-1] if asked.sizes else sizes[-1:]:
            judges = list(judged(runs[runs[table.size] == out], table))
            smaller = runs[runs[table.size] < out]
            for name, own in parts(smaller, table):
                report = depthmup.fit(
                    own, axes={"size": table.size}, lr=list(table.tuned), loss="loss",
                    target={"size": float(out)},
                )  # fmt: skip
                predicted = report.recipe().target
                estimates = predicted.log2 if predicted else [None] * len(table.tuned)
                for value, told, judge in zip(table.tuned, estimates, judges, strict=True):
                    point, low, high, reach = judge
                    cells = [table.file.partition("_")[0], str(out), f"{name}: {len(own)}", value]
                    cells.append(
                        f"{2**told.value:.2g} ({2**told.low:.2g} to {2**told.high:.2g})"
                        if told
                        else "none"
                    )
                    cells.append(f"{2**point:.2g} ({2**low:.2g} to {2**high:.2g})")
                    if told and high - low < reach / 2:
                        away = point - told.value
                        mine = told.high - told.value if away > 0 else told.value - told.low
                        its = point - low if away > 0 else high - point
                        held.append((abs(away) <= mine, abs(away) <= np.hypot(mine, its)))
                        cells += ["yes" if one else "no" for one in held[-1]]
                    else:
                        cells += ["not judged", ""]
                    print(f"| {' | '.join(cells)} |", flush=True)
    plain, allowing = np.mean(held or [(np.nan, np.nan)], axis=0)
    print(f"\n{len(held)} judged: {plain:.0%} held, {allowing:.0%} allowing for the judge's error.")


if __name__ == "__main__":
    main()
