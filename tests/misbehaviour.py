"""Work for tests of executors: what hangs, dies, raises, or writes down that it was done."""

import os
import resource
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from depthmup.records import Measurement, Task


def noted(log: str, **settings):
    """What every function here does first: a line in a log, by which tests count."""
    with open(log, "a") as file:
        file.write(f"{os.getpid()} {settings.get('number')}\n")


def lines(log) -> list[str]:
    return Path(log).read_text().splitlines() if Path(log).exists() else []


def add_one(log, number, seconds=0.0):
    noted(log, number=number)
    time.sleep(seconds)
    return {"value": number + 1}


def hang(log, number):
    noted(log, number=number)
    while True:
        time.sleep(0.1)


def die(log, number):
    noted(log, number=number)
    os._exit(9)


def die_once(log, number):
    noted(log, number=number)
    if sum(line.endswith(f" {number}") for line in lines(log)) == 1:
        os._exit(9)
    return {"value": number + 1}


def exhaust(log, number):
    """Asks for more memory than this process may have; its limit is left as it was."""
    noted(log, number=number)
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**33, before[1]))
    try:
        return {"value": len(bytes(2**40))}
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def leave(log, number):
    noted(log, number=number)
    raise SystemExit(f"number {number} leaves")


def close(log, number, seconds):
    """Closes what it has not opened, and works on."""
    noted(log, number=number)
    os.closerange(3, 4096)
    time.sleep(seconds)
    return {"value": number + 1}


def fail(log, number):
    noted(log, number=number)
    raise ZeroDivisionError(f"number {number} has no inverse")


LOST = []
"""The error that left this process without its GPU."""


def lose(log, number):
    """A device-side assertion, as CUDA reports it: here, and to all that comes after."""
    import torch

    LOST.append(torch.AcceleratorError("CUDA error: device-side assert triggered"))
    return on_gpu(log, number)


def arithmetic(log, number):
    import torch

    noted(log, number=number)
    return {
        "dtype": str(torch.get_default_dtype()),
        "products": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def loaded(log, number):
    return {"torch": "torch" in sys.modules}


def on_gpu(log, number):
    """Work on the GPU that this process sees."""
    noted(log, number=number)
    if LOST:
        raise LOST[0]
    return {"gpu": int(os.environ.get("CUDA_VISIBLE_DEVICES", -1))}


SEEN = []
"""The GPUs that this process was given when CUDA first asked."""


def initialize(log, number, seconds):
    """CUDA asks once per process which GPU it may use."""
    noted(log, number=number)
    time.sleep(seconds)
    now = int(os.environ.get("CUDA_VISIBLE_DEVICES") or -1)
    SEEN.append(now)
    return {"given": now, "bound": SEEN[0], "process": os.getpid()}


def lack(log, number, passes=1):
    """Finds no memory on its GPU, until it was asked ``passes`` times."""
    noted(log, number=number)
    if sum(line.endswith(f" {number}") for line in lines(log)) <= passes:
        import torch

        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    return {"value": number + 1}


WITH_TORCH = {"lose", "arithmetic", "lack"}
CPU = (add_one, hang, die, die_once, exhaust, leave, close, fail)
FUNCTIONS = (*CPU, lose, arithmetic, loaded, on_gpu, lack, initialize)
BY_NAME = {function.__name__: function for function in FUNCTIONS}


def task(name, log, number, **settings) -> Task:
    return Task(name=name, settings={"log": str(log), "number": number, **settings})


class Heard:
    """A listener that writes down what it is told."""

    def __init__(self):
        self.results, self.progress, self.failures = [], [], []

    def on_result(self, result):
        self.results.append(result)

    def on_progress(self, job, fraction):
        self.progress.append(fraction)

    def on_failure(self, job, why):
        self.failures.append((str(job), why))

    @property
    def numbers(self):
        return [result.task.settings["number"] for result in self.results]


@dataclass(frozen=True, kw_only=True)
class Several:
    """A job of several results, each by the function of its task's name."""

    tasks: tuple[Task, ...]

    @property
    def work(self) -> float:
        return float(len(self.tasks))

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(each.key for each in self.tasks)

    @property
    def computes(self) -> bool:
        return any(each.name in WITH_TORCH for each in self.tasks)

    @property
    def output(self) -> str:
        return ""

    def load(self) -> None:
        pass

    def only(self, keys: Collection[str]) -> "Several":
        return replace(self, tasks=tuple(each for each in self.tasks if each.key in keys))

    def __call__(self, tell) -> Iterator[Measurement]:
        for done, each in enumerate(self.tasks):
            tell(done / len(self.tasks))
            tell((done + 0.5) / len(self.tasks))
            yield Measurement(task=each, values=BY_NAME[each.name](**each.settings))
        tell(1.0)

    def __str__(self) -> str:
        return "doing " + ", ".join(f"{t.name} {t.settings['number']}" for t in self.tasks)


@dataclass(frozen=True, kw_only=True)
class Slow(Several):
    """A job that takes a while to load, each time."""

    seconds: float

    def load(self) -> None:
        time.sleep(self.seconds)


@dataclass(frozen=True, kw_only=True)
class Unpicklable(Several):
    """A job whose result stays in its process."""

    def __call__(self, tell) -> Iterator[Measurement]:
        yield lambda: None
