"""Logs: every run of a sweep in the tracker that a person has, as it trains or as it ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from depthmup.records import Record, Trial
from depthmup.sweep.executors import Executor, Listener
from depthmup.sweep.jobs import Job, Result, StepLoss
from depthmup.sweep.trackers import LiveLog, Log, MLflow, TensorBoard, WandB
from depthmup.sweep.trial_jobs import TrainTogether, TrainTrial

__all__ = ["LiveLog", "Log", "Logged", "MLflow", "TensorBoard", "WandB", "log_named"]


@dataclass(frozen=True, kw_only=True)
class Logged:
    """An executor whose results are also written to a log, after the sweep has stored them.

    A log with a method ``step`` receives the losses of custom models while they train, too.
    """

    executor: Executor
    log: Log

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        step, close = (getattr(self.log, name, None) for name in ("step", "close"))
        if step is not None:
            jobs = [
                replace(job, live=True) if isinstance(job, TrainTrial | TrainTogether) else job
                for job in jobs
            ]
        try:
            self.executor(jobs, _Both(listener=listener, log=self.log, step=step))
        finally:
            if close is not None:
                close()


@dataclass(frozen=True, kw_only=True)
class _Both:
    listener: Listener
    log: Log
    step: Callable[[Trial, int, float], None] | None

    def on_result(self, result: Result) -> None:
        self.listener.on_result(result)
        if isinstance(result, Record):
            self.log.write(result)

    def on_losses(self, losses: Sequence[StepLoss]) -> None:
        if self.step is not None:
            for one in losses:
                self.step(one.run, one.step, one.loss)

    def __getattr__(self, name: str) -> Any:  # all other calls go to the listener
        return getattr(self.listener, name)


_LOGS: dict[str, Callable[[str], Log]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def log_named(name: str) -> Log:
    """The log that ``tensorboard:FOLDER``, ``wandb:PROJECT`` or ``mlflow:STORE`` names.

    A store of MLflow is a folder, or a URI such as ``sqlite:///runs.db``.
    """
    kind, _, address = name.partition(":")
    if kind not in _LOGS or not address:
        raise ValueError(
            f"Expected a log as tensorboard:FOLDER, wandb:PROJECT or mlflow:STORE; got {name!r}."
        )
    return _LOGS[kind](address)
