"""Jobs: units of work for a worker. A job yields its results one by one, as they are ready."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from depthmup.model import Model, resolved
from depthmup.records import Cell, Measurement, Record, Trial
from depthmup.records.certificate import size_text
from depthmup.sweep.cost import MEMBERS, work
from depthmup.training import Placement, train_group
from depthmup.training.placement import place_of

if TYPE_CHECKING:
    from depthmup.training.command import RunFolders

Result = Record[Any] | Measurement

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

    @abstractmethod
    def __call__(self, tell: Tell) -> Iterator[Result]: ...


@dataclass(frozen=True, kw_only=True)
class Train(Job):
    """Train cells of one shape with the engine for them."""

    cells: tuple[Cell, ...]
    placement: Placement = field(default_factory=Placement)

    @property
    def work(self) -> float:
        return work(self.cells[0]) * len(self.cells)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(cell.key for cell in self.cells)

    def only(self, keys: Collection[str]) -> "Train":
        return replace(self, cells=tuple(cell for cell in self.cells if cell.key in keys))

    def __call__(self, tell: Tell) -> Iterator[Result]:
        place = place_of(self.placement.device)
        for record in train_group(self.cells, placement=self.placement, on_progress=tell):
            yield replace(record, place=place)

    def __str__(self) -> str:
        network, optimizer = self.cells[0].network, self.cells[0].optimizer
        if len(self.cells) > 1:
            return (
                f"training {len(self.cells)} networks of depth {network.depth} and width "
                f"{network.width}"
            )
        return (
            f"training a network of depth {network.depth}, width {network.width} and branch "
            f"multiplier {network.multiplier:.4g} with {optimizer.name}, learning rate "
            f"{optimizer.lr:.4g} and seed {self.cells[0].seed}"
        )


@dataclass(frozen=True, kw_only=True)
class TrainTrials(Job):
    """Train a trial of a custom model alone, or several of one shape as one ``stacked`` network.

    ``cost`` is the work of a step per ``Trial.step_work``. If the job is ``live``, it tells the
    losses of every step. ``folders`` is where a command's runs have their folders.
    """

    trials: tuple[Trial, ...]
    model: Model
    device: str = "cpu"
    threads: int = 1
    stacked: bool = False
    cuda_graphs: bool = True
    cost: float = 1.0
    live: bool = False
    folders: "RunFolders | None" = None

    @property
    def computes(self) -> bool:
        return self.model.command is None

    @property
    def work(self) -> float:
        return self.cost * sum(t.step_work * t.steps for t in self.trials)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(trial.key for trial in self.trials)

    @property
    def output(self) -> str:
        from depthmup.training.command import command_and_last_lines

        if self.folders is None:
            return ""
        return command_and_last_lines(self.folders.log(self.trials[0]))

    def only(self, keys: Collection[str]) -> "TrainTrials":
        return replace(self, trials=tuple(trial for trial in self.trials if trial.key in keys))

    def __call__(self, tell: Tell) -> Iterator[Record[Trial]]:
        def tell_loss(trial: Trial, step: int, loss: float) -> None:
            if self.live:
                tell(step / trial.steps, ((trial, step, loss),))

        place = place_of(self.device)
        records: Iterator[Record[Trial]]
        if (command := resolved(self.model).command) is not None:
            from depthmup.training.command import run_command

            records = (
                run_command(trial, command, self.folders, threads=self.threads)
                for trial in self.trials
            )
        elif self.stacked:
            from depthmup.training.cuda_graphs import cuda_graph
            from depthmup.training.trial import run_together

            recorded = self.cuda_graphs and self.device.startswith("cuda")
            records = run_together(
                self.trials,
                self.model,
                device=self.device,
                record=cuda_graph if recorded else None,
                on_progress=tell,
                on_loss=tell_loss,
            )
        else:
            from depthmup.training.trial import run_trial

            records = (
                run_trial(
                    trial,
                    self.model,
                    device=self.device,
                    threads=self.threads,
                    on_progress=tell,
                    on_loss=partial(tell_loss, trial),
                )
                for trial in self.trials
            )
        for record in records:
            yield replace(record, place=place)

    def __str__(self) -> str:
        trial = self.trials[0]
        what = f"training {trial.model} at {size_text(trial.size)} with {trial.scheme}"
        if self.stacked:
            return f"{what} and {trial.optimizer}, {len(self.trials)} learning rates and seeds"
        return f"{what}, learning rate {trial.lr:.4g} and seed {trial.seed}"


def training(
    cells: Iterable[Cell], *, members: int = MEMBERS, placement: Placement | None = None
) -> list[Train]:
    """Jobs that train cells, the longest first; cells of one shape are stacked."""
    placement = placement or Placement()
    by_shape: dict[Cell, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_shape[cell.shape].append(cell)
    jobs = []
    for alike in by_shape.values():
        # Neighbouring learning rates share a job, as they tend to diverge together.
        alike.sort(key=lambda cell: (cell.optimizer.lr, cell.optimizer.weight_decay, cell.seed))
        jobs += [
            Train(cells=tuple(alike[start : start + members]), placement=placement)
            for start in range(0, len(alike), members)
        ]
    return sorted(jobs, key=lambda job: -job.work)


def together(
    trials: Iterable[Trial],
    model: Model,
    *,
    device: str = "cpu",
    cuda_graphs: bool = True,
    members: int = MEMBERS,
    cost: float = 1.0,
) -> list[TrainTrials]:
    """Jobs of stacked trials, in the order of their first trials."""
    alike: dict[Trial, list[Trial]] = defaultdict(list)
    for trial in trials:
        alike[replace(trial, lr=0.0, seed=0)].append(trial)
    return [
        TrainTrials(
            trials=tuple(group[start : start + members]),
            model=model,
            device=device,
            stacked=True,
            cuda_graphs=cuda_graphs,
            cost=cost,
        )
        for group in alike.values()
        for start in range(0, len(group), members)
    ]
