"""The interfaces of executors, and of the listeners that they report to."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, cast

from depthmup.sweep.jobs import Job, Result, StepLoss


class Listener(Protocol):
    """Receives the results, the progress and the failures of an executor."""

    def on_result(self, result: Result) -> None:
        """A result is ready. Each comes once, even if its job was tried several times."""

    def on_progress(self, job: Job, fraction: float) -> None:
        """The job has come further."""

    def on_losses(self, losses: Sequence[StepLoss]) -> None:
        """Losses of a job that is live, before its result; after a worker's death, once more."""

    def on_failure(self, job: Job, why: str) -> None:
        """The job could not be done; the others continue."""


class Executor(Protocol):
    """Does jobs in their order. An error in the listener stops it and all running jobs."""

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None: ...


def staying(executor: Executor) -> AbstractContextManager[Executor]:
    """An executor for several calls: its workers or its connection stay between them."""
    stays = getattr(executor, "staying", None)
    return nullcontext(executor) if stays is None else cast(Any, stays())


class WorkerError(RuntimeError):
    """Jobs could not be done; the message contains the worker's traceback."""
