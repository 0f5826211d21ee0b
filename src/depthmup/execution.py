"""Where a sweep runs, and within which limits."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from depthmup.records import worker_count

if TYPE_CHECKING:
    from depthmup.sweep import Executor

MOST_THREADS = 1024
"""Of one process; at a hundred thousand torch ends by a segmentation fault."""

Engine = Literal["auto", "native", "stacked", "reference"]


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where a sweep runs, on how many workers, and within which limits.

    Raises:
        ValueError: (from ``choose``) options that contradict each other.

    Example:
        >>> Execution(workers=2).choose()
        Processes(workers=2, trial_seconds=None)
    """

    executor: Literal["auto", "in-process", "processes", "ray"] = "auto"
    """processes (on this machine), in-process, or ray (a cluster); auto is processes, or in-process
    for one worker or a GPU."""

    workers: int = 0
    """Number of worker processes; 0 means one per core."""

    threads: int = 1
    """CPU threads per worker process."""

    device: str = "cpu"
    """Device to train on: cpu, cuda or cuda:N."""

    engine: Engine = "auto"
    """Training engine. Built-in networks: the compiled kernel (native), many networks stacked into
    one in PyTorch (stacked), or the plain training loop (reference). Custom models: the plain loop,
    or stacked if they have no dropout and train with AdamW or Muon."""

    cuda_graphs: bool = False
    """On cuda, for built-in networks: record a training step as a CUDA graph and replay it."""

    shard: str = ""
    """i/k: train only the i-th of k equal shares, into a store of its own; `depthmup merge` joins
    the stores."""

    trial_seconds: float = 0.0
    """Stop a training run after this many seconds and report it; 0 means no limit."""

    address: str = "auto"
    """With ray: host:port of the cluster's head; auto is the cluster that includes this machine."""

    gpus_per_trial: float = 0.0
    """With ray: GPUs per job, such as 1 or 0.25; 0 means train on the CPU."""

    @property
    def place(self) -> str:
        """The device to train on: CUDA too if GPUs are requested and no device is named."""
        return "cuda" if self.gpus_per_trial and self.device == "cpu" else self.device

    @property
    def seconds(self) -> float | None:
        """The time limit of a run, or None."""
        _check(self)
        return self.trial_seconds or None

    def choose(self) -> "Executor":
        """The executor.

        Returns:
            Whatever does the jobs; in this process, in others, or on a cluster.

        Raises:
            ValueError: options that contradict each other.
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
        # Processes that share a GPU take turns on it; and a single worker can be this process,
        # unless it may have to be stopped at a time limit.
        alone = self.executor == "auto" and (on_cuda or count == 1)
        if self.executor == "in-process" or (alone and self.seconds is None):
            return InProcess()
        return Processes(workers=1 if alone else count, trial_seconds=self.seconds)


def _check(execution: Execution) -> None:
    if not 1 <= execution.threads <= MOST_THREADS:
        raise ValueError(
            f"Expected threads to be from 1 to {MOST_THREADS:,}; got {execution.threads}."
        )
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
