"""The runner of a sweep: the executor that does its jobs, and the trainer that makes them."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from depthmup.execution import Execution
from depthmup.model import Model, by_reference, resolved
from depthmup.sweep import BuiltIn, Executor, InProcess, Processes, Ray, Sweep, outline
from depthmup.sweep.executors.gpus import visible_gpus
from depthmup.sweep.trainer import Trainer
from depthmup.training import engine_for
from depthmup.training.backend import Backend, check_backend, check_device, device_facts
from depthmup.training.command import RunFolders

RUNS = "runs"
"""The folder, in that of a measurement, of the runs of a command."""


@dataclass(frozen=True, kw_only=True)
class Runner:
    """An executor and the trainer whose jobs it does."""

    executor: Executor
    trainer: Trainer
    environment: Mapping[str, object]
    shard: str

    def check(self, runs: Sequence[Any]) -> None:
        """Refuse runs that cannot be trained: on the cluster, where the GPUs are its nodes'."""
        check = partial(self.trainer.check, runs)
        if isinstance(self.executor, Ray) and self.executor.gpus_per_trial:
            self.executor.elsewhere(check)
        else:
            check()


def runner_of(
    model: Model | BuiltIn, sweep: Sweep, on: Execution | Executor | int, *, out: Path | None = None
) -> Runner:
    """The executor that was asked for, and the trainer for a sweep's runs there.

    ``out`` is the folder of the measurement, in which the runs of a command have theirs.
    """
    execution = on if isinstance(on, Execution) else Execution()
    if isinstance(on, int):
        execution = Execution(workers=on)
    execution = replace(execution, device=_device(execution, model, sweep, on))
    chosen = execution.choose() if isinstance(on, Execution | int) else on
    device = execution.place
    if isinstance(chosen, Processes) and device == "cuda" and not chosen.gpus:
        chosen = replace(chosen, gpus=visible_gpus())
    elsewhere = isinstance(chosen, Ray)  # whose nodes have devices of their own
    where: dict[str, object] = {}
    backend = Backend(
        device=device,
        engine=execution.engine,
        cuda_graphs=execution.cuda_graphs,
        threads=execution.threads,
    )
    if isinstance(model, BuiltIn):
        check_backend(backend)
    if not elsewhere:
        check_device(device)
    custom: Model | None = None
    if isinstance(model, BuiltIn):
        cell, *_ = outline(sweep) if sweep.design.auto else sweep.runs
        where["engine"] = "each node's own" if elsewhere else str(engine_for(cell, backend))
    else:
        if execution.engine == "native":
            raise ValueError(
                "Expected the engine of a custom model to be auto, reference or stacked; got "
                "'native', which trains only the built-in networks."
            )
        chosen, custom, where["executor"] = _sendable(chosen, model)
        where["device"] = device
    trainer = Trainer(
        model=custom,
        backend=backend,
        workers=chosen.workers if isinstance(chosen, Processes) else 1,
        rounds=custom is None and sweep.design.auto is not None,
        time_limit=getattr(chosen, "trial_seconds", None),
        folders=_folders(custom, out),
    )
    if device.startswith("cuda"):
        where |= {"device": device} if elsewhere else device_facts(device)
    if isinstance(chosen, InProcess) and device == "cuda" and len(visible_gpus()) > 1:
        warnings.warn(
            f"{len(visible_gpus())} GPUs are here, and one is used: this process trains. Worker "
            "processes use all: --workers 0.",
            stacklevel=3,
        )
    return Runner(executor=chosen, trainer=trainer, environment=where, shard=execution.shard)


def _folders(model: Model | None, out: Path | None) -> RunFolders | None:
    if model is None or model.command is None or out is None:
        return None
    return RunFolders(folder=str((out / RUNS).resolve()), start=str(Path.cwd()))


def _device(
    execution: Execution, model: Model | BuiltIn, sweep: Sweep, on: Execution | Executor | int
) -> str:
    """The device that was asked for; by default the model's own, if its function puts it on one."""
    elsewhere = execution.executor == "ray" or isinstance(on, Ray)
    if execution.device != "auto" or elsewhere or not visible_gpus():
        return execution.device
    advice = "the sweep trains on the CPU. Use --device cuda to train on it."
    if isinstance(model, Model) and resolved(model).whole:
        advice = "your code decides whether it uses it. Use --device cuda for a worker per GPU."
    elif isinstance(model, Model):
        from depthmup.training.preflight import device_of  # which loads PyTorch

        if (device := device_of(model, sweep.design.base)) != "cpu":
            return device
    warnings.warn(f"A GPU is here, and {advice}", stacklevel=4)
    return "cpu"


def _sendable(executor: Executor, model: Model) -> tuple[Executor, Model, str]:
    """The executor, the model in the form that it can send, and the executor in words."""
    if isinstance(executor, InProcess):
        return executor, model, "in process"
    try:
        sent = by_reference(model)
    except ValueError as problem:
        if not isinstance(executor, Processes) or executor.trial_seconds:
            raise ValueError(f"{problem}. Put it in a file and import it from there.") from None
        warnings.warn(
            f"{problem}: everything runs in this process. Put it in a file and import it from "
            "there to use worker processes.",
            stacklevel=4,
        )
        return InProcess(), model, f"in process: {problem}"
    if isinstance(executor, Processes):
        return executor, sent, f"{executor.workers} processes"
    return executor, sent, type(executor).__name__
