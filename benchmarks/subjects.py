"""What is measured, inside the process that measures: engines, rivals, and the machine itself."""

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import torch

from benchmarks.rivals import Train, jax_loop, plain_loop
from benchmarks.team import Timing, clocked
from depthmup.records import Cell
from depthmup.training import train_ensemble, train_native
from reproduction.runs import along_depth

MEMBERS = 12
BATCH = 64
ENGINES = {"native": train_native, "stacked torch": train_ensemble}
# Networks of plain loops are independent of each other, and two of them take long enough.
RIVALS: dict[str, tuple[Callable[[Sequence[Cell]], Train], int]] = {
    "plain loop, default Adam": (lambda cells: plain_loop(cells, fused=False), 2),
    "plain loop, fused Adam": (lambda cells: plain_loop(cells, fused=True), 2),
    "jax": (jax_loop, MEMBERS),
}
TICKS = 3
"""Reports of progress before an engine's clock starts: its first steps touch new memory."""


def cells(
    width: int, depth: int, steps: int, members: int = MEMBERS, batch: int = BATCH
) -> list[Cell]:
    """Residual MLPs (abs, Adam, the digits) that differ in learning rate and seed."""
    sweep = along_depth(
        schemes="depth-mup",
        depths=tuple(sorted({8, depth})),
        base_depth=8,
        log2_lrs=(-6.0, -5.0, -4.0, -3.0),
        seeds=-(-members // 4),
        width=width,
        steps=steps,
        window=1,
        batch_size=batch,
    )
    return [cell for cell in sweep.runs if cell.network.depth == depth][:members]


@lru_cache(maxsize=len(RIVALS))
def _prepared(row: str, width: int, depth: int) -> tuple[Train, int]:
    make, members = RIVALS[row]
    return make(cells(width, depth, 100, members)), members


def _engine(row: str, width: int, depth: int, steps: int, batch: int = BATCH) -> Timing:
    """Through the door that sweeps use; setting up is left out by starting at a report."""
    members = 1 if row == "native" else MEMBERS  # native trains one after another anyway
    ticks: list[tuple[float, float, float]] = []

    def tick(fraction: float) -> None:
        if not ticks or fraction > ticks[-1][0]:
            ticks.append((fraction, time.perf_counter(), time.process_time()))

    for _ in ENGINES[row](cells(width, depth, steps, members, batch), on_progress=tick):
        pass
    first, last = ticks[max(0, min(TICKS, len(ticks) - 2))], ticks[-1]
    return Timing(
        units=(last[0] - first[0]) * steps * members,
        wall=last[1] - first[1],
        cpu=last[2] - first[2],
    )


@lru_cache
def _product() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(1024, 1024), torch.randn(1024, 1024)


@lru_cache
def _arrays() -> tuple[torch.Tensor, ...]:
    return tuple(torch.ones(1 << 24) for _ in range(3))  # 64 MiB each


def _sgemm(repeat: int) -> Timing:
    a, b = _product()
    return clocked(lambda: [a @ b for _ in range(repeat)], repeat * 2 * 1024**3 / 1e9)


def _stream(repeat: int) -> Timing:
    b, c, out = _arrays()
    add = lambda: [torch.add(b, c, out=out) for _ in range(repeat)]  # noqa: E731
    return clocked(add, repeat * 3 * 4 * (1 << 24) / 1e9)


PEAKS = {"sgemm": _sgemm, "stream": _stream}


def engine_at(width: int, depth: int, batch: int, steps: int) -> Timing:
    """Steps of the compiled engine at a batch."""
    return _engine("native", width, depth, steps, batch)


def own_product(width: int, batch: int, repeat: int) -> Timing:
    """GFLOP of a batch of activations times a matrix of weights."""
    a, b = torch.randn(batch, width), torch.randn(width, width)
    out = torch.empty(batch, width)
    flop = repeat * 2 * batch * width**2 / 1e9
    return clocked(lambda: [torch.mm(a, b, out=out) for _ in range(repeat)], flop)


def peak(repeat: int) -> Timing:
    """GFLOP of the largest product."""
    return _sgemm(repeat)


def measure(row: str, width: int, depth: int, scale: int) -> Timing:
    """Units of a row: model-steps of an engine or rival, GFLOP or GB of a peak."""
    if row in PEAKS:
        return PEAKS[row](scale)
    if row in ENGINES:
        return _engine(row, width, depth, scale)
    train, members = _prepared(row, width, depth)
    return clocked(lambda: train(scale), members * scale)


def forget() -> None:
    """Give back what was prepared for a size."""
    _prepared.cache_clear()


def whole(row: str, width: int, depth: int, members: int, steps: int, repeat: int) -> Timing:
    """An engine from cells to records, setting up included."""
    chosen, train = cells(width, depth, steps, members), ENGINES[row]
    return clocked(lambda: [list(train(chosen)) for _ in range(repeat)], repeat * members * steps)


def peak_memory(row: str, width: int, depth: int) -> float | None:
    """Bytes per network above what the process held before, or None where the system is silent."""
    own = Path("/proc/self")
    if not (own / "clear_refs").exists():
        return None
    members = 1 if row == "native" else RIVALS[row][1] if row in RIVALS else MEMBERS
    measure(row, 64, 1, 2)  # libraries allocate in their first steps
    forget()
    (own / "clear_refs").write_text("5")  # the peak starts anew
    before = _status(own / "status", "VmRSS")
    measure(row, width, depth, 2)
    return (_status(own / "status", "VmHWM") - before) / members


def _status(path: Path, name: str) -> int:
    line = next(line for line in path.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
