"""The cost of a sweep: its time, to divide and forecast it, and its memory, to refuse it early."""

import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from depthmup.records import Cell, Trial
from depthmup.records.sizes import size_text

if TYPE_CHECKING:
    from depthmup.model import Model

BYTES = 4  # single precision
PROCESS = 400 * 2**20
"""Memory of a worker before it has a network: PyTorch and the digits, measured."""

CONTEXT = 512 * 2**20
"""Of a GPU's memory, what each process takes that uses it."""

MEMBERS = 12
"""Networks trained as one stack on a CPU: enough to amortize overhead, few enough for the cache."""

FILLED = 0.3
"""Share of a GPU's free memory for a stack: what training takes besides is not known exactly."""

ENTRIES, MOST = 2**21, 128
"""Of a stack on a GPU: numbers in one of its products, and members where these are not known. With
more, a GPU is busy, and takes proportionally longer."""

DATA = {"mnist": 150 * 2**20, "cifar10": 800 * 2**20}
"""Memory that larger data add while they are prepared, and later the native engine's U xi."""


UPDATE = 30
"""Operations that take as long as moving a parameter with its optimizer state through memory: with
it forecasts of the compiled engine are right within 15% for batches of 16 to 512 and widths of 64
and 256, by processor time."""


def work(run: Cell | Trial) -> float:
    """Parameters times steps, to which a run's time is proportional; of a cell, of a batch of 64.

    A step takes 6 x batch operations per parameter (three matrix products), and moves its weight
    and optimizer state through memory once; at a batch of 64 the operations dominate.
    """
    if isinstance(run, Trial):
        return run.step_work * run.steps
    network = run.network
    parameters = network.depth * network.block_depth * network.width**2
    return parameters * run.steps * (_operations(run.batch_size) / _operations(64))


def _operations(batch_size: int) -> int:
    """Operations of a step per parameter."""
    return 6 * batch_size + UPDATE


# Shares of a core's matrix products per second that engines reach: measured, benchmarks/log.md.
EFFICIENCY = {"native": 0.88, "stacked": 0.2, "reference": 0.2}


def core_seconds(cells: Iterable[Cell], *, engine: str) -> float:
    """Predicted seconds of training on one idle core of this machine, if no run diverges."""
    total = math.fsum(work(cell) for cell in cells)
    return total * seconds_per_work(engine) if total else 0.0


def seconds_per_work(engine: str = "native") -> float:
    """Seconds on one idle core for each parameter and step of a batch of 64."""
    return _operations(64) / (EFFICIENCY[engine] * operations_per_second())


@cache
def operations_per_second() -> float:
    """Single-precision operations per second of one core, in products of matrices in its cache."""
    import numpy as np

    size, best = 384, math.inf
    one = np.full((size, size), 0.5, dtype=np.float32)
    out = np.empty_like(one)
    until = time.perf_counter() + 0.05
    while time.perf_counter() < until:
        start = time.process_time()
        np.matmul(one, one, out=out)
        best = min(best, time.process_time() - start)
    return 2 * size**3 / best


def memory(group: Sequence[Cell], *, stacked: bool = True, device: str = "cpu") -> int:
    """Most bytes for training a group, as one stack or one member after another."""
    cell = group[0]
    network = cell.network
    matrices = network.depth * network.block_depth
    # Weights with Adam's two moments and gradients, or, one after another, the initial weights for
    # the next member of the seed; on a GPU, which moves all at once, what Adam computes of them.
    weights = (4 if device == "cpu" else 6) * matrices * network.width**2
    # What the backward pass needs: of each matrix its input and product, of LayerNorm its input.
    kept = 2 * matrices + 1 + network.layer_norm * network.depth
    activations = kept * network.width * cell.batch_size
    return BYTES * (len(group) if stacked else 1) * (weights + activations)


def order(group: Sequence[Cell], *, stacked: bool = True) -> int:
    """Bytes of the indices of every step's examples, drawn per member and joined."""
    return 2 * 8 * (len(group) if stacked else 1) * group[0].steps * group[0].batch_size


def check_memory(
    groups: Sequence[Sequence[Cell]], *, workers: int, stacked: bool = True, device: str = "cpu"
) -> None:
    """Refuse a sweep that would not fit into memory, before it starts."""
    sizes = (
        memory(group, stacked=stacked, device=device) + order(group, stacked=stacked)
        for group in groups
    )
    largest = sorted(sizes, reverse=True)[:workers]
    per_worker = PROCESS if device == "cpu" else CONTEXT
    per_worker += max((DATA.get(group[0].data.name, 0) for group in groups), default=0)
    needed = sum(largest) + per_worker * len(largest)
    there = available(device)
    if there is not None and needed > there:
        deepest = max(groups, key=memory)[0].network
        raise _too_large(
            f"{needed / 2**30:.1f} GiB",
            workers,
            there,
            f"its largest networks have width {deepest.width} and depth {deepest.depth}, and "
            f"batches of up to {max(group[0].batch_size for group in groups)}. Use fewer "
            "--workers, or smaller sizes.",
        )


def check_memory_of_models(
    model: "Model", stacks: Sequence[Sequence[Trial]], *, workers: int, device: str = "cpu"
) -> None:
    """Refuse a sweep of a custom model whose weights and activations alone would not fit."""
    from depthmup.model import resolved
    from depthmup.training.forecast import bytes_of_trial

    there = available(device)
    if resolved(model).make is None or there is None:
        return
    stack = max(stacks, key=lambda trials: len(trials) * trials[0].step_work)
    of_one = bytes_of_trial(model, stack[0])
    if of_one is None:
        return
    per_worker = PROCESS if device == "cpu" else CONTEXT
    needed = workers * (per_worker + len(stack) * of_one)
    apart = f", and {len(stack)} of them train as one stack" if len(stack) > 1 else ""
    advice = "Train them one by one, use" if apart else "Use"
    if needed > there:
        raise _too_large(
            f"at least {needed / 2**30:.1f} GiB",
            workers,
            there,
            f"its largest model has {size_text(stack[0].size)}{apart}. {advice} fewer workers, or "
            "smaller sizes.",
        )


def _too_large(needed: str, workers: int, there: int, why: str) -> ValueError:
    return ValueError(
        f"This sweep would need {needed} with {workers} worker{'s' * (workers > 1)}, and "
        f"{there / 2**30:.1f} GiB are available; {why}"
    )


def stack_size(of_one: int | None, *, device: str, sharing: int, most: int) -> int:
    """Networks to train as one stack: on a GPU, as many as its memory has room for."""
    if device == "cpu" or not of_one or (there := available(device)) is None:
        return MEMBERS
    return max(1, min(most, int(FILLED * there / (sharing * of_one))))


def available(device: str = "cpu") -> int | None:
    """Free bytes of a device's memory, or None if the system does not report them."""
    if device != "cpu":
        import torch

        return torch.cuda.mem_get_info(device)[0] if torch.cuda.is_available() else None
    if sys.platform != "linux":
        return None
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + _reclaimable()


def _reclaimable() -> int:
    """Bytes of the page cache that the system would free."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        parts = [line.partition(":") for line in lines]
    sizes = {name: int(rest.split()[0]) for name, _, rest in parts}
    return max(0, (sizes.get("MemAvailable", 0) - sizes.get("MemFree", 0)) * 1024)
