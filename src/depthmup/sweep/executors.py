"""Where cells are trained: in this process, or in worker processes beside it."""

import multiprocessing
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Protocol

from depthmup.records import Cell, Record

Group = tuple[Cell, ...]
ATTEMPTS = 3


class Listener(Protocol):
    """What an executor tells its caller."""

    def on_record(self, record: Record) -> None: ...

    def on_progress(self, group: Group, fraction: float) -> None: ...


class Executor(Protocol):
    """Trains groups of cells of one shape each, the first groups first."""

    def __call__(self, groups: Sequence[Group], listener: Listener) -> None: ...


class WorkerError(RuntimeError):
    """A group could not be trained; the message holds the worker's own traceback."""


def _train(group: Group, device: str, listener: Listener) -> None:
    from depthmup.training import train_group

    def on_progress(fraction: float) -> None:
        listener.on_progress(group, fraction)

    for record in train_group(group, device=device, on_progress=on_progress):
        listener.on_record(record)


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """Train here, one group after another."""

    device: str = "cpu"

    def __call__(self, groups: Sequence[Group], listener: Listener) -> None:
        for group in groups:
            _train(group, self.device, listener)
            listener.on_progress(group, 1.0)


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Train in ``workers`` processes of one thread each.

    One thread, because two torch thread pools on the same cores slow each other down by two
    orders of magnitude. A worker that dies (killed, out of memory) is replaced and its group
    given to another one, at most three times.
    """

    workers: int
    device: str = "cpu"

    def __call__(self, groups: Sequence[Group], listener: Listener) -> None:
        waiting = deque((group, 1) for group in groups)
        busy: dict[Connection, tuple[SpawnProcess, Group, int]] = {}
        try:
            for _ in range(min(self.workers, len(waiting))):
                self._start(busy, *waiting.popleft())
            while busy:
                for connection in wait(list(busy)):
                    assert isinstance(connection, Connection)
                    process, group, attempt = busy[connection]
                    try:
                        kind, content = connection.recv()
                    except (EOFError, ConnectionResetError):
                        del busy[connection]
                        process.join()
                        if attempt == ATTEMPTS:
                            raise WorkerError(
                                f"A worker process died {ATTEMPTS} times (exit code "
                                f"{process.exitcode}) while training {len(group)} networks of "
                                f"depth {group[0].network.depth} and width "
                                f"{group[0].network.width}: most likely it ran out of memory. "
                                "Use fewer --workers or a smaller size; what was finished is kept."
                            ) from None
                        self._start(busy, group, attempt + 1)
                        continue
                    if kind == "record":
                        listener.on_record(content)
                    elif kind == "progress":
                        listener.on_progress(group, content)
                    elif kind == "error":
                        raise WorkerError(f"Training failed in a worker process:\n{content}")
                    else:
                        listener.on_progress(group, 1.0)
                        if waiting:
                            group, attempt = waiting.popleft()
                            connection.send(group)
                            busy[connection] = (process, group, attempt)
                        else:
                            del busy[connection]
                            connection.close()
                            process.join()
        finally:
            for process, _, _ in busy.values():
                process.terminate()
            for process, _, _ in busy.values():
                process.join()

    def _start(
        self, busy: dict[Connection, tuple[SpawnProcess, Group, int]], group: Group, attempt: int
    ) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.device), daemon=True)
        process.start()
        theirs.close()
        ours.send(group)
        busy[ours] = (process, group, attempt)


@dataclass(kw_only=True)
class _Sender:
    """In a worker: passes everything on to the process that started it."""

    connection: Connection
    spoke: float = 0.0

    def on_record(self, record: Record) -> None:
        self.connection.send(("record", record))

    def on_progress(self, group: Group, fraction: float) -> None:
        if (now := time.monotonic()) - self.spoke > 0.2:
            self.spoke = now
            self.connection.send(("progress", fraction))


def _work(connection: Connection, device: str) -> None:
    """A worker: train what comes until the other end of the pipe is closed."""
    # Ctrl-C is the parent's to handle; if the parent dies, the pipe breaks and so does this loop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)
    sender = _Sender(connection=connection)
    try:
        while True:
            group = connection.recv()
            try:
                _train(group, device, sender)
            except (BrokenPipeError, EOFError):
                raise
            except Exception:
                connection.send(("error", traceback.format_exc()))
                return
            connection.send(("done", None))
    except (BrokenPipeError, ConnectionResetError, EOFError):
        os._exit(0)
