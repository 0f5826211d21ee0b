"""Do intervals from a few seeds hold what many seeds say? Real sweeps, resampled.

    python -m studies.resampled train    # what runs/resampled does not hold yet; ten minutes
    python -m studies.resampled          # the tables of docs/studies/statistics.md

Residual MLPs on half-octave grids: A, the demo's networks with 8 seeds, and relu and abs networks
of width 32 with 24. The truth is the drift that all seeds and the whole grid give. Sweeps of 3, 4
and 6 of the seeds, on the whole grid and on its two halves of one octave, are drawn many times.
Draws share seeds with the truth, which flatters coverage: by up to 8% of the half-width with 4 of
24 seeds.
"""

import argparse
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from depthmup.posterior import drifts
from depthmup.records import Place
from depthmup.rules import BLOCK_MULTIPLIER, DEPTH_MUP, ODE, SP, Scheme
from depthmup.statistics import Array, Curves, drift, optima
from depthmup.sweep import Processes, Store, Sweep, losses_over, run
from reproduction.runs import along_depth

SCHEMES = (DEPTH_MUP, BLOCK_MULTIPLIER, ODE, SP)
SMALL: dict[str, Any] = {
    "depths": (4, 8, 16, 32, 64), "base_depth": 4, "width": 32, "steps": 200, "window": 40,
    "seeds": 24,
}  # fmt: skip
SWEEPS: dict[str, tuple[dict[str, Any], dict[str, tuple[float, float]]]] = {
    "A": (
        {"depths": (8, 16, 32, 64, 128), "seeds": 8, "steps": 300, "window": 60},
        {
            "depth-mup": (-5, -1), "block-multiplier": (-7, -1), "sp": (-7.5, -1), "ode": (-5, 0)
        },
    ),
    "relu": (
        {**SMALL, "activation": "relu"},
        {
            "depth-mup": (-4, 1.5), "block-multiplier": (-6, 1.5), "sp": (-8, 1.5), "ode": (-4, 2)
        },
    ),
    "abs": (
        {**SMALL, "activation": "abs"},
        {
            "depth-mup": (-4.5, 1), "block-multiplier": (-6.5, 1), "sp": (-8.5, 1),
            "ode": (-4.5, 1.5),
        },
    ),
}  # fmt: skip
PHASES = {
    "half octave": slice(None),
    "one octave": slice(0, None, 2),
    "one octave, between": slice(1, None, 2),
}
DRAWS = 300


def grid_of(sweep: str, scheme: Scheme) -> Sweep:
    """One scheme's half-octave grid."""
    settings, ends = SWEEPS[sweep]
    low, high = ends[scheme.name]
    rates = tuple(low + k / 2 for k in range(round(2 * (high - low)) + 1))
    return along_depth(schemes=scheme.name, log2_lrs=rates, **{"base_depth": 8, **settings})


def train(store: Store, workers: int) -> None:
    """Everything that the store does not hold."""
    grids = [grid_of(sweep, scheme) for sweep in SWEEPS for scheme in SCHEMES]
    cells = tuple(dict.fromkeys(cell for grid in grids for cell in grid.runs))
    done = run(cells, store=store, executor=Processes(workers=workers), about={})
    print(f"{done} runs")


def held(grid: Sweep, losses: Array, phase: slice, seeds: int, truth: float) -> tuple[float, float]:
    """The share of resampled intervals that hold a drift, and their median half-width."""
    name = f"{grid.design.variant().name} {phase} {seeds}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    rates = np.array(grid.design.log2_lrs)[phase]
    draws = [rng.choice(losses.shape[-1], seeds, replace=False) for _ in range(DRAWS)]
    values = np.stack([losses[:, phase][..., draw] for draw in draws])
    grids = np.broadcast_to(rates, values.shape[:-1])
    positions = np.log2(grid.design.arm("depth")[: len(losses)])
    _, low, high = drifts(positions, Curves(log2_lrs=grids, losses=values))
    inside = (low <= truth) & (truth <= high)
    return float(inside.mean()), float(np.median(high - low) / 2)


def report(store: Store) -> None:
    """Coverage by sweep, scheme, grid and seeds, as Markdown."""
    print("| networks | scheme | drift, all seeds | grid | 3 seeds | 4 seeds | 6 seeds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for sweep in SWEEPS:
        for scheme in SCHEMES:
            grid = grid_of(sweep, scheme)
            design = grid.design
            values = losses_over(
                grid,
                store.records(grid.runs),
                design.variant(),
                design.sizes_along("depth"),
                slice(design.steps - design.window, design.steps),
            ).values
            fitted = optima(Curves.of(design.log2_lrs, values), chance=math.log(10))
            trains = int(np.argmax([*fitted.failed, True]))  # up to the first depth that fails
            values = values[:trains]
            if trains < 2 or {*fitted.places()[:trains]} != {Place.INTERIOR}:
                continue
            truth = drift(design.arm("depth")[:trains], design.log2_lrs, values)
            for name, phase in PHASES.items():
                cells = []
                for seeds in (3, 4, 6):
                    share, half = held(grid, values, phase, seeds, truth.value)
                    cells.append(f"{share:.0%} (±{half:.3f})")
                print(
                    f"| {sweep} | {scheme.title} | {truth.value:+.3f} ({truth.low:+.3f} to "
                    f"{truth.high:+.3f}) | {name} | {' | '.join(cells)} |"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", nargs="?", default="report", choices=["train", "report"])
    parser.add_argument("--store", type=Path, default=Path("runs/resampled/results.sqlite"))
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
