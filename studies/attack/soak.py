"""A sweep of many runs whose workers cost nothing: what the driver costs, and whether it grows.

Processor time, so that others on the machine do not count. Results are made beforehand; the driver
stores them, tells progress as the command does, and is asked again when all are there.
"""

import time
import tracemalloc
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cells import cell

from depthmup.records import Record, Status
from depthmup.sweep import Store, run
from depthmup.sweep.executors import Listener

STEPS = 300
PER_RESULT = 0.5e-3
"""Seconds of the processor that the driver may take for a result."""
GROWTH = 4096
"""Bytes that it may keep for a result: its description, its key, and where it stands."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A job whose results are there at once."""

    cells: tuple[Any, ...]
    losses: array

    @property
    def work(self) -> float:
        return float(len(self.cells))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(each.key for each in self.cells)

    def __call__(self, tell: Callable[[float], None]) -> Iterator[Record[Any]]:
        for each in self.cells:
            yield Record(cell=each, status=Status.FINISHED, losses=self.losses)


def deliver(jobs: Any, listener: Listener) -> None:
    """An executor without workers."""
    for job in jobs:
        for done, result in enumerate(job(lambda fraction: None), 1):
            listener.on_result(result)
            listener.on_progress(job, done / len(job.keys))


def attack(count: int, folder: Path, seed: int) -> Counter[str]:
    losses = array("f", [1.0] * STEPS)
    first = replace(cell(seed=seed), steps=STEPS)
    cells = [replace(first, seed=number) for number in range(count)]
    outcomes = Counter({"runs": count})

    def jobs(missing: Any) -> list[Ready]:
        chunks = range(0, len(missing), 10)
        return [Ready(cells=tuple(missing[i : i + 10]), losses=losses) for i in chunks]

    with Store(folder / "results.sqlite") as store:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        half = run(cells[: count // 2], store=store, executor=deliver, jobs=jobs)
        middle = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        start = time.process_time()
        run(cells, store=store, executor=deliver, jobs=jobs)
        spent = (time.process_time() - start) / (count - half)
        start = time.process_time()
        assert run(cells, store=store, executor=deliver, jobs=jobs) == 0
        again = time.process_time() - start
    outcomes["microseconds of the driver per result"] = round(1e6 * spent)
    outcomes["milliseconds until a complete sweep has seen that it is"] = round(1e3 * again)
    outcomes["bytes kept after half of them"] = middle - before
    if spent > PER_RESULT:
        outcomes["THE DRIVER IS SLOW"] += 1
    if middle - before > GROWTH * max(half, 100):
        outcomes["MEMORY GROWS"] += 1
    return outcomes
