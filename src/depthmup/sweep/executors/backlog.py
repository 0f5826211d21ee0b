"""The jobs still to be done, and the rules by which failed ones are tried again or reported."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from depthmup.sweep.executors.executor import Listener
from depthmup.sweep.jobs import Job, Result, StepLoss, key_of

ATTEMPTS = 3
"""Number of workers that may die of one result before it is reported as failed."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A job that is given to a worker; ``deaths`` of workers, or lacks of memory, before."""

    job: Job
    deaths: int = 0


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
        self._waiting = deque(Attempt(job=job) for job in jobs)
        self._listener = listener
        self._trial_seconds = trial_seconds
        self._delivered: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Attempt:
        return self._waiting.popleft()

    def seconds(self, attempt: Attempt) -> float:
        """The time limit of an attempt."""
        if self._trial_seconds is None:
            return math.inf
        return self._trial_seconds * len(attempt.job.keys)

    def result(self, result: Result) -> None:
        key = key_of(result)
        if key not in self._delivered:
            self._delivered.add(key)
            self._listener.on_result(result)

    def progress(self, attempt: Attempt, fraction: float, losses: Sequence[StepLoss] = ()) -> None:
        """The job has come further, and if it is live, has losses to tell."""
        self._listener.on_progress(attempt.job, fraction)
        if losses:
            self._listener.on_losses(losses)

    def ended(self, attempt: Attempt) -> None:
        """The job ended by itself."""
        self._settle(attempt, "It ended without a result.")

    def raised(self, attempt: Attempt, trace: str) -> None:
        """The job's own code raised an exception."""
        self._settle(attempt, trace)

    def overdue(self, attempt: Attempt) -> None:
        """The job was stopped at its time limit."""
        self._settle(
            attempt,
            f"It was stopped after {self.seconds(attempt):g} s, its time limit. Allow more with "
            f"--trial-seconds, or find out where it hangs.{_printed(attempt.job)}",
        )

    def died(self, attempt: Attempt, how: str) -> None:
        """The job's worker died."""
        deaths = attempt.deaths + 1
        self._settle(
            attempt,
            f"Workers died {deaths} times at this job; the last time: {how.rstrip()}\nMost likely "
            "it ran out of memory: use fewer --workers, or a smaller size."
            f"{_printed(attempt.job)}",
            deaths=deaths,
            again=deaths < ATTEMPTS,
        )

    def exhausted(self, attempt: Attempt, how: str) -> None:
        """The job asked for more memory than was free, on the host or on a GPU."""
        alone = len(attempt.job.keys) == 1
        shortages = attempt.deaths + 1 if alone else 0
        self._settle(
            attempt,
            f"It did not fit into memory {shortages} times; the last time: {how.rstrip()}\nUse "
            "fewer --workers, or a smaller size.",
            deaths=shortages,
            again=shortages < ATTEMPTS,
            parts=2,
        )

    def _settle(
        self,
        attempt: Attempt,
        why: str,
        *,
        deaths: int | None = None,
        again: bool = False,
        parts: int | None = None,
    ) -> None:
        deaths = attempt.deaths if deaths is None else deaths
        keys = attempt.job.keys
        left = [key for key in keys if key not in self._delivered]
        if not left:
            self._listener.on_progress(attempt.job, 1.0)
        elif again or len(keys) > 1:
            size = -(-len(left) // parts) if parts else 1
            self._waiting += [
                Attempt(job=attempt.job.only(left[start : start + size]), deaths=deaths)
                for start in range(0, len(left), size)
            ]
        else:
            self._listener.on_failure(attempt.job, why)


def _printed(job: Job) -> str:
    return f"\nIts command, and the last lines of its output:\n{job.output}" if job.output else ""
