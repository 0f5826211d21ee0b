"""Jobs done in this process."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from depthmup.sweep.executors.backlog import Backlog, messages
from depthmup.sweep.executors.executor import Listener, WorkerError
from depthmup.sweep.jobs import Job


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
