"""Where jobs are done: in this process, or in worker processes beside it."""

import multiprocessing
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Protocol

from depthmup.sweep.jobs import Job, Result

ATTEMPTS = 3


class Listener(Protocol):
    """What an executor tells its caller."""

    def on_result(self, result: Result) -> None: ...

    def on_progress(self, job: Job, fraction: float) -> None: ...

    def on_failure(self, job: Job, why: str) -> None:
        """The job could not be done; the others go on."""


class Executor(Protocol):
    """Does jobs, the first ones first."""

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None: ...


class WorkerError(RuntimeError):
    """Jobs could not be done; the message holds a worker's own traceback."""


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """Do jobs here, one after another."""

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        for job in jobs:
            results = job(partial(listener.on_progress, job))
            while True:
                try:  # around the job alone: what the listener raises is its own
                    result = next(results)
                except StopIteration:
                    listener.on_progress(job, 1.0)
                    break
                except Exception:
                    listener.on_failure(job, traceback.format_exc())
                    break
                listener.on_result(result)


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Do jobs in ``workers`` processes of one thread each.

    One thread, because two torch thread pools on the same cores slow each other down by two
    orders of magnitude. A worker that dies (killed, out of memory) is replaced and its job given
    to another one, at most three times.
    """

    workers: int

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        waiting = deque((job, 1) for job in jobs)
        busy: dict[Connection, tuple[SpawnProcess, Job, int]] = {}
        try:
            for _ in range(min(self.workers, len(waiting))):
                self._start(busy, *waiting.popleft())
            while busy:
                for connection in wait(list(busy)):
                    assert isinstance(connection, Connection)
                    process, job, attempt = busy[connection]
                    try:
                        kind, content = connection.recv()
                    except (EOFError, ConnectionResetError):
                        del busy[connection]
                        process.join()
                        if attempt < ATTEMPTS:
                            self._start(busy, job, attempt + 1)
                            continue
                        listener.on_failure(
                            job,
                            f"A worker process died {ATTEMPTS} times (exit code "
                            f"{process.exitcode}) while {job}: most likely it ran out of memory. "
                            "Use fewer --workers or a smaller size.",
                        )
                        if waiting:
                            self._start(busy, *waiting.popleft())
                        continue
                    if kind == "result":
                        listener.on_result(content)
                    elif kind == "progress":
                        listener.on_progress(job, content)
                    else:
                        if kind == "failure":
                            listener.on_failure(job, content)
                        else:
                            listener.on_progress(job, 1.0)
                        if waiting:
                            job, attempt = waiting.popleft()
                            connection.send(job)
                            busy[connection] = (process, job, attempt)
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
        self, busy: dict[Connection, tuple[SpawnProcess, Job, int]], job: Job, attempt: int
    ) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        ours.send(job)
        busy[ours] = (process, job, attempt)


def _work(connection: Connection) -> None:
    """A worker: do what comes until the other end of the pipe is closed."""
    # Ctrl-C is the parent's to handle; if the parent dies, the pipe breaks and so does this loop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)
    spoke = 0.0

    def tell(fraction: float) -> None:
        nonlocal spoke
        if (now := time.monotonic()) - spoke > 0.2:
            spoke = now
            connection.send(("progress", fraction))

    try:
        while True:
            job: Job = connection.recv()
            try:
                for result in job(tell):
                    connection.send(("result", result))
            except (BrokenPipeError, EOFError):
                raise
            except Exception:
                connection.send(("failure", traceback.format_exc()))
            else:
                connection.send(("done", None))
    except (BrokenPipeError, ConnectionResetError, EOFError):
        os._exit(0)
