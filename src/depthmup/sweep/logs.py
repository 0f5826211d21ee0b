"""Logs: every run of a sweep, as it ends, in the tracker that a person has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from depthmup.records import Record
from depthmup.sweep.executors import Executor, Listener
from depthmup.sweep.jobs import Job, Result
from depthmup.sweep.trackers import Log, MLflow, TensorBoard, WandB

__all__ = ["Log", "Logged", "MLflow", "TensorBoard", "WandB", "log_named"]


@dataclass(frozen=True, kw_only=True)
class Logged:
    """An executor whose results are also written to a log, after the sweep has stored them."""

    executor: Executor
    log: Log

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        self.executor(jobs, _Both(listener=listener, log=self.log))


@dataclass(frozen=True, kw_only=True)
class _Both:
    listener: Listener
    log: Log

    def on_result(self, result: Result) -> None:
        self.listener.on_result(result)
        if isinstance(result, Record):
            self.log.write(result)

    def __getattr__(self, name: str) -> Any:  # all other calls go to the listener
        return getattr(self.listener, name)


_LOGS: dict[str, Callable[[str], Log]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def log_named(name: str) -> Log:
    """The log that ``tensorboard:FOLDER``, ``wandb:PROJECT`` or ``mlflow:STORE`` names.

    Args:
        name: a store of MLflow is a folder, or a URI such as ``sqlite:///runs.db``.

    Returns:
        The log, which can be written to.

    Raises:
        ValueError: the text is not of this form, the tracker is not installed, or its folder cannot
            be written.

    Example:
        >>> log_named("tensorboard:/tmp/logs").folder.name  # doctest: +SKIP
        'logs'
    """
    kind, _, address = name.partition(":")
    if kind not in _LOGS or not address:
        raise ValueError(
            f"Expected a log as tensorboard:FOLDER, wandb:PROJECT or mlflow:STORE; got {name!r}."
        )
    return _LOGS[kind](address)
