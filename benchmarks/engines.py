"""Every engine, and what one would use instead, against what the machine can do.

    python benchmarks/engines.py                    # one process per core
    python benchmarks/engines.py --processes 1 --clock cpu --log
    python benchmarks/engines.py --scaling          # the native engine's cost against L and members

Twelve residual MLPs (abs, Adam, batch 64, the digits) at four sizes. All rows of a size are
measured in turn within each round, so that the machine's moods meet all of them; numbers are
medians over rounds, ratios the medians of the rounds' ratios. The peaks are measured in the same
rounds: a product of two 1024 x 1024 matrices, and a = b + c on arrays that no cache holds. Shares
are of the best product of the whole run.

The clocks: ``wall`` is what a user waits for, and is fair if nobody else uses the machine; ``cpu``
counts the processor time of the processes themselves, which other people's work does not enter
(except through shared caches and memory). The share of the cores that the processes got, printed
below each table, says how quiet it was.
"""

import argparse
import importlib.util
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from depthmup.records import Cell

MEMBERS = 12
SIZES = ((64, 8), (64, 64), (256, 8), (256, 64))
BATCH = 64
FLOP = 3 * 2 * BATCH  # per parameter and step: three products
ENOUGH = 0.3  # seconds of one measurement, at least
ROWS = (
    "plain loop, default Adam",
    "plain loop, fused Adam",
    "stacked torch",
    "native",
    "jax",
    "sgemm",
    "stream",
)
BASELINE = "plain loop, fused Adam"
PEAKS = {"sgemm": " GFLOP/s", "stream": " GB/s"}
# For each size: at least this many times the baseline, and this share of the measured sgemm peak.
PROMISED = ((6.0, 0.75), (5.0, 0.75), (1.6, 0.75), (1.5, 0.65))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Units of work (model-steps, GFLOP or GB) with the seconds they took, by both clocks."""

    units: float
    wall: float
    cpu: float


# ---- in the worker ----


def _sgemm() -> tuple[Callable[[], object], float]:
    import torch

    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return (lambda: a @ b), 2 * 1024**3 / 1e9


def _stream() -> tuple[Callable[[], object], float]:
    import torch

    b, c, out = (torch.ones(1 << 24) for _ in range(3))  # 64 MiB each
    return (lambda: torch.add(b, c, out=out)), 3 * 4 * (1 << 24) / 1e9


def _cells(width: int, depth: int, steps: int, members: int = MEMBERS) -> list["Cell"]:
    from depthmup.rules import DEPTH_MUP
    from depthmup.sweep import Grid

    grid = Grid(
        schemes=(DEPTH_MUP,),
        depths=tuple(sorted({8, depth})),
        log2_lrs=(-6.0, -5.0, -4.0, -3.0),
        seeds=-(-members // 4),
        width=width,
        steps=steps,
        window=1,
        batch_size=BATCH,
    )
    return [cell for cell in grid.cells if cell.network.depth == depth][:members]


def _trainer(row: str, width: int, depth: int, steps: int) -> tuple[Callable[[], object], float]:
    """A function that trains for ``steps``, and the model-steps that it takes."""
    from _rivals import jax_loop, plain_loop

    cells = _cells(width, depth, steps)
    if row.startswith("plain loop"):
        # Members are independent of each other, and two of them take long enough.
        return plain_loop(cells[:2], steps, fused="fused" in row), 2 * steps
    return jax_loop(cells, steps), MEMBERS * steps


def _engine(row: str, cells: list["Cell"]) -> Timing:
    """Engines make their own state, so what a single step takes is subtracted."""
    from dataclasses import replace

    from depthmup.training import train_ensemble, train_native

    engine = {"stacked torch": train_ensemble, "native": train_native}[row]
    once = [replace(cell, steps=1) for cell in cells]
    less = _clocks(lambda: list(engine(once)))
    more = _clocks(lambda: list(engine(cells)))
    steps = len(cells) * (cells[0].steps - 1)
    return Timing(units=steps, wall=more[0] - less[0], cpu=more[1] - less[1])


def _clocks(job: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return time.perf_counter() - wall, time.process_time() - cpu


def _measure(row: str, width: int, depth: int, scale: int) -> Timing:
    if row in ("sgemm", "stream"):
        job, units = {"sgemm": _sgemm, "stream": _stream}[row]()
        job()
        wall, cpu = _clocks(lambda: [job() for _ in range(scale)])
        return Timing(units=units * scale, wall=wall, cpu=cpu)
    if row in ("stacked torch", "native"):
        return _engine(row, _cells(width, depth, scale + 1))
    job, units = _trainer(row, width, depth, scale)
    wall, cpu = _clocks(job)
    return Timing(units=units, wall=wall, cpu=cpu)


def _work(connection: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    while (order := connection.recv()) is not None:
        connection.send(_measure(*order))


# ---- in the parent ----


class Team:
    """Processes that measure the same thing at the same time."""

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connections = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            context.Process(target=_work, args=(theirs,), daemon=True).start()
            theirs.close()
            self.connections.append(ours)

    def dismiss(self) -> None:
        for connection in self.connections:
            connection.send(None)

    def measure(self, row: str, width: int, depth: int, scale: int) -> list[Timing]:
        for connection in self.connections:
            connection.send((row, width, depth, scale))
        return [connection.recv() for connection in self.connections]

    def scale(self, row: str, width: int, depth: int) -> int:
        """How many steps take long enough."""
        scale = 1
        while True:
            took = statistics.mean(t.cpu for t in self.measure(row, width, depth, scale))
            if took > ENOUGH:
                return scale
            scale = max(scale + 1, int(scale * min(10.0, 1.3 * ENOUGH / max(took, 1e-3))))


def rate(timings: list[Timing], clock: str) -> float:
    """Units per second of all processes together."""
    return sum(t.units / (t.wall if clock == "wall" else t.cpu) for t in timings)


def rows() -> tuple[str, ...]:
    """What can be measured here."""
    from depthmup.training import engine_for

    missing = set() if importlib.util.find_spec("jax") else {"jax"}
    if engine_for().name != "native":
        missing.add("native")
    return tuple(row for row in ROWS if row not in missing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=0, help="0: one per core")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--scaling", action="store_true", help="cost against L and members instead")
    parser.add_argument("--log", action="store_true", help="append the result to benchmarks/log.md")
    options = parser.parse_args()
    # Before any library starts its threads, here and in the processes to come.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 "
        + os.environ.get("XLA_FLAGS", "")
    )
    from depthmup.records import cores, environment
    from depthmup.training import engine_for

    about, processes = environment(), options.processes or cores()
    if options.scaling:
        lines = [f"{about['processor']}, 1 process, {engine_for()}", "", *scaling(options.rounds)]
        print("\n".join(lines))
        if options.log:
            _log("the native engine's cost against depth and members", lines)
        return
    team, measured = Team(processes), rows()
    lines = [
        f"{about['processor']}, {processes} processes on {about['cores']} cores, torch "
        f"{about['torch']}, depthmup {about['depthmup']}, {engine_for()}; medians of "
        f"{options.rounds} rounds, {options.clock} clock",
        "",
        "| model-steps per second | " + " | ".join(f"n{n} L{d}" for n, d in SIZES) + " |",
        "| --- |" + " --- |" * len(SIZES),
    ]
    print("\n".join(lines[:1]), flush=True)
    table: dict[str, list[str]] = {row: [] for row in measured}
    natives, quiet, best = [], [], 0.0
    ratios: dict[str, list[str]] = {r: [] for r in measured if r not in ("native", *PEAKS)}
    for width, depth in SIZES:
        scales = {row: team.scale(row, width, depth) for row in measured}
        rounds = []
        for _ in range(options.rounds):
            timings = {r: team.measure(r, width, depth, scales[r]) for r in measured}
            rounds.append({row: rate(found, options.clock) for row, found in timings.items()})
            quiet += [t.cpu / t.wall for found in timings.values() for t in found]
        best = max(best, *(found["sgemm"] for found in rounds))
        for row in measured:
            values = [found[row] for found in rounds]
            spread = (max(values) - min(values)) / 2 / statistics.median(values)
            table[row].append(f"{statistics.median(values):.0f}{PEAKS.get(row, '')} ±{spread:.0%}")
            print(f"  n{width} L{depth} {row}: {table[row][-1]}", flush=True)
        if "native" in measured:
            natives.append(statistics.median(f["native"] for f in rounds))
            for row in ratios:
                ratios[row].append(f"{statistics.median(f['native'] / f[row] for f in rounds):.1f}")
    team.dismiss()

    def line(name: str, found: Iterable[str]) -> str:
        return f"| {name} | " + " | ".join(found) + " |"

    lines += [line(row, found) for row, found in table.items()]
    if natives:
        work = [FLOP * width**2 * depth / 1e9 for width, depth in SIZES]
        shares = [f"{n * w / best:.0%}" for n, w in zip(natives, work, strict=True)]
        lines += [line(f"**native / {row}**", found) for row, found in ratios.items()]
        lines.append(line(f"promised of native / {BASELINE}", (f"{a}" for a, _ in PROMISED)))
        lines.append(line("**native, share of sgemm**", shares))
        lines.append(line("promised", (f"{b:.0%}" for _, b in PROMISED)))
    share = statistics.median(quiet)
    lines += [
        "",
        f"The processes got {share:.0%} of a core each (median; 100% is a quiet machine).",
    ]
    print("\n" + "\n".join(lines))
    if options.log:
        _log("engines", lines)


def _log(title: str, lines: list[str]) -> None:
    path = Path(__file__).with_name("log.md")
    head = "" if path.exists() else "# Measurements, oldest first\n"
    with path.open("a", encoding="utf-8") as out:
        out.write(f"{head}\n## {time.strftime('%Y-%m-%d')}: {title}\n\n" + "\n".join(lines) + "\n")


def scaling(rounds: int) -> list[str]:
    """Processor time per parameter and step of the native engine; a member's memory."""
    import torch

    from depthmup.training.native import library
    from depthmup.training.native.member import member

    torch.set_num_threads(1)

    def nanoseconds(width: int, depth: int, members: int) -> str:
        parameters = width**2 * depth
        steps = max(2, int(4e8 / (parameters * members)))
        cells = _cells(width, depth, steps + 1, members)
        found = [_engine("native", cells) for _ in range(rounds)]
        return f"{statistics.median(1e9 * t.cpu / t.units / parameters for t in found):.2f}"

    lines = ["| ns per parameter and step, one core | n64 | n256 |", "| --- | --- | --- |"]
    for depth in (4, 8, 16, 32, 64, 128, 256):
        wide = nanoseconds(256, depth, 1) if depth <= 64 else "-"
        lines.append(f"| L{depth}, 4 members | {nanoseconds(64, depth, 4)} | {wide} |")
    lines += [
        f"| L8, {members} members | {nanoseconds(64, 8, members)} | - |" for members in (1, 12, 48)
    ]
    lines += ["", "Memory of a member in training (batch 64, Adam), one member at a time:", ""]
    for width, depth in SIZES:
        state = member(_cells(width, depth, 1, 1)[0], library().register_length)
        size = sum(array.nbytes for array in state.arrays.values()) / 2**20
        lines.append(f"- n{width} L{depth}: {size:.1f} MiB")
    return lines


if __name__ == "__main__":
    main()
