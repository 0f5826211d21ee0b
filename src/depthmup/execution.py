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
    for one worker."""

    workers: int = 0
    """Number of worker processes; 0 means one per core, or one per GPU with --device cuda."""

    threads: int = 1
    """CPU threads per worker process."""

    device: str = "auto"
    """Device to train on: cpu, cuda (every visible GPU) or cuda:N; auto is the GPU if the model's
    function puts its parameters there, and the CPU otherwise."""

    engine: Engine = "auto"
    """Training engine. Built-in networks: the compiled kernel (native), many networks stacked into
    one in PyTorch (stacked), or the plain training loop (reference). Custom models: the plain loop,
    or stacked if they have no dropout and train with SGD, Adam, AdamW or Muon."""

    cuda_graphs: bool = True
    """On cuda, for stacks: record a training step as a CUDA graph and replay it, where that gives
    the same numbers."""

    shard: str = ""
    """i/k: train only the i-th of k equal shares, into a separate store; `depthmup merge` joins
    the stores."""

    trial_seconds: float = 0.0
    """Stop a training run after this many seconds and report it; 0 means no limit. Loading your
    code has this limit too, and a minute at least."""

    address: str = "auto"
    """With ray: host:port of the cluster's head; auto is the cluster that includes this machine."""

    gpus_per_trial: float = 0.0
    """With ray: GPUs per job, such as 1 or 0.25; 0 means train on the CPU."""

    @property
    def place(self) -> str:
        """The device to train on; auto is CUDA if GPUs are requested, and the CPU otherwise."""
        if self.device == "auto":
            return "cuda" if self.gpus_per_trial else "cpu"
        return self.device

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
        from depthmup.sweep.executors.gpus import visible_gpus

        _check(self)
        if self.executor == "ray":
            return Ray(
                address=self.address, gpus_per_trial=self.gpus_per_trial, trial_seconds=self.seconds
            )
        on_cuda, count = self.place.startswith("cuda"), worker_count(self.workers)
        gpus = visible_gpus() if self.place == "cuda" else ()
        if on_cuda and not self.workers:
            count = max(1, len(gpus))
        # A single worker can be this process, unless it may have to be stopped at a time limit, or
        # replaced: a CUDA error may leave a process without its GPU for good.
        alone = self.executor == "auto" and count == 1 and (self.workers == 1 or not on_cuda)
        if self.executor == "in-process" or (alone and self.seconds is None):
            return InProcess()
        return Processes(workers=count, trial_seconds=self.seconds, gpus=gpus)


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
    if execution.executor == "ray":
        _check_on_ray(execution)
    for name, usual in (("address", "auto"), ("gpus_per_trial", 0.0)):
        if execution.executor != "ray" and getattr(execution, name) != usual:
            raise ValueError(
                f"--{name.replace('_', '-')} is for --executor ray; the executor is "
                f"{execution.executor}."
            )


def _check_on_ray(execution: Execution) -> None:
    """Ray numbers the GPUs of a job by itself, and gives it none that was not asked for."""
    device, gpus = execution.device, execution.gpus_per_trial
    if device.startswith("cuda:"):
        raise ValueError(
            f"Expected --device cuda with --executor ray, which chooses the GPUs of a job; got "
            f"{device!r}."
        )
    if device == "cuda" and not gpus:
        raise ValueError(
            "Expected --gpus-per-trial with --executor ray and --device cuda; got 0 GPUs per job. "
            "Add --gpus-per-trial 1."
        )
    if device == "cpu" and gpus:
        raise ValueError(
            f"Expected --gpus-per-trial 0 with --device cpu; got {gpus:g}. Leave out --device."
        )
