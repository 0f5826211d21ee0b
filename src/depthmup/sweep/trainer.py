"""The trainer of a sweep: checks, jobs and a forecast of time for the runs of its model.

Nothing but a run shows whether those of a command work, so one comes before the others, and none of
a few steps can probe a size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from depthmup.model import Model, resolved
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
class Trainer:
    """Trains the cells of built-in networks, or trials of a custom ``model``.

    Where a sweep goes round by round, ``workers`` share the few runs of a round: stacks are then
    only as large as keeps all of them busy.
    """

    model: Model | None = None
    backend: Backend = field(default_factory=Backend)
    workers: int = 1
    rounds: bool = False
    time_limit: float | None = None
    folders: RunFolders | None = None

    @property
    def of_command(self) -> bool:
        return self.model is not None and self.model.command is not None

    @property
    def stacked(self) -> bool:
        return self.backend.engine == "stacked"

    @property
    def sharing(self) -> int:
        """Workers that share a device: each of the GPUs has its part of them."""
        gpus = len(visible_gpus()) if self.backend.device == "cuda" else 1
        return -(-self.workers // max(1, gpus))

    def check(self, runs: Sequence[Any]) -> None:
        """Refuse runs that do not fit into memory, and functions that do not work on a batch."""
        model, device = self.model, self.backend.device
        command = None if model is None else resolved(model).command
        if command is not None and not self.stacked:
            check_command(command, runs)
            return
        # Memory first: trying the functions draws the largest batch.
        stacks = [job.runs for job in self.jobs(runs)]
        if device != "cpu":  # a stack that does not fit is halved
            stacks = [stack[:1] for stack in stacks]
        if model is None:
            stacked = engine_for(runs[0], self.backend).name == "stacked"
            check_memory(stacks, workers=self.sharing, stacked=stacked, device=device)
            return
        from depthmup.training.preflight import preflight

        check_memory_of_models(model, stacks, workers=self.sharing, device=device)
        preflight(model, runs, seconds=self.time_limit, stacked=self.stacked, device=device)

    def jobs(self, runs: Sequence[Any]) -> list[Train]:
        """Stacks of cells, the longest first; stacks of trials in their order, or single ones."""
        if self.model is None:
            return training(runs, members=self._members(runs), backend=self.backend)
        if self.stacked:
            members = self._members(runs)
            return together(runs, self.model, members=members, backend=self.backend)
        one = Train(runs=(), model=self.model, backend=self.backend, folders=self.folders)
        return sorted((replace(one, runs=(run,)) for run in runs), key=lambda job: -job.work)

    def _members(self, runs: Sequence[Any]) -> int:
        """The runs of a stack."""
        device, of_one, most = self.backend.device, None, MOST
        if device != "cpu" and runs:
            if self.model is None:
                largest = max(runs, key=lambda cell: memory([cell]))
                width, batch = largest.network.width, largest.batch_size
                of_one = memory([largest], device=device)
                most = ENTRIES // (width * max(width, batch))
            else:
                from depthmup.training.forecast import bytes_of_trial

                of_one = bytes_of_trial(self.model, max(runs, key=lambda run: run.step_work))
        members = stack_size(of_one, device=device, sharing=self.sharing, most=most)
        if self.rounds:  # on a GPU, half as many networks take as long
            share = self.workers if device != "cpu" else 2 * self.workers
            members = min(members, max(1, -(-len(runs) // share)))
        return members

    def seconds(self, runs: Sequence[Any]) -> float:
        """A forecast for one idle core if no run diverges, NaN where it is unknown."""
        if self.backend.device != "cpu" or self.of_command or not runs:
            return float("nan")
        if self.model is None:
            return core_seconds(runs, engine=engine_for(runs[0], self.backend).name)
        from depthmup.training.forecast import seconds_of_stacks

        return seconds_of_stacks(self.model, [job.runs for job in self.jobs(runs)])
