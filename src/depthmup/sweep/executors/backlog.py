"""The jobs still to be done, who is told of them, and the rules for failed ones."""

import math
import pickle
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from depthmup.model.errors import error_report
from depthmup.model.time_limit import WHOSE, loading_limit
from depthmup.sweep.executors.gpus import give_back, is_lost, is_shortage
from depthmup.sweep.jobs import Job, Result, StepLoss, Tell, key_of

ATTEMPTS = 3
"""Number of workers that may die of one result before it is reported as failed."""


def messages(job: Job | bytes, tell: Tell) -> Iterator[tuple[str, Any]]:
    """Do a job, which may come pickled: that it is loaded, its results, and last how it ended."""
    kind, content = "ended", "It ended without a result."
    try:
        loaded: Job = pickle.loads(job) if isinstance(job, bytes) else job
        loaded.load()
        yield "loaded", None
        for result in loaded(tell):
            yield "result", result
    except (Exception, SystemExit) as error:
        kind = "exhausted" if is_shortage(error) else "lost" if is_lost(error) else "raised"
        content = error_report(error)
    if kind == "exhausted":  # now that the error holds no frames
        give_back()
    yield kind, content


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


class Backlog:
    """The waiting jobs, and the rules for failed ones, the same for all executors.

    A job of several results that fails, dies or takes too long is split: its missing results are
    tried again one by one, after all other jobs, so that one bad result does not affect the others.
    Where memory was lacking, it is split into halves. A job of a single result that goes wrong is
    reported: errors and time limits at once, deaths of workers and lack of memory, which may pass,
    at the third time. Delivered results are never repeated, and never passed on twice.

    ``trial_seconds`` is the time limit of one result; a job may take as many times that as
    it has results.
    """

    def __init__(
        self, jobs: Iterable[Job], listener: Listener, *, trial_seconds: float | None = None
    ) -> None:
        self._waiting = deque(jobs)
        self._listener = listener
        self._trial_seconds = trial_seconds
        self._delivered: set[str] = set()
        # Deaths of workers and lacks of memory, by the key of the result.
        self._setbacks: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Job:
        return self._waiting.popleft()

    def seconds(self, job: Job, *, loaded: bool = True) -> float:
        """The time limit of a job, or before it is loaded, of loading it."""
        if not loaded:
            return loading_limit(self._trial_seconds)
        return math.inf if self._trial_seconds is None else self._trial_seconds * len(job.keys)

    def heard(self, job: Job, kind: str, content: Any) -> bool:
        """Take one of a job's ``messages``; whether there are more to come."""
        if kind == "result":
            self.result(content)
        elif kind == "exhausted":
            self.exhausted(job, content)
        elif kind != "loaded":
            self.over(job, content)
        return kind in ("loaded", "result")

    def result(self, result: Result) -> None:
        key = key_of(result)
        if key not in self._delivered:
            self._delivered.add(key)
            self._listener.on_result(result)

    def progress(self, job: Job, fraction: float, losses: Sequence[StepLoss] = (), /) -> None:
        """The job has come further, and if it is live, has losses to tell."""
        self._listener.on_progress(job, fraction)
        if losses:
            self._listener.on_losses(losses)

    def overdue(self, job: Job, *, loaded: bool = True) -> None:
        """The job was stopped at its time limit, or at that of loading it."""
        what, whose = ("It", "its time limit") if loaded else ("Loading your code", WHOSE)
        self.over(
            job,
            f"{what} was stopped after {self.seconds(job, loaded=loaded):g} s, {whose}. Allow more "
            f"with --trial-seconds, or find out where it hangs.{_printed(job)}",
        )

    def died(self, job: Job, how: str) -> None:
        """The job's worker died."""
        self._setbacks.update(job.keys)
        deaths = self._setbacks[job.keys[0]]
        self.over(
            job,
            f"Workers died {deaths} times at this job; the last time: {how.rstrip()}\nMost likely "
            f"it ran out of memory: use fewer --workers, or a smaller size.{_printed(job)}",
            again=deaths < ATTEMPTS,
        )

    def exhausted(self, job: Job, how: str) -> None:
        """The job asked for more memory than was free, on the host or on a GPU."""
        if len(job.keys) == 1:  # else a half of it may fit
            self._setbacks.update(job.keys)
        shortages = self._setbacks[job.keys[0]]
        self.over(
            job,
            f"It did not fit into memory {shortages} times; the last time: {how.rstrip()}\nUse "
            "fewer --workers, or a smaller size.",
            again=shortages < ATTEMPTS,
            parts=2,
        )

    def over(self, job: Job, why: str, *, again: bool = False, parts: int | None = None) -> None:
        """The job ended; ``why`` its missing results, if it has any, are not there."""
        left = [key for key in job.keys if key not in self._delivered]
        if not left:
            self._listener.on_progress(job, 1.0)
        elif again or len(job.keys) > 1:
            size = -(-len(left) // parts) if parts else 1
            self._waiting += [
                job.only(left[start : start + size]) for start in range(0, len(left), size)
            ]
        else:
            self._listener.on_failure(job, why)


def _printed(job: Job) -> str:
    return f"\nIts command, and the last lines of its output:\n{job.output}" if job.output else ""
