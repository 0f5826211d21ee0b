"""Logs: every run of a sweep in TensorBoard, Weights & Biases or MLflow, as it trains or ends."""

import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from depthmup.records import Record, Status, Trial
from depthmup.records.packages import without

SECONDS_BETWEEN_WRITES = 1.0
"""While a run trains: often enough to watch it, seldom enough for a server and for the training."""

_METRICS_PER_CALL = 1000  # the most that MLflow takes at once


class Log(Protocol):
    """Receives each run of this session once, after it has ended and was stored.

    A log may have two methods more. ``step(run, step, loss)`` gets the loss of a step before its
    update while a custom model trains, in this process or in others beside it; where a worker died,
    steps come a second time. Built-in networks, a model's own ``train`` and runs on Ray come as
    whole runs. ``close()`` is called when no run trains any more: those that were not written have
    failed, or were stopped.
    """

    def write(self, record: Record[Any]) -> None: ...


class _OpenRun:
    """A run in a tracker: how many of its losses are there, and those that wait to be written."""

    def __init__(self, handle: Any) -> None:
        self.handle, self.written, self.wrote = handle, 0, time.monotonic()
        self.waiting: list[float] = []


class Tracker(ABC):
    """Keeps runs open in a tracker while they train, and writes their losses every second."""

    def __init__(self) -> None:
        self._runs: dict[Any, _OpenRun] = {}

    def step(self, run: Trial, step: int, loss: float) -> None:
        """Take the loss of a step of a run that is training."""
        opened = self._opened(run)
        if step != opened.written + len(opened.waiting):  # told by a worker that died later
            return
        opened.waiting.append(loss)
        if time.monotonic() - opened.wrote > SECONDS_BETWEEN_WRITES:
            self._flush(opened)

    def write(self, record: Record[Any]) -> None:
        """Write what is not written yet of a run that has ended, and close it."""
        opened = self._opened(record.cell)
        opened.waiting = list(record.losses[opened.written :])
        self._flush(opened)
        self._end(opened.handle, record.status)
        del self._runs[record.cell]

    def close(self) -> None:
        """Close the runs that have not ended: they failed, or the sweep was stopped."""
        while self._runs:
            _, opened = self._runs.popitem()
            self._flush(opened)
            self._end(opened.handle, None)

    def _opened(self, run: Any) -> _OpenRun:
        if run not in self._runs:
            self._runs[run] = _OpenRun(self._begin(run))
        return self._runs[run]

    def _flush(self, opened: _OpenRun) -> None:
        self._add(opened.handle, opened.written, opened.waiting)
        opened.written += len(opened.waiting)
        opened.waiting, opened.wrote = [], time.monotonic()

    @abstractmethod
    def _begin(self, run: Any) -> Any:
        """Open a run with its description."""

    @abstractmethod
    def _add(self, handle: Any, first: int, losses: Sequence[float]) -> None:
        """Write losses of successive steps, from step ``first`` on."""

    @abstractmethod
    def _end(self, handle: Any, status: Status | None) -> None:
        """Close a run; without a status it was interrupted."""


INTERRUPTED = "interrupted"


class TensorBoard(Tracker):
    """Writes the loss of every step of every run for TensorBoard, a folder per run.

    Args:
        folder: of the event files.

    Raises:
        ValueError: TensorBoard is not installed, or the folder could not be written.

    Example:
        >>> TensorBoard("/tmp/logs").folder.name
        'logs'
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self._writer = _installed("torch.utils.tensorboard").SummaryWriter
        self.folder = _writable(folder, "TensorBoard")

    def _begin(self, run: Any) -> Any:
        writer = self._writer(str(self.folder / run_name(run)))
        writer.add_text("run", f"    {run.to_json()}")
        return writer

    def _add(self, handle: Any, first: int, losses: Sequence[float]) -> None:
        for step, loss in enumerate(losses, first):
            handle.add_scalar("loss", loss, step)
        handle.flush()

    def _end(self, handle: Any, status: Status | None) -> None:
        handle.add_text("status", status.value if status else INTERRUPTED)
        handle.close()


class WandB(Tracker):
    """Writes every run as a run of Weights & Biases, its description as the config.

    Whether runs are sent or stay on this machine is W&B's own setting (``WANDB_MODE=offline``).

    Args:
        project: to which the runs belong.

    Raises:
        ValueError: wandb is not installed.

    Example:
        >>> WandB("transfer").project  # doctest: +SKIP
        'transfer'
    """

    def __init__(self, project: str) -> None:
        super().__init__()
        self._wandb = _installed("wandb")
        self.project = project

    def _begin(self, run: Any) -> Any:
        return self._wandb.init(
            project=self.project,
            name=run_name(run),
            group=str(run.row.get("scheme", "")),
            config=described(run),
            reinit="create_new",  # beside a run that the caller may have open
            settings=self._wandb.Settings(silent=True, console="off"),
        )

    def _add(self, handle: Any, first: int, losses: Sequence[float]) -> None:
        for step, loss in enumerate(losses, first):
            handle.log({"loss": loss}, step=step)

    def _end(self, handle: Any, status: Status | None) -> None:
        handle.summary["status"] = status.value if status else INTERRUPTED
        handle.finish(exit_code=0 if status is Status.FINISHED else 1)


class MLflow(Tracker):
    """Writes every run as a run of MLflow, in the experiment ``depthmup``.

    Args:
        store: a folder, or a URI such as ``sqlite:///runs.db`` or a server's.

    Raises:
        ValueError: mlflow is not installed, or the folder could not be written.

    Example:
        >>> MLflow("sqlite:////tmp/runs.db").uri  # doctest: +SKIP
        'sqlite:////tmp/runs.db'
    """

    def __init__(self, store: str | Path) -> None:
        super().__init__()
        self._mlflow = _installed("mlflow")
        self.uri = str(store)
        if "://" not in self.uri:
            # MLflow 3 takes a bare folder only with a variable set; it writes into SQLite instead.
            folder = _writable(store, "MLflow")
            folder.mkdir(parents=True, exist_ok=True)
            self.uri = f"sqlite:///{folder.absolute() / 'mlflow.db'}"
        self._client = self._mlflow.MlflowClient(tracking_uri=self.uri)
        experiment = self._client.get_experiment_by_name("depthmup")
        self._experiment = (
            self._client.create_experiment("depthmup")
            if experiment is None
            else experiment.experiment_id
        )

    def _begin(self, run: Any) -> Any:
        opened = self._client.create_run(self._experiment, run_name=run_name(run)).info.run_id
        parameter = self._mlflow.entities.Param
        parameters = [parameter(key, str(value)) for key, value in described(run).items()]
        self._client.log_batch(opened, params=parameters)
        return opened

    def _add(self, handle: Any, first: int, losses: Sequence[float]) -> None:
        now = int(time.time() * 1000)
        # SQL stores have no infinite numbers: a run that diverged ends with its last finite loss.
        metrics = [
            self._mlflow.entities.Metric("loss", loss, now, step)
            for step, loss in enumerate(losses, first)
            if math.isfinite(loss)
        ]
        for start in range(0, len(metrics), _METRICS_PER_CALL):
            self._client.log_batch(handle, metrics[start : start + _METRICS_PER_CALL])

    def _end(self, handle: Any, status: Status | None) -> None:
        self._client.set_tag(handle, "status", status.value if status else INTERRUPTED)
        stopped = "KILLED" if status is None else "FAILED"
        ended = "FINISHED" if status is Status.FINISHED else stopped
        self._client.set_terminated(handle, ended)


def described(run: Any) -> dict[str, Any]:
    """A run's size, rate and seed by plain names, its key, and the whole of it as ``run``."""
    return {**run.row, "steps": run.steps, "key": run.key, "run": json.loads(run.to_json())}


def _installed(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ValueError(without("A log of runs", module.rpartition(".")[2])) from None


def _writable(folder: str | Path, tracker: str) -> Path:
    """Refuse a folder that cannot be written now, not when the first run ends after hours."""
    folder = Path(folder)
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(
            f"Expected a writable folder for {tracker}; got {folder}, where {existing} cannot be "
            "written. Name another folder."
        )
    return folder


_SHORT = {"width": "w", "depth": "d"}


def run_name(run: Any) -> str:
    """A run's folder: its size, learning rate and seed, and the start of its key."""
    size = run.size if isinstance(run, Trial) else {a: run.row[a] for a in ("width", "depth")}
    lengths = "-".join(f"{_SHORT.get(axis, axis)}{value}" for axis, value in size.items())
    return f"{lengths}-lr{run.row['lr']:.4g}-s{run.seed}-{run.key[:8]}"


_LOGS: dict[str, Callable[[str], Log]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def log_named(name: str) -> Log:
    """The log that ``tensorboard:FOLDER``, ``wandb:PROJECT`` or ``mlflow:STORE`` names."""
    kind, _, address = name.partition(":")
    if kind not in _LOGS or not address:
        raise ValueError(
            f"Expected a log as tensorboard:FOLDER, wandb:PROJECT or mlflow:STORE; got {name!r}."
        )
    return _LOGS[kind](address)
