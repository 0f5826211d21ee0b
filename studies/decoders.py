"""Schemes on small transformers: SP, muP, Depth-muP and CompleteP with AdamW and with Muon.

    python -m studies.decoders train     # what the store does not hold yet
    python -m studies.decoders           # the tables of docs/studies/transformers.md

Decoders of width 32 and 2 to 16 layers, two branches each, on bytes of Python's standard library.
All schemes and learning rates of a seed see the same batches, and start from the same weights.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from depthmup.model import Model, by_reference
from depthmup.records import Estimate, Optimum, Place, Trial, environment
from depthmup.rules import DEPTH_MUP, MUP, SP, completep
from depthmup.statistics import Array
from depthmup.sweep import (
    Processes,
    Progress,
    Store,
    Sweep,
    Train,
    losses_over,
    run,
    studies,
    together,
)
from reproduction.claims.common import changed, depths_of
from reproduction.claims.decoders import (
    SETTINGS,
    custom_sweep,
    decoder,
    normed,
    small_batch,
    unnormed,
)
from reproduction.intervals import jackknife

BASE = {"width": 32, "depth": 2}
DEPTHS = (2, 4, 8, 16)
WIDTHS = (16, 32, 64)
SEEDS = 6
MEMBERS = 18
MODELS = {
    name: decoder(make, small_batch)
    for name, make in (("with RMSNorm", normed), ("without", unnormed))
}
# Six octaves around the optimum of the base: there AdamW's is near 2^-5.5, Muon's near 2^-3.7 with
# norms and 2^-4.6 without (one seed each, before any other run).
LOG2_LRS = {
    ("adamw", "with RMSNorm"): tuple(float(k) for k in range(-8, -2)),
    ("muon", "with RMSNorm"): tuple(float(k) for k in range(-6, 0)),
    ("adamw", "without"): tuple(float(k) for k in range(-8, -2)),
    ("muon", "without"): tuple(float(k) for k in range(-7, -1)),
}


def along_depth(optimizer: str, norm: str) -> Sweep:
    """At a fixed width SP and muP prescribe the same: one row is for both."""
    return _grid(optimizer, norm, schemes=(SP, DEPTH_MUP, completep()), depth=DEPTHS)


def along_width(optimizer: str, norm: str) -> Sweep:
    """At the base's depth the schemes for depth are muP."""
    return _grid(optimizer, norm, schemes=(SP, MUP), width=WIDTHS)


def _grid(optimizer: str, norm: str, **axis: Any) -> Sweep:
    return custom_sweep(
        MODELS[norm],
        base=BASE,
        lrs=[2.0**k for k in LOG2_LRS[optimizer, norm]],
        optimizers=optimizer,
        seeds=SEEDS,
        steps=100,
        window=20,
        settings=SETTINGS,
        **axis,
    )


def sweeps() -> Iterator[tuple[Sweep, Model]]:
    for optimizer, norm in LOG2_LRS:
        yield along_depth(optimizer, norm), MODELS[norm]
    yield along_width("adamw", "with RMSNorm"), MODELS["with RMSNorm"]


def jobs(missing: Sequence[Trial]) -> list[Train]:
    """One table after the other, the largest depth last: tables are there when time runs out."""
    left = {trial.key: trial for trial in missing}
    found = []
    for deepest in (False, True):
        for grid, model in sweeps():
            trials = [
                left.pop(trial.key)
                for trial in grid.runs
                if trial.key in left and (trial.depth == DEPTHS[-1]) is deepest
            ]
            found += together(trials, by_reference(model), members=MEMBERS)
    return found


def train(store: Store, workers: int) -> None:
    trials = tuple({trial.key: trial for grid, _ in sweeps() for trial in grid.runs}.values())
    run(
        trials,
        store=store,
        executor=Processes(workers=workers),
        jobs=jobs,
        tell=partial(_tell, [time.monotonic()]),
        about={"environment": environment()},
    )


def _tell(last: list[float], progress: Progress) -> None:
    if time.monotonic() - last[0] > 60 or progress.done == progress.cells:
        last[0] = time.monotonic()
        print(f"{progress.done} of {progress.cells}, {progress.elapsed:.0f} s", flush=True)


def available(grid: Sweep, store: Store) -> Sweep | None:
    """The grid as far as it is there: without its largest depths, but with all of its seeds."""
    depths = depths_of(grid)
    for last in range(len(depths), 1, -1):
        smaller = changed(grid, arms={**grid.design.arms, "depth": depths[:last]})
        if not store.missing(smaller.runs):
            return smaller
    return grid if not store.missing(grid.runs) else None


def table(grid: Sweep, store: Store) -> list[str]:
    """A row for each scheme: optima and best losses by size, drift, regret, and two ratios.

    Ratios of losses are paired by the seeds that both sides share.
    """
    design = grid.design
    (axis,) = design.axes
    records = store.records(grid.runs)
    (study,) = studies(grid, records, config={}, environment={})
    last = slice(design.steps - design.window, design.steps)
    sizes = [f"L = {2 * n}" if axis == "depth" else f"n = {n}" for n in design.arm(axis)]
    rows = [
        f"| scheme | best log2 learning rate at {', '.join(sizes)} | drift (95%) | regret (95%) | "
        "best loss | log best loss, largest over smallest (95%) | largest, over SP's (95%) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    largest = []
    for variant, found in zip(design.variants, study.headline.transfers, strict=True):
        losses = losses_over(grid, records, variant, design.sizes_along(axis), last)
        gain = log_ratio(losses.values[-1], losses.values[0])
        largest.append(losses.values[-1])
        ahead = log_ratio(largest[-1], largest[0])
        cells = [
            "SP = muP" if variant.scheme == SP and axis == "depth" else variant.title,
            " ".join(_rate(optimum) for optimum in found.optima),
            _interval(found.drift, 2),
            _interval(found.regret, 3),
            " ".join(_number(math.exp(lowest(of_size)), 3) for of_size in losses.values),
            _interval(gain, 3),
            "–" if variant.scheme == SP else _interval(ahead, 3),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def lowest(losses: Array) -> float:
    """The lowest log loss over learning rates, from losses (learning rates, seeds).

    Of those measured: beside a rate that nearly diverges a parabola would dip far below them.
    """
    with np.errstate(divide="ignore"):
        return float(np.log(losses).mean(-1).min())


def log_ratio(above: Array, below: Array) -> Estimate:
    """Of two lowest losses, paired by seeds."""
    return jackknife(lambda both: lowest(both[0]) - lowest(both[1]), np.stack([above, below]))


def _rate(optimum: Optimum) -> str:
    """At an edge of the grid the optimum is a bound."""
    sign = {Place.LOW_EDGE: "≤", Place.HIGH_EDGE: "≥"}.get(optimum.place, "")
    return "fails" if optimum.place is Place.FAILED else sign + _number(optimum.log2_lr.value, 1)


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−") if math.isfinite(value) else "–"


def _interval(found: Estimate, digits: int) -> str:
    if not found.known:
        return "diverges" if found.value == math.inf else "–"
    low, high = (_number(value, digits) for value in (found.low, found.high))
    return f"{_number(found.value, digits)} [{low}, {high}]"


def report(store: Store) -> None:
    """The tables that are there, as Markdown."""
    for grid, model in sweeps():
        what = f"{grid.design.variant().optimizer}, {model.name}, along {grid.design.axes[0]}"
        found = available(grid, store)
        if found is None:
            missing = len(store.missing(grid.runs))
            print(f"{what}: {missing} of {len(grid.runs)} runs are missing\n")
            continue
        print(f"{what}, {found.design.seeds} seeds\n", *table(found, store), "", sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", nargs="?", default="report", choices=["train", "report"])
    parser.add_argument("--store", type=Path, default=Path("runs/transformers/results.sqlite"))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.store.parent.mkdir(parents=True, exist_ok=True)
    with Store(options.store) as store:
        if options.action == "train":
            train(store, options.workers)
        else:
            report(store)


if __name__ == "__main__":
    main()
