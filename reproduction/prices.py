"""What claims cost: runs, and the work of their jobs, which time is proportional to."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from depthmup.records import Cell, Run, Task
from depthmup.sweep import MAIN_STORE, Store, seconds_per_work, work
from reproduction.claims.claim import Claim, Experiment


def counted(count: int, noun: str) -> str:
    """A number of things: no such helper of the library stands behind a public door."""
    return f"{count} {noun}{'s' * (count != 1)}"


@dataclass(frozen=True, kw_only=True)
class Price:
    """Runs and tasks, their work in the unit of jobs, and what is expected to follow them."""

    runs: int
    work: float
    rest: float = 0.0

    def seconds(self, workers: int) -> float:
        """A forecast for so many idle cores of this machine, with half of what may follow."""
        return (self.work + self.rest / 2) * seconds_per_work() / workers


def price(planned: Sequence[tuple[Claim, Experiment]], store: Store) -> Price:
    """What is to be done for claims together beyond what a store has, each run once."""
    experiments = [experiment for _, experiment in planned]
    aheads = [one.ahead(store) for one in experiments]
    works = dict(_works(experiments, (item for ahead in aheads for item in ahead.missing)))
    rest = math.fsum(ahead.rest for ahead in aheads)
    return Price(runs=len(works), work=math.fsum(works.values()), rest=rest)


def prices(planned: Sequence[tuple[Claim, Experiment]]) -> Sequence[Price]:
    """Of each claim from its beginning."""
    with TemporaryDirectory() as folder, Store(Path(folder) / MAIN_STORE) as store:
        return [price([one], store) for one in planned]


def spent(
    planned: Sequence[tuple[Claim, Experiment]], store: Store
) -> Mapping[str, tuple[int, float]]:
    """By claim the runs that it rests on, and their share of the work of all claims.

    What several claims ask for counts for each of them.
    """
    works = {
        claim.name: dict(_works([one], (*one.asked, *one.ahead(store).done)))
        for claim, one in planned
    }
    whole = math.fsum({k: w for of_claim in works.values() for k, w in of_claim.items()}.values())
    return {
        name: (len(of_claim), math.fsum(of_claim.values()) / whole if whole else 0.0)
        for name, of_claim in works.items()
    }


def _works(
    experiments: Iterable[Experiment], items: Iterable[Run | Task]
) -> Iterator[tuple[str, float]]:
    """The work of runs and tasks by key."""
    of_jobs = {
        key: job.work / len(job.keys)
        for one in experiments
        for job in (*one.measures, *one.trials)
        for key in job.keys
    }
    for item in items:
        yield item.key, work(item) if isinstance(item, Cell) else of_jobs[item.key]
