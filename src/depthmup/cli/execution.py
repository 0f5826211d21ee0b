"""Where a sweep runs: the options, and the executor that they choose."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from depthmup.sweep import Executor


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where a sweep runs, and within which limits."""

    executor: Literal["auto", "in-process", "processes", "ray"] = "auto"
    """processes: of this machine; ray: a cluster; auto: processes, or in-process on cuda."""

    address: str = "auto"
    """ray: the cluster's head, host:port; auto: the cluster that this machine is part of."""

    gpus_per_trial: float = 0.0
    """ray: GPUs for each job, such as 1 or 0.25; 0: train on the CPU."""

    trial_seconds: float = 0.0
    """Stop and report a training run that takes longer than this; 0: no limit."""

    def device(self, asked: str) -> str:
        """The device to train on: who asks for GPUs means to use them."""
        return "cuda" if self.gpus_per_trial and asked == "cpu" else asked

    def choose(self, *, workers: int, device: str) -> "Executor":
        """The executor, with so many workers or one per core (0).

        Raises:
            ValueError: options do not go together.
        """
        from depthmup.records import worker_count
        from depthmup.sweep import InProcess, Processes, Ray

        self._check()
        count = worker_count(workers)
        seconds = self.trial_seconds or None
        on_cuda = device.startswith("cuda")
        if self.executor == "ray":
            return Ray(
                address=self.address, gpus_per_trial=self.gpus_per_trial, trial_seconds=seconds
            )
        if self.executor == "in-process" or (
            self.executor == "auto" and on_cuda and seconds is None
        ):
            return InProcess()
        # One GPU serves one process at a time best.
        one = on_cuda and self.executor == "auto"
        return Processes(workers=1 if one else count, trial_seconds=seconds)

    def _check(self) -> None:
        if not 0 <= self.trial_seconds < math.inf:
            raise ValueError(
                f"Expected trial-seconds to be positive, or 0 for no limit; got "
                f"{self.trial_seconds}."
            )
        if not 0 <= self.gpus_per_trial < math.inf:
            raise ValueError(f"Expected gpus-per-trial to be 0 or more; got {self.gpus_per_trial}.")
        if self.executor == "in-process" and self.trial_seconds:
            raise ValueError(
                "A run in this process cannot be stopped: use --executor processes with "
                "--trial-seconds."
            )
        for name, usual in (("address", "auto"), ("gpus_per_trial", 0.0)):
            if self.executor != "ray" and getattr(self, name) != usual:
                raise ValueError(
                    f"--{name.replace('_', '-')} is for --executor ray; the executor is "
                    f"{self.executor}."
                )
