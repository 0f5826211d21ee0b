"""Jobs: units of work for a worker. A job yields its results one by one, as they are ready."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from depthmup.model import Model, resolved
from depthmup.records import Cell, Measurement, Record, Trial
from depthmup.records.sizes import size_text
from depthmup.sweep.cost import MEMBERS, work
from depthmup.training import Backend, train_group, train_trials
from depthmup.training.backend import place_of

if TYPE_CHECKING:
    from depthmup.training.command import RunFolders

Result = Record[Any] | Measurement

STACKED = Backend(engine="stacked")

StepLoss: TypeAlias = tuple[Trial, int, float]
"""A run that is still training, one of its steps, counted from 0, and the loss there."""


class Tell(Protocol):
    """Is told the fraction of a job that is done, and losses of its runs if it is live."""

    def __call__(self, fraction: float, losses: Sequence[StepLoss] = (), /) -> None: ...


def key_of(result: Result) -> str:
    """The key by which a result is asked for."""
    return result.task.key if isinstance(result, Measurement) else result.cell.key


class Job(ABC):
    """Work that can be sent to another process: calling it yields results.

    ``tell`` is called with the fraction that is done; ``str`` is the job in words, for a message.
    """

    @property
    def computes(self) -> bool:
        """Whether its process needs PyTorch, which takes a second or two to load."""
        return True

    @property
    def output(self) -> str:
        """The last lines that its run printed, where they are kept, for a job that was stopped."""
        return ""

    @property
    @abstractmethod
    def work(self) -> float:
        """Proportional to its time, in one unit for all jobs of a sweep: parameters times steps."""

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """The keys of its results, in any order."""

    @abstractmethod
    def only(self, keys: Collection[str]) -> "Job":
        """The job of only some of the results, which have the same bits."""

    def load(self) -> None:  # noqa: B027 - most need nothing
        """Import what it needs: the time limit of training counts from there."""

    @abstractmethod
    def __call__(self, tell: Tell) -> Iterator[Result]: ...


@dataclass(frozen=True, kw_only=True)
class Train(Job):
    """Train runs of one shape: cells, or trials of a ``model``.

    ``cost`` is the work of a trial's step per ``Trial.step_work``. If the job is ``live``, it tells
    the losses of every step. ``folders`` is where a command's runs have their folders.
    """

    runs: tuple[Any, ...]
    backend: Backend = field(default_factory=Backend)
    model: Model | None = None
    cost: float = 1.0
    live: bool = False
    folders: "RunFolders | None" = None

    @property
    def computes(self) -> bool:
        return self.model is None or self.model.command is None

    @property
    def work(self) -> float:
        return self.cost * work(self.runs[0]) * len(self.runs)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(run.key for run in self.runs)

    @property
    def output(self) -> str:
        from depthmup.training.command import command_and_last_lines

        if self.folders is None:
            return ""
        return command_and_last_lines(self.folders.log(self.runs[0]))

    def only(self, keys: Collection[str]) -> "Train":
        return replace(self, runs=tuple(run for run in self.runs if run.key in keys))

    def load(self) -> None:
        if self.model is not None and resolved(self.model).command is None:
            import depthmup.training.trial  # noqa: F401

    def __call__(self, tell: Tell) -> Iterator[Result]:
        def tell_loss(trial: Trial, step: int, loss: float) -> None:
            if self.live:
                tell(step / trial.steps, ((trial, step, loss),))

        records: Iterator[Record[Any]]
        if self.model is None:
            records = train_group(self.runs, backend=self.backend, on_progress=tell)
        else:
            records = train_trials(
                self.runs,
                self.model,
                backend=self.backend,
                folders=self.folders,
                on_progress=tell,
                on_loss=tell_loss,
            )
        place = place_of(self.backend.device)
        for record in records:
            yield replace(record, place=place)

    def __str__(self) -> str:
        run, count = self.runs[0], len(self.runs)
        if isinstance(run, Trial):
            what = f"training {run.model} at {size_text(run.size)} with {run.scheme}"
            if self.backend.engine == "stacked":
                return f"{what} and {run.optimizer}, {count} learning rates and seeds"
            return f"{what}, learning rate {run.lr:.4g} and seed {run.seed}"
        network, optimizer = run.network, run.optimizer
        if count > 1:
            return f"training {count} networks of depth {network.depth} and width {network.width}"
        return (
            f"training a network of depth {network.depth}, width {network.width} and branch "
            f"multiplier {network.multiplier:.4g} with {optimizer.name}, learning rate "
            f"{optimizer.lr:.4g} and seed {run.seed}"
        )


def training(
    cells: Iterable[Cell], *, members: int = MEMBERS, backend: Backend | None = None
) -> list[Train]:
    """Jobs that train cells, the longest first; cells of one shape are stacked."""
    backend = backend or Backend()
    by_shape: dict[Cell, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_shape[cell.shape].append(cell)
    jobs = []
    for alike in by_shape.values():
        # Neighbouring learning rates share a job, as they tend to diverge together.
        alike.sort(key=lambda cell: (cell.optimizer.lr, cell.optimizer.weight_decay, cell.seed))
        jobs += [
            Train(runs=tuple(alike[start : start + members]), backend=backend)
            for start in range(0, len(alike), members)
        ]
    return sorted(jobs, key=lambda job: -job.work)


def together(
    trials: Iterable[Trial],
    model: Model,
    *,
    backend: Backend = STACKED,
    members: int = MEMBERS,
    cost: float = 1.0,
) -> list[Train]:
    """Jobs of stacked trials, in the order of their first trials."""
    alike: dict[Trial, list[Trial]] = defaultdict(list)
    for trial in trials:
        alike[replace(trial, lr=0.0, seed=0)].append(trial)
    return [
        Train(runs=tuple(group[start : start + members]), model=model, backend=backend, cost=cost)
        for group in alike.values()
        for start in range(0, len(group), members)
    ]
