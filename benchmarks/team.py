"""Processes that answer the same question at the same time, each with its own libraries."""

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Units of work (model-steps, GFLOP or GB) with the seconds they took, by both clocks."""

    units: float
    wall: float
    cpu: float


def clocked(job: Callable[[], object], units: float) -> Timing:
    """What a job takes: on the wall's clock, and of this process' processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return Timing(units=units, wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)


def _answer(connection: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    while (question := connection.recv()) is not None:
        function, arguments = question
        try:
            connection.send((function(*arguments), None))
        except Exception:
            connection.send((None, traceback.format_exc()))


class Team:
    """``processes`` of one thread each, or one process whose XLA may use every core.

    Functions are sent by reference: they stand at the top of a module.
    """

    def __init__(self, processes: int, *, threads: bool = False) -> None:
        context, before = multiprocessing.get_context("spawn"), os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = before if threads else f"{ONE_THREAD} {before}"
        self.members = []
        try:
            for _ in range(processes):
                ours, theirs = context.Pipe()
                process = context.Process(target=_answer, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                self.members.append((ours, process))
        finally:
            os.environ["XLA_FLAGS"] = before

    def __enter__(self) -> "Team":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection, process in self.members:
            if error is None:
                connection.send(None)
            else:
                process.terminate()
            process.join()

    def ask(self, function: Callable[..., Any], *arguments: object) -> list[Any]:
        """Everyone's answer.

        Raises:
            RuntimeError: with the traceback of a process that had none.
        """
        for connection, _ in self.members:
            connection.send((function, arguments))
        answers = [connection.recv() for connection, _ in self.members]
        for _, problem in answers:
            if problem:
                raise RuntimeError(problem)
        return [answer for answer, _ in answers]
