"""Jobs done in this process."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from depthmup.model.errors import error_report
from depthmup.sweep.executors.backlog import Attempt, Backlog
from depthmup.sweep.executors.executor import Listener, WorkerError
from depthmup.sweep.executors.gpus import give_back, is_lost, is_shortage
from depthmup.sweep.jobs import Job


@dataclass(frozen=True, kw_only=True)
class InProcess:
    """Do jobs here, one after another. Nothing can stop one that hangs."""

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        backlog = Backlog(jobs, listener)
        while backlog:
            attempt = backlog.take()
            results, short = attempt.job(partial(backlog.progress, attempt)), False
            while True:
                try:  # around the job alone: what the listener raises is its own
                    result = next(results)
                except StopIteration:
                    backlog.ended(attempt)
                    break
                except (Exception, SystemExit) as error:
                    report = error_report(error)
                    if short := is_shortage(error):
                        backlog.exhausted(attempt, report)
                    elif is_lost(error):
                        raise WorkerError(_lost(attempt, report)) from None
                    else:
                        backlog.raised(attempt, report)
                    break
                backlog.result(result)
            if short:  # now that the error holds no frames
                give_back()


def _lost(attempt: Attempt, report: str) -> str:
    return (
        f"{attempt.job} failed and left this process without its GPU, so nothing more can be "
        "trained in it. Finished runs are stored. Use --executor processes, whose workers are "
        f"replaced:\n{report}"
    )
