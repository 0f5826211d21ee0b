"""Do recipes that smaller sizes predict hold on random searches of other people?

    python -m studies.public_recipes FOLDER        # minutes

FOLDER has the files of ``TABLES``, which were chosen before the first fit. They are data of
github.com/nicholaslourie/opda (commit 9529a34b, CC licences beside each): random searches whose
runs also differ in what is not read here, such as epochs or label smoothing. That is their noise.

Of each table the largest size is left out, and its joint optimum is predicted from the others: by
all their runs, and by each of ``PARTS`` parts into which the runs of every size fall by chance. A
part of a search is a search. ``--sizes`` leaves out the next one, too.

The judge is no part of the library: a quadratic of the log loss in the log2 of all values, by
least squares on the better half of the left-out size's own runs, with a bootstrap over these runs.
A value is judged where the middle 90% of its bootstrap is narrower than half of the range tried.
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

import depthmup

PARTS, DRAWS = 3, 400


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


def lowest(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The minimum of a quadratic through points, within their range; NaN where it has none."""
    values = x.shape[1]
    upper = np.triu_indices(values)
    middle = x.mean(0)
    z = x - middle
    design = np.column_stack([np.ones(len(z)), z, z[:, upper[0]] * z[:, upper[1]]])
    found = np.linalg.lstsq(design, y, rcond=None)[0]
    curved = np.zeros((values, values))
    curved[upper] = found[1 + values :]
    curved = curved + curved.T
    if np.linalg.eigvalsh(curved).min() <= 0:
        return np.full(values, np.nan)
    return np.clip(middle - np.linalg.solve(curved, found[1 : 1 + values]), x.min(0), x.max(0))


def judged(runs: pd.DataFrame, table: Table) -> Iterator[tuple[float, float, float, float]]:
    """Of each value: the judge's optimum, the ends of its error, and the range tried."""
    x, y = np.log2(runs[list(table.tuned)].to_numpy(float)), np.log(runs["loss"].to_numpy(float))
    kept = y <= np.median(y)
    inner, y_inner = x[kept], y[kept]
    rng, draws = np.random.default_rng(0), []
    for _ in range(DRAWS):
        rows = rng.integers(0, len(inner), len(inner))
        draws.append(lowest(inner[rows], y_inner[rows]))
    every = np.array(draws)
    point = lowest(inner, y_inner)
    for value in range(x.shape[1]):
        # A draw without a minimum knows nothing: it counts as both ends of the range.
        lost = np.isnan(every[:, value])
        ends = np.resize([x[:, value].min(), x[:, value].max()], len(every))
        low, high = np.quantile(np.where(lost, ends, every[:, value]), [0.05, 0.95])
        yield point[value], low, high, float(np.ptp(x[:, value]))


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
                    if told and np.isfinite(point) and high - low < reach / 2:
                        away = point - told.value
                        mine = told.high - told.value if away > 0 else told.value - told.low
                        its = point - low if away > 0 else high - point
                        held.append((abs(away) <= mine, abs(away) <= np.hypot(mine, its)))
                        cells += ["yes" if one else "no" for one in held[-1]]
                    else:
                        cells += ["not judged", ""]
                    print(f"| {' | '.join(cells)} |", flush=True)
    plain, allowing = np.mean(held, axis=0)
    print(f"\n{len(held)} judged: {plain:.0%} held, {allowing:.0%} allowing for the judge's error.")


if __name__ == "__main__":
    main()
