"""Schemes on small transformers: SP, muP, Depth-muP and CompleteP with AdamW and with Muon.

    python -m benchmarks.transformers train     # what the store does not hold yet
    python -m benchmarks.transformers           # the tables of docs/transformers.md

Decoders of width 32 and 2 to 16 layers, two branches each, on bytes of Python's standard library.
All schemes and learning rates of a seed see the same batches, and start from the same weights.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from depthmup.claims.transformers import code, normed, small_batch, unnormed
from depthmup.records import Trial, environment
from depthmup.rules import DEPTH_MUP, MUP, SP, completep
from depthmup.sweep import Processes, Progress, Store, TrialGrid, run
from depthmup.sweep.trials import TrainTogether, together
from depthmup.training.functions import Functions, by_reference

SETTINGS = {"schedule": "linear", "warmup": 0.1}
BASE = (32, 2)
DEPTHS = (2, 4, 8, 16)
WIDTHS = (16, 32, 64)
SEEDS = 3
FUNCTIONS = {
    name: Functions(make=make, batch=small_batch)
    for name, make in (("with RMSNorm", normed), ("without", unnormed))
}
# Six octaves around the optimum of the base: there AdamW's is near 2^-5.5, Muon's near 2^-3.7 with
# norms and 2^-4.6 without (one seed each, before any other run).
LOG2_LRS = {
    ("adamw", "with RMSNorm"): tuple(float(k) for k in range(-8, -2)),
    ("adamw", "without"): tuple(float(k) for k in range(-8, -2)),
    ("muon", "with RMSNorm"): tuple(float(k) for k in range(-6, 0)),
    ("muon", "without"): tuple(float(k) for k in range(-7, -1)),
}


def along_depth(optimizer: str, norm: str) -> TrialGrid:
    """At a fixed width SP and muP prescribe the same: one row is for both."""
    return _grid(optimizer, norm, schemes=(SP, DEPTH_MUP, completep()), depths=DEPTHS)


def along_width(optimizer: str, norm: str) -> TrialGrid:
    """At the base's depth the schemes for depth are muP."""
    return _grid(optimizer, norm, schemes=(SP, MUP), widths=WIDTHS)


def _grid(optimizer: str, norm: str, **axis: object) -> TrialGrid:
    functions = FUNCTIONS[norm]
    shared = {"seeds": SEEDS, "steps": 100, "window": 20, "settings": SETTINGS}
    return TrialGrid(
        model=functions.main,
        code=code(functions),
        base=BASE,
        log2_lrs=LOG2_LRS[optimizer, norm],
        optimizers=(optimizer,),
        **{**shared, **axis},
    )


def grids() -> Iterator[tuple[TrialGrid, Functions]]:
    for optimizer, norm in LOG2_LRS:
        yield along_depth(optimizer, norm), FUNCTIONS[norm]
    yield along_width("adamw", "with RMSNorm"), FUNCTIONS["with RMSNorm"]


def jobs(missing: Sequence[Trial]) -> list[TrainTogether]:
    """Two seeds of every table first: tables become readable as early as they can."""
    left = {trial.key: trial for trial in missing}
    found = []
    for first in (True, False):
        for grid, functions in grids():
            trials = [
                left.pop(t.key) for t in grid.trials if (t.seed < 2) is first and t.key in left
            ]
            found += together(trials, by_reference(functions))
    return found


def train(store: Store, workers: int) -> None:
    trials = tuple({trial.key: trial for grid, _ in grids() for trial in grid.trials}.values())
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
            raise SystemExit("not yet")


if __name__ == "__main__":
    main()
