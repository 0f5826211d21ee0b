"""Jobs done in processes of this machine."""

import atexit
import ctypes
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any
from weakref import WeakSet

from depthmup.model.errors import error_report
from depthmup.sweep.executors.backlog import Backlog, Listener, messages
from depthmup.sweep.executors.executor import WorkerError
from depthmup.sweep.executors.gpus import arithmetic, compute_as, seeing
from depthmup.sweep.jobs import Job, StepLoss

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that a process gets when the thread that started it ends."""

STARTUP = 120.0
"""Seconds for a new process to load its libraries; a job's time limit counts from there."""

LOST = 77
"""Exit code of a worker that a CUDA error left without its GPU."""

CLOSED = 79
"""Exit code of a worker whose connection the code of a run has closed."""

SECONDS_TO_END = 5.0
"""For a worker whose connection has ended: one that works on has closed it."""

UNGUARDED = 78
"""Exit code of a worker that was asked to start a sweep while it was starting itself."""


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Do jobs in ``workers`` processes of one thread each.

    One thread, because two torch thread pools on the same cores slow each other down by two
    orders of magnitude. A worker that dies (killed, out of memory) or takes longer than
    ``trial_seconds`` for a result is replaced; ``Backlog`` says what becomes of its job.

    Each worker sees one of the ``gpus``, names as in CUDA_VISIBLE_DEVICES, in turn.
    """

    workers: int
    trial_seconds: float | None = None
    gpus: tuple[str, ...] = field(default=(), repr=False)

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        with self.staying() as team:
            team(jobs, listener)

    @contextmanager
    def staying(self) -> Iterator["_Team"]:
        """An executor whose workers stay between calls, as starting them takes a second or two."""
        leave_if_starting()
        team = _Team(self)
        try:
            yield team
        finally:
            _stop(team.idle)


class _Team:
    """Worker processes, of which some are idle between calls."""

    def __init__(self, executor: Processes) -> None:
        self.executor = executor
        self.idle: list[_Worker] = []

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        backlog = Backlog(jobs, listener, trial_seconds=self.executor.trial_seconds)
        busy: dict[Connection, _Worker] = {}
        try:
            while backlog or busy:
                while backlog and len(busy) < self.executor.workers:
                    worker = self.idle.pop() if self.idle else self._started(busy.values())
                    busy[worker.connection] = worker
                    worker.give(backlog.take(), backlog)
                until = min(worker.deadline for worker in busy.values())
                timeout = None if until == math.inf else max(0.0, until - time.monotonic())
                for connection in wait(list(busy), timeout):
                    assert isinstance(connection, Connection)
                    if not busy[connection].listen(backlog):
                        worker = busy.pop(connection)
                        if worker.free:
                            self.idle.append(worker)
                        else:
                            worker.stop()
                for worker in list(busy.values()):
                    if time.monotonic() > worker.deadline:
                        del busy[worker.connection]
                        worker.stop()
                        backlog.overdue(worker.job, loaded=worker.loaded)
        finally:
            _stop(busy.values())

    def _started(self, busy: Iterable["_Worker"]) -> "_Worker":
        """A new worker, on the GPU that has the fewest."""
        gpus = self.executor.gpus
        taken = [worker.gpu for worker in (*busy, *self.idle)]
        return _Worker(min(gpus, key=taken.count) if gpus else None)


class _Worker:
    """A process, its current job, and this end of the pipe to it."""

    job: Job

    def __init__(self, gpu: str | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.gpu, self.deadline = gpu, math.inf
        self.ready, self.loaded = False, False
        self.free = False  # its last job is over, and it waits for another
        self.connection, worker_end = context.Pipe()
        # Not a daemon, which may not have children: a custom trainer may use them to load data.
        self.process: SpawnProcess = context.Process(target=_work, args=(worker_end,))
        _processes.add(self.process)
        # Ctrl-C reaches the whole group: a worker inherits this until it ignores it by itself.
        with _holding_back(signal.SIGINT), seeing(self.gpu):
            self.process.start()
        worker_end.close()

    def give(self, job: Job, backlog: Backlog) -> None:
        """Send the process a job, with time to start as well as to load it."""
        self.job, self.free, self.loaded = job, False, False
        self.deadline = time.monotonic() + STARTUP + backlog.seconds(job, loaded=False)
        # If it is dead already, listening to it will say so.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send((arithmetic() if job.computes else None, pickle.dumps(job)))

    def listen(self, backlog: Backlog) -> bool:
        """Take a message; whether the worker has something to do after it."""
        try:
            kind, content = self.connection.recv()
        except (EOFError, ConnectionResetError):
            code = self._exit_code()
            if code in (None, CLOSED):
                backlog.over(
                    self.job,
                    "The code of this run closed the connection of its worker. It may close the "
                    "files that it opened, and no others (os.closerange).",
                )
                return False
            # A signal (below 0) may come at any time; code that ends early does so every time.
            if not self.ready and code is not None and code >= 0:
                raise WorkerError(_not_started(code)) from None
            backlog.died(self.job, f"exit code {code}")
            return False
        self.ready = True
        if kind in ("started", "loaded"):
            self.loaded = kind == "loaded"
            self.deadline = time.monotonic() + backlog.seconds(self.job, loaded=self.loaded)
        elif kind == "progress":
            backlog.progress(self.job, *content)
        elif kind != "ready" and not backlog.heard(self.job, kind, content):
            self.free = kind != "lost" and not backlog
            if kind == "lost" or self.free:
                return False
            self.give(backlog.take(), backlog)
        return True

    def _exit_code(self) -> int | None:
        """None if it works on. Asked for, not joined: what ``join`` waits by may be closed too."""
        until = time.monotonic() + SECONDS_TO_END
        while (code := self.process.exitcode) is None and time.monotonic() < until:
            time.sleep(0.01)
        return code

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


_processes = WeakSet[SpawnProcess]()
"""Of all workers."""


@atexit.register
def _kill_left() -> None:
    """Kill workers whose ``_stop`` a signal has cut short: multiprocessing waits for them next."""
    with _holding_back(signal.SIGINT, signal.SIGTERM):
        for process in multiprocessing.active_children():
            if process in _processes:
                process.kill()


def _stop(workers: Iterable[_Worker]) -> None:
    """Stop all workers, also where a second signal comes meanwhile."""
    with _holding_back(signal.SIGINT, signal.SIGTERM):
        for worker in workers:
            worker.stop()


@contextmanager
def _holding_back(*signals: signal.Signals) -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_if_starting() -> None:
    """End this process if it is a worker that is still being started.

    A worker runs the main script again, up to ``if __name__ == "__main__":``. A script without it
    would start the same sweep in every worker, and workers of it without end.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


def _not_started(code: int) -> str:
    script = getattr(sys.modules.get("__main__"), "__file__", None) or "the main script"
    if code == UNGUARDED:
        return (
            f"Worker processes run {script} again, up to the line\n"
            '    if __name__ == "__main__":\n'
            "which it lacks, so that each of them reached the call that starts workers. Put the "
            "code of the script below that line, or use on=1 (--workers 1)."
        )
    return (
        f"A worker process ended during its start with exit code {code}; its output is above. It "
        f"runs {script} again, up to the line\n"
        '    if __name__ == "__main__":\n'
        "so put below that line what only the script itself should do, or use on=1 (--workers 1)."
    )


def _work(connection: Connection) -> None:
    """A worker: do jobs until this process is stopped."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _killed_with_parent()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spoke, waiting = 0.0, list[StepLoss]()

    def say(kind: str, content: Any = None) -> None:
        try:
            connection.send((kind, content))
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)
        except OSError:  # a bad file descriptor
            os._exit(CLOSED)

    def tell(fraction: float, losses: Sequence[StepLoss] = (), /) -> None:
        nonlocal spoke
        waiting.extend(losses)
        if (now := time.monotonic()) - spoke > 0.2:
            spoke = now
            say("progress", (fraction, tuple(waiting)))
            waiting.clear()

    say("ready")
    while True:
        try:
            chosen, packed = connection.recv()
        except (EOFError, ConnectionResetError):
            os._exit(0)
        if chosen is not None:
            compute_as(chosen)
        say("started")
        waiting.clear()  # of a job that ended before, whose record has them
        for kind, content in messages(packed, tell):
            try:
                say(kind, content)
            except Exception as error:  # a result that cannot be pickled
                say("raised", error_report(error))
                break
            if kind == "lost":
                os._exit(LOST)


def _end_with_parent() -> None:
    """Leave no orphan at work, not even one that hangs, when the parent is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    with suppress(OSError):  # what it waits by was closed
        parent.join()
    os._exit(CLOSED if os.getppid() == parent.pid else 0)


def _killed_with_parent() -> None:
    """Where the system can: a worker that is stopped cannot end by itself."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
