"""Jobs done in this process."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from depthmup.model.errors import error_report
from depthmup.sweep.executors.backlog import Backlog
from depthmup.sweep.executors.executor import Listener
from depthmup.sweep.jobs import Job


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """Do jobs here, one after another. Nothing can stop one that hangs."""

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        backlog = Backlog(jobs, listener)
        while backlog:
            attempt = backlog.take()
            results = attempt.job(partial(backlog.progress, attempt))
            while True:
                try:  # around the job alone: what the listener raises is its own
                    result = next(results)
                except StopIteration:
                    backlog.ended(attempt)
                    break
                except (Exception, SystemExit) as error:
                    backlog.raised(attempt, error_report(error))
                    break
                backlog.result(result)
