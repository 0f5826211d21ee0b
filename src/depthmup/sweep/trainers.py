"""Trainers: the checks, the jobs and the forecast of time for the runs of a model.

Nothing but a run shows whether those of a command work, so one comes before the others, and none of
a few steps can probe a size. ``seconds`` is a forecast for one idle core if no run diverges, NaN
where it is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from depthmup.model import Model, resolved
from depthmup.records import Cell, Trial
from depthmup.sweep.cost import (
    ENTRIES,
    MOST,
    check_memory,
    check_memory_of_models,
    core_seconds,
    memory,
    stack_size,
)
from depthmup.sweep.executors.gpus import visible_gpus
from depthmup.sweep.jobs import Train, together, training
from depthmup.training import Backend, engine_for
from depthmup.training.command import RunFolders, check_command


@dataclass(frozen=True, kw_only=True)
class BuiltInTrainer:
    """Trains cells with the engine for them.

    Where a sweep goes round by round, ``workers`` share the few runs of a round: stacks are then
    only as large as keeps all of them busy.
    """

    backend: Backend
    workers: int = 1
    rounds: bool = False

    of_command = False

    def check(self, runs: Sequence[Cell]) -> None:
        """Refuse cells that do not fit into memory."""
        groups, device = [job.runs for job in self.jobs(runs)], self.backend.device
        if self.backend.on_cuda:  # a stack that does not fit is halved
            groups = [cells[:1] for cells in groups]
        check_memory(
            groups,
            workers=_sharing(self.workers, device),
            stacked=engine_for(runs[0], self.backend).name == "stacked",
            device=device,
        )

    def jobs(self, runs: Sequence[Cell]) -> list[Train]:
        if not runs:
            return []
        largest, device = max(runs, key=lambda cell: memory([cell])), self.backend.device
        width, batch = largest.network.width, largest.batch_size
        members = stack_size(
            memory([largest], device=device),
            device=device,
            sharing=_sharing(self.workers, device),
            most=ENTRIES // (width * max(width, batch)),
        )
        if self.rounds:  # on a GPU, half as many networks take as long
            share = self.workers if self.backend.on_cuda else 2 * self.workers
            members = min(members, max(1, -(-len(runs) // share)))
        return training(runs, members=members, backend=self.backend)

    def seconds(self, runs: Sequence[Cell]) -> float:
        if self.backend.device != "cpu":
            return float("nan")
        return core_seconds(runs, engine=engine_for(runs[0], self.backend).name)


@dataclass(frozen=True, kw_only=True)
class CustomTrainer:
    """Trains trials of a custom model, one by one or stacked."""

    model: Model
    backend: Backend = field(default_factory=Backend)
    time_limit: float | None = None
    folders: RunFolders | None = None
    workers: int = 1

    @property
    def of_command(self) -> bool:
        return self.model.command is not None

    @property
    def stacked(self) -> bool:
        return self.backend.engine == "stacked"

    def check(self, runs: Sequence[Trial]) -> None:
        """Refuse models that do not fit into memory, and functions that do not work on a batch."""
        if (command := resolved(self.model).command) is not None and not self.stacked:
            check_command(command, runs)
            return
        from depthmup.training.preflight import preflight

        # Memory first: trying the functions draws the largest batch.
        device, stacks = self.backend.device, [job.runs for job in self.jobs(runs)]
        if device != "cpu":  # a stack that does not fit is halved
            stacks = [trials[:1] for trials in stacks]
        sharing = _sharing(self.workers, device)
        check_memory_of_models(self.model, stacks, workers=sharing, device=device)
        preflight(self.model, runs, seconds=self.time_limit, stacked=self.stacked, device=device)

    def jobs(self, runs: Sequence[Trial]) -> list[Train]:
        """Stacks in the order of their first runs, or single runs, the longest first."""
        if self.stacked:
            members = self._members(runs)
            return together(runs, self.model, backend=self.backend, members=members)
        one = Train(runs=(), model=self.model, backend=self.backend, folders=self.folders)
        return sorted((replace(one, runs=(run,)) for run in runs), key=lambda job: -job.work)

    def _members(self, runs: Sequence[Trial]) -> int:
        from depthmup.training.forecast import bytes_of_trial

        of_one, device = None, self.backend.device
        if device != "cpu" and runs:
            of_one = bytes_of_trial(self.model, max(runs, key=lambda run: run.step_work))
        sharing = _sharing(self.workers, device)
        return stack_size(of_one, device=device, sharing=sharing, most=MOST)

    def seconds(self, runs: Sequence[Trial]) -> float:
        if self.backend.device != "cpu" or self.of_command or not runs:
            return float("nan")
        from depthmup.training.forecast import seconds_of_stacks

        return seconds_of_stacks(self.model, [job.runs for job in self.jobs(runs)])


def _sharing(workers: int, device: str) -> int:
    """Workers that share the device: each of the GPUs has its part of them."""
    return -(-workers // max(1, len(visible_gpus()))) if device == "cuda" else workers


Trainer: TypeAlias = BuiltInTrainer | CustomTrainer
