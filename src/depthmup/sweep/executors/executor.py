"""What an executor is, and what it tells its caller."""

from collections.abc import Sequence
from typing import Protocol

from depthmup.sweep.jobs import Job, Result


class Listener(Protocol):
    """What an executor tells its caller."""

    def on_result(self, result: Result) -> None:
        """A result is there; each comes once, also when its job was tried several times."""

    def on_progress(self, job: Job, fraction: float) -> None: ...

    def on_failure(self, job: Job, why: str) -> None:
        """The job could not be done; the others go on."""


class Executor(Protocol):
    """Does jobs, the first ones first. What the listener raises stops it, and leaves no job."""

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None: ...


class WorkerError(RuntimeError):
    """Jobs could not be done; the message holds a worker's own traceback."""
