"""Where a sweep runs, and within which limits."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from depthmup.records import worker_count

if TYPE_CHECKING:
    from depthmup.sweep import Executor

Engine = Literal["auto", "native", "stacked", "reference"]


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where a sweep runs, and within which limits.

    Example:
        >>> Execution(workers=2).choose()
        Processes(workers=2, trial_seconds=None)
    """

    executor: Literal["auto", "in-process", "processes", "ray"] = "auto"
    """processes: of this machine; ray: a cluster; auto: processes, or in-process where one worker
    or a GPU does the work."""

    workers: int = 0
    """Worker processes; 0: one per core."""

    threads: int = 1
    """CPU threads per worker process."""

    device: str = "cpu"
    """Where to train: cpu, cuda or cuda:N."""

    engine: Engine = "auto"
    """What trains: for built-in networks the compiled kernel (native), one stacked PyTorch network
    (stacked) or the plain loop (reference); custom models have the plain loop, and stacked where
    they have no buffers, dropout or clipping and train with AdamW or Muon."""

    cuda_graphs: bool = False
    """On cuda, for built-in networks: record a training step once and replay it."""

    shard: str = ""
    """i/k: do the i-th of k even shares into a store of its own, which `depthmup merge` joins."""

    trial_seconds: float = 0.0
    """Stop and report a training run that takes longer than this; 0: no limit."""

    address: str = "auto"
    """ray: the cluster's head, host:port; auto: the cluster that this machine is part of."""

    gpus_per_trial: float = 0.0
    """ray: GPUs for each job, such as 1 or 0.25; 0: train on the CPU."""

    @property
    def place(self) -> str:
        """The device to train on: who asks for GPUs means to use them."""
        return "cuda" if self.gpus_per_trial and self.device == "cpu" else self.device

    @property
    def seconds(self) -> float | None:
        """The time limit of a run; none where there is no limit."""
        _check(self)
        return self.trial_seconds or None

    def choose(self) -> "Executor":
        """The executor.

        Raises:
            ValueError: options that do not go together.
        """
        from depthmup.sweep import InProcess, Processes, Ray  # which the command line need not load

        _check(self)
        count, on_cuda = worker_count(self.workers), self.place.startswith("cuda")
        if self.executor == "ray":
            return Ray(
                address=self.address,
                gpus_per_trial=self.gpus_per_trial,
                trial_seconds=self.seconds,
            )
        # One GPU serves one process at a time best; and one process needs no other.
        alone = self.executor == "auto" and (on_cuda or count == 1)
        if self.executor == "in-process" or (alone and self.seconds is None):
            return InProcess()
        return Processes(workers=1 if alone else count, trial_seconds=self.seconds)


def _check(execution: Execution) -> None:
    if execution.threads < 1:
        raise ValueError(f"Expected threads to be at least 1; got {execution.threads}.")
    if not 0 <= execution.trial_seconds < math.inf:
        raise ValueError(
            f"Expected trial-seconds to be positive, or 0 for no limit; got "
            f"{execution.trial_seconds}."
        )
    if not 0 <= execution.gpus_per_trial < math.inf:
        raise ValueError(
            f"Expected gpus-per-trial to be 0 or more; got {execution.gpus_per_trial}."
        )
    if execution.executor == "in-process" and execution.trial_seconds:
        raise ValueError(
            "A run in this process cannot be stopped: use --executor processes with "
            "--trial-seconds."
        )
    for name, usual in (("address", "auto"), ("gpus_per_trial", 0.0)):
        if execution.executor != "ray" and getattr(execution, name) != usual:
            raise ValueError(
                f"--{name.replace('_', '-')} is for --executor ray; the executor is "
                f"{execution.executor}."
            )
