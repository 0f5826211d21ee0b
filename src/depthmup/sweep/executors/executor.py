"""The interface of executors, and the one that does jobs in this process."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from depthmup.sweep.executors.backlog import Backlog, Listener, messages
from depthmup.sweep.jobs import Job


class Executor(Protocol):
    """Does jobs in their order. An error in the listener stops it and all running jobs."""

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None: ...


def staying(executor: Executor) -> AbstractContextManager[Executor]:
    """An executor for several calls: its workers or its connection stay between them."""
    stays = getattr(executor, "staying", None)
    return nullcontext(executor) if stays is None else cast(Any, stays())


class WorkerError(RuntimeError):
    """Jobs could not be done; the message contains the worker's traceback."""


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """Do jobs here, one after another. Nothing can stop one that hangs."""

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        backlog = Backlog(jobs, listener)
        while backlog:
            job = backlog.take()
            for kind, content in messages(job, partial(backlog.progress, job)):
                if kind == "lost":
                    raise WorkerError(
                        f"{job} failed and left this process without its GPU, so nothing more can "
                        "be trained in it. Finished runs are stored. Use --executor processes, "
                        f"whose workers are replaced:\n{content}"
                    )
                backlog.heard(job, kind, content)
