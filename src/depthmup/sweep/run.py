"""Running a sweep: train what the store does not hold, and store every result at once."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from depthmup.records import Record
from depthmup.records.text import begin
from depthmup.sweep.executors import Executor, WorkerError
from depthmup.sweep.jobs import Job, Result, StepLoss, Train, training
from depthmup.sweep.logs import Log
from depthmup.sweep.store import Asked, Store

NAMED = 10
"""Number of failures that an error message names."""

NOTED = 1.0
"""Seconds between updates of a session's time, with checks that the store still exists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Results done out of ``cells``, and the fraction of the work done in ``elapsed`` seconds.

    Of a search both are of its round, made for a reason, ``why``: its results decide on another.
    ``of_runs`` is the fraction of the runs done, where a run's start may take longer than its work.
    """

    done: int
    cells: int
    fraction: float
    elapsed: float
    why: str = ""
    of_runs: float = 0.0

    @property
    def remaining(self) -> float:
        """Estimated seconds to the end; infinite before anything is known."""
        return self.elapsed * (1 / self.fraction - 1) if self.fraction > 0 else math.inf

    @property
    def remaining_by_run(self) -> float:
        """The same, should every run take as long as another; by work where that is known."""
        return self.elapsed * (1 / self.of_runs - 1) if self.of_runs > 0 else self.remaining


class _Keeper:
    """Listens to an executor: stores results, logs them, adds up progress, collects failures.

    Progress is counted by result: ``weights`` is the work of each, ``fractions`` how much of it is
    done. A job that is tried again continues after its last delivered result, and progress does not
    change until it has caught up with the attempt before. ``spent`` is updated by differences:
    summing over all n runs at every result would take n^2 additions.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        store: Store,
        session: int,
        tell: Callable[[Progress], None],
        log: Log | None,
        cells: int,
        done: int,
        slow_starts: bool = False,
    ) -> None:
        self.slow_starts = slow_starts
        self.store, self.session, self.tell, self.log = store, session, tell, log
        self.cells, self.done = cells, done
        self.weights = {key: job.work / len(job.keys) for job in jobs for key in job.keys}
        self.total, self.spent = math.fsum(self.weights.values()), 0.0
        self.fractions: dict[str, float] = {}
        self.finished: set[str] = set()
        self.failures: list[tuple[Job, str]] = []
        self.started = self.noted = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def on_result(self, result: Result) -> None:
        key = self.store.add(result)
        if time.monotonic() - self.noted > NOTED:
            self.note()
        if key in self.weights and key not in self.finished:
            self.finished.add(key)
            self._advance(key, 1.0)
            self.done += 1
        self._report()
        if self.log is not None and isinstance(result, Record):
            self.log.write(result)

    def note(self) -> None:
        """Store how long this session has worked; stop if the store is gone."""
        self.noted = time.monotonic()
        self.store.check_present()
        self.store.update_session(self.session, self.elapsed)

    def on_progress(self, job: Job, fraction: float) -> None:
        """Count a job's progress as that of its runs that are not finished yet."""
        left = [key for key in job.keys if key not in self.finished]
        if left:
            # Delivered results count as done, so the rest of the progress belongs to the others.
            delivered = len(job.keys) - len(left)
            share = max(0.0, fraction * len(job.keys) - delivered) / len(left)
            for key in left:
                self._advance(key, share)
        self._report()

    def on_losses(self, losses: Sequence[StepLoss]) -> None:
        """Pass them to the log; a store has whole runs."""
        step_of_log: Callable[..., None] | None = getattr(self.log, "step", None)
        if step_of_log is not None:
            for one in losses:
                step_of_log(*one)

    def on_failure(self, job: Job, why: str) -> None:
        """Note the failure; nothing of the job is left to be done."""
        self.failures.append((job, why))
        self.on_progress(job, 1.0)

    def _advance(self, key: str, fraction: float) -> None:
        before = self.fractions.get(key, 0.0)
        if fraction > before:
            self.fractions[key] = fraction
            self.spent += self.weights.get(key, 0.0) * (fraction - before)

    def _report(self) -> None:
        self.tell(
            Progress(
                done=self.done,
                cells=self.cells,
                # Differences that were rounded may add up to a little more than the total.
                fraction=min(1.0, self.spent / self.total) if self.total else 1.0,
                elapsed=self.elapsed,
                of_runs=self._of_runs() if self.slow_starts else 0.0,
            )
        )

    def _of_runs(self) -> float:
        return math.fsum(self.fractions.values()) / len(self.weights) if self.weights else 1.0

    def report_failures(self) -> None:
        """Raise an error if jobs failed: the first with its traceback, the others by name."""
        if not self.failures:
            return
        (job, why), *others = self.failures
        more = f" ({len(others)} other jobs failed too)" if others else ""
        failed = f"{job} failed{more}:"
        if self.done:
            failed = f"Finished runs are stored, but {failed}"
        lines = [begin(failed), why.rstrip()]
        for other, reason in others[:NAMED]:
            lines.append(f"Also failed: {other}: {reason.rstrip().splitlines()[-1]}")
        if len(others) > NAMED:
            lines.append(f"And {len(others) - NAMED} more.")
        raise WorkerError("\n".join(lines))


def run(
    asked: Sequence[Asked],
    *,
    store: Store,
    executor: Executor,
    jobs: Callable[[Sequence[Any]], Sequence[Job]] = training,
    tell: Callable[[Progress], None] = lambda progress: None,
    about: Mapping[str, object] | None = None,
    log: Log | None = None,
    first_alone: bool = False,
    slow_starts: bool = False,
) -> int:
    """Do everything asked for that the store does not hold.

    Each result is stored as soon as it is ready, so whatever stops this call, the next one goes on
    from there. A job that fails does not stop the others; with ``first_alone`` the least job comes
    before all others, and none of them if it fails. A ``log`` gets each run after it was stored.
    With ``slow_starts`` a run's time need not follow its work.
    """
    missing = store.missing(asked)
    todo = jobs(missing)
    if hasattr(log, "step"):
        todo = [replace(job, live=True) if isinstance(job, Train) else job for job in todo]
    session = store.open_session({**(about or {}), "started": time.time()})
    keeper = _Keeper(
        todo,
        store=store,
        session=session,
        tell=tell,
        log=log,
        cells=len(asked),
        done=len(asked) - len(missing),
        slow_starts=slow_starts,
    )
    try:
        if first_alone and len(todo) > 1:
            least = min(todo, key=lambda job: job.work)
            executor([least], keeper)
            todo = [] if keeper.failures else [job for job in todo if job is not least]
        executor(todo, keeper)
    finally:
        if (close := getattr(log, "close", None)) is not None:
            close()
        keeper.note()
    keeper.report_failures()
    return len(missing)
