"""The ensemble engine against a plain per-trial loop, in turn in one process.

    python benchmarks/sweep.py

Both train the same twelve residual MLPs on the digits with Adam, on one core. The plain loop is
what one would write without this library: one network at a time, torch's default Adam. Times are
differences between a longer and a shorter run, so that set-up does not count; the ratio is the
median over rounds, as the machine's speed may drift.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from depthmup.records import Cell, cores, processor
from depthmup.rules import DEPTH_MUP
from depthmup.sweep import Grid
from depthmup.training import train, train_ensemble

# width, depth, steps of the short and the long run, least ratio that is promised
ROWS = ((64, 8, 20, 120, None), (64, 64, 4, 20, 4.0), (256, 8, 4, 16, 1.5), (256, 64, 1, 3, None))


def cells(width: int, depth: int, steps: int) -> tuple[Cell, ...]:
    """Twelve cells of one shape: four learning rates, three seeds."""
    grid = Grid(
        schemes=(DEPTH_MUP,),
        depths=tuple(sorted({8, depth})),
        log2_lrs=(-6.0, -5.0, -4.0, -3.0),
        seeds=3,
        width=width,
        steps=steps,
        window=1,
    )
    return tuple(cell for cell in grid.cells if cell.network.depth == depth)


def seconds(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def model_steps_per_second(
    engine: Callable[[tuple[Cell, ...]], object], width: int, depth: int, few: int, many: int
) -> float:
    """Steps of single networks per second, set-up excluded."""
    short, long = cells(width, depth, few), cells(width, depth, many)
    spent = seconds(lambda: engine(long)) - seconds(lambda: engine(short))
    return len(long) * (many - few) / spent


def ensemble(members: tuple[Cell, ...]) -> None:
    list(train_ensemble(members))


def plain(members: tuple[Cell, ...]) -> None:
    for member in members:
        train(member)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"{processor()}, 1 of {cores()} cores, torch {torch.__version__}")
    print("12 networks, batch 64, Adam; model-steps per second, median of", rounds, "rounds\n")
    print(f"{'width':>5} {'depth':>5} {'plain':>8} {'ensemble':>9} {'ratio':>6}  promised")
    for width, depth, few, many, promised in ROWS:
        ensemble(cells(width, depth, 1))
        pairs = [
            tuple(model_steps_per_second(f, width, depth, few, many) for f in (plain, ensemble))
            for _ in range(rounds)
        ]
        slow, fast = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        goal = f"at least {promised}" if promised else "-"
        print(f"{width:>5} {depth:>5} {slow:>8.0f} {fast:>9.0f} {ratio:>6.2f}  {goal}", flush=True)


if __name__ == "__main__":
    main()
