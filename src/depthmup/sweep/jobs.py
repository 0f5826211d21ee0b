"""Jobs: what a worker is given to do. A job yields its results one by one, as they are ready."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from depthmup.records import Cell, Measurement, Record, Task
from depthmup.sweep.cost import work
from depthmup.training import Placement, train_group

Result = Record | Measurement
Tell = Callable[[float], None]

MEMBERS = 12
"""Networks trained as one stack: enough to amortize overhead, few enough for the cache."""


class Job(Protocol):
    """Work that can be sent to another process: calling it yields results.

    ``tell`` is given the fraction that is done. ``work`` is what the job's time is proportional
    to, in one unit for all jobs of a sweep: parameters times steps. Jobs are compared by value.
    """

    @property
    def work(self) -> float: ...

    def __call__(self, tell: Tell) -> Iterator[Result]: ...

    def __str__(self) -> str:
        """What the job is, for a message: 'training 12 networks of depth 8 and width 64'."""
        ...


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train cells of one shape with the engine for them."""

    cells: tuple[Cell, ...]
    placement: Placement = field(default_factory=Placement)

    @property
    def work(self) -> float:
        return work(self.cells[0]) * len(self.cells)

    def __call__(self, tell: Tell) -> Iterator[Result]:
        yield from train_group(self.cells, placement=self.placement, on_progress=tell)

    def __str__(self) -> str:
        network = self.cells[0].network
        return (
            f"training {len(self.cells)} networks of depth {network.depth} and width "
            f"{network.width}"
        )


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Compute one task: ``function`` turns its settings into named numbers.

    The function is sent by reference, so it stands at the top of a module. ``work`` is an
    estimate in the unit of training, parameters times steps.
    """

    task: Task
    function: Callable[..., Mapping[str, Any]]
    work: float = 1e9

    def __call__(self, tell: Tell) -> Iterator[Result]:
        yield Measurement(task=self.task, values=self.function(**self.task.settings))

    def __str__(self) -> str:
        return f"measuring {self.task.name} with {dict(self.task.settings)}"


def training(
    cells: Iterable[Cell], *, members: int = MEMBERS, placement: Placement | None = None
) -> list[Train]:
    """Jobs that train cells, those that can be trained as one stack together; longest first.

    Neighbouring learning rates share a job, as they tend to diverge together.
    """
    placement = placement or Placement()
    by_shape: dict[Cell, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_shape[cell.shape].append(cell)
    found = []
    for alike in by_shape.values():
        alike.sort(key=lambda cell: (cell.optimizer.lr, cell.optimizer.weight_decay, cell.seed))
        found += [
            Train(cells=tuple(alike[start : start + members]), placement=placement)
            for start in range(0, len(alike), members)
        ]
    return sorted(found, key=lambda job: -job.work)
