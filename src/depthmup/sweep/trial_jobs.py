"""Jobs that train trials of a custom model, one by one or as stacks."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from depthmup.records import Record, Trial
from depthmup.records.certificate import size_text
from depthmup.sweep.jobs import StepLoss, Tell

if TYPE_CHECKING:
    from depthmup.model import Model
    from depthmup.training.command import RunFolders


@dataclass(frozen=True, kw_only=True)
class TrainTrial:
    """The job of training a single trial, so that an error in one does not affect others.

    If it is ``live``, the loss of every step is told at that step. ``folders`` is where a command's
    runs have their folders.
    """

    trial: Trial
    model: "Model"
    device: str = "cpu"
    threads: int = 1
    live: bool = False
    folders: "RunFolders | None" = None

    @property
    def work(self) -> float:
        return self.trial.step_work * self.trial.steps

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return (self.trial.key,)

    @property
    def output(self) -> str:
        from depthmup.training.command import command_and_last_lines

        if self.folders is None:
            return ""
        return command_and_last_lines(self.folders.log(self.trial))

    def only(self, keys: Collection[str]) -> "TrainTrial":
        return self

    def __call__(self, tell: Tell) -> Iterator[Record[Trial]]:
        from depthmup.training.trial import run_trial

        def tell_loss(step: int, loss: float) -> None:
            if self.live:
                tell(step / self.trial.steps, (StepLoss(run=self.trial, step=step, loss=loss),))

        yield run_trial(
            self.trial,
            self.model,
            device=self.device,
            threads=self.threads,
            folders=self.folders,
            on_progress=tell,
            on_loss=tell_loss,
        )

    def __str__(self) -> str:
        trial = self.trial
        return (
            f"training {trial.model} at {size_text(trial.size)} with "
            f"{trial.scheme}, learning rate {trial.lr:.4g} and seed {trial.seed}"
        )


def trial_jobs(
    trials: Iterable[Trial],
    model: "Model",
    *,
    device: str = "cpu",
    threads: int = 1,
    folders: "RunFolders | None" = None,
) -> list[TrainTrial]:
    """A job for each trial, the longest first."""
    jobs = [
        TrainTrial(trial=trial, model=model, device=device, threads=threads, folders=folders)
        for trial in trials
    ]
    return sorted(jobs, key=lambda job: -job.work)


@dataclass(frozen=True, kw_only=True)
class TrainTogether:
    """The job of training trials that differ in learning rate and seed alone, as one stack.

    ``cost`` is the work of a step per ``Trial.step_work``, in the unit of all jobs. If the job is
    ``live``, the losses of every step are told at that step.
    """

    trials: tuple[Trial, ...]
    model: "Model"
    device: str = "cpu"
    cost: float = 1.0
    live: bool = False

    @property
    def work(self) -> float:
        return self.cost * sum(t.step_work * t.steps for t in self.trials)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(trial.key for trial in self.trials)

    @property
    def output(self) -> str:
        return ""

    def only(self, keys: Collection[str]) -> "TrainTogether":
        return replace(self, trials=tuple(trial for trial in self.trials if trial.key in keys))

    def __call__(self, tell: Tell) -> Iterator[Record[Trial]]:
        from depthmup.training.stacked_trials import run_together

        def tell_loss(trial: Trial, step: int, loss: float) -> None:
            if self.live:
                tell(step / trial.steps, (StepLoss(run=trial, step=step, loss=loss),))

        yield from run_together(
            self.trials, self.model, device=self.device, on_progress=tell, on_loss=tell_loss
        )

    def __str__(self) -> str:
        trial = self.trials[0]
        return (
            f"training {trial.model} at {size_text(trial.size)} with "
            f"{trial.scheme} and {trial.optimizer}, {len(self.trials)} learning rates and seeds"
        )


def together(
    trials: Iterable[Trial],
    model: "Model",
    *,
    device: str = "cpu",
    members: int = 12,
    cost: float = 1.0,
) -> list[TrainTogether]:
    """Jobs of trials that can be stacked, in the order of their first trials."""
    alike: dict[Trial, list[Trial]] = defaultdict(list)
    for trial in trials:
        alike[replace(trial, lr=0.0, seed=0)].append(trial)
    return [
        TrainTogether(
            trials=tuple(group[start : start + members]), model=model, device=device, cost=cost
        )
        for group in alike.values()
        for start in range(0, len(group), members)
    ]
