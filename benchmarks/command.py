"""A grid of 48 small networks, from the command to its page, beside plain loops that only train.

The command's time has the interpreter's start, every worker's import of torch, the fit and the
page. The loops' has the training steps alone: no import, no data set, no model built.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.rivals import plain_loop
from benchmarks.team import Team, Timing, clocked
from depthmup.records import Cell
from reproduction.runs import along_depth

DEPTHS, LOG2_LRS, SEEDS, STEPS = (8, 16, 32, 64), (-11, -10, -9, -8, -7, -6), 2, 300


def plain(share: int, steps: int) -> Timing:
    """Every so many of the grid's networks, by torch's own fused Adam."""
    cells: list[Cell] = along_depth(
        schemes="depth-mup",
        depths=DEPTHS,
        base_depth=DEPTHS[0],
        log2_lrs=tuple(map(float, LOG2_LRS)),
        seeds=SEEDS,
        width=64,
        steps=steps,
    ).runs[::share]
    train = plain_loop(cells, fused=True)
    return clocked(lambda: train(steps), units=steps * len(cells))


def command(workers: int, steps: int) -> Timing:
    """``depthmup transfer`` of the same grid in a fresh folder; children's processor time."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = {
            "--schemes": "depth-mup",
            "--depths": ",".join(map(str, DEPTHS)),
            "--lrs": ",".join(str(2.0**k) for k in LOG2_LRS),
            "--seeds": SEEDS,
            "--steps": steps,
            "--workers": workers,
            "--out": f"{folder}/out",
        }
        words = [f"{name}={value}" for name, value in arguments.items()]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "depthmup", "transfer", *words],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if not os.path.exists(f"{folder}/out/report.html"):
            raise RuntimeError("The command wrote no page.")
    spent = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return Timing(units=steps * len(DEPTHS) * len(LOG2_LRS) * SEEDS, wall=wall, cpu=spent)


def table(*, rounds: int, cores: int, quick: bool) -> list[str]:
    """Seconds of both by both clocks, in turn; the ratio of medians."""
    steps = STEPS // 30 if quick else STEPS
    whole: list[Timing] = []
    loops: list[tuple[float, float]] = []
    with Team(cores) as team:
        team.ask(plain, 48, 2)  # imports and data are not the loops'
        for _ in range(rounds):
            whole.append(command(cores, steps))
            parts = team.ask(plain, cores, steps)
            loops.append((max(t.wall for t in parts), sum(t.cpu for t in parts)))
    rows = {
        "wall": ([t.wall for t in whole], [wall for wall, _ in loops]),
        "processor": ([t.cpu for t in whole], [cpu for _, cpu in loops]),
    }
    return [
        "| clock | command to page, s | plain loops (fused Adam), s | ratio |",
        "| --- | --- | --- | --- |",
        *(
            f"| {clock} | {(a := statistics.median(ours)):.1f} "
            f"| {(b := statistics.median(theirs)):.1f} | {b / a:.1f} |"
            for clock, (ours, theirs) in rows.items()
        ),
    ]
