"""Trackers of experiments: TensorBoard, Weights & Biases and MLflow behind one interface."""

import math
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from depthmup.records import Record, Status, Trial
from depthmup.records.packages import without

_METRICS_PER_CALL = 1000  # the most that MLflow takes at once


class Log(Protocol):
    """Receives each run of this session once, after it has ended and was stored."""

    def write(self, record: Record[Any]) -> None: ...


class TensorBoard:
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
        self._writer = _installed("torch.utils.tensorboard").SummaryWriter
        self.folder = _writable(folder, "TensorBoard")

    def write(self, record: Record[Any]) -> None:
        """Write one run: its losses by step, and its description as text."""
        with self._writer(str(self.folder / run_name(record))) as writer:
            for step, loss in enumerate(record.losses):
                writer.add_scalar("loss", loss, step)
            writer.add_text("run", f"    {record.cell.to_json()}\n\n{record.status.value}")


class WandB:
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
        self._wandb = _installed("wandb")
        self.project = project

    def write(self, record: Record[Any]) -> None:
        """Write one run: its losses by step; its status and last loss as the summary."""
        run = self._wandb.init(
            project=self.project,
            name=run_name(record),
            group=str(record.cell.row.get("scheme", "")),
            config=record.cell.row,
            reinit="create_new",  # beside a run that the caller may have open
            settings=self._wandb.Settings(silent=True, console="off"),
        )
        for step, loss in enumerate(record.losses):
            run.log({"loss": loss}, step=step)
        run.summary["status"] = record.status.value
        run.finish(exit_code=0 if record.status is Status.FINISHED else 1)


class MLflow:
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

    def write(self, record: Record[Any]) -> None:
        """Write one run: losses as metrics by step, its description as parameters."""
        entities, now = self._mlflow.entities, int(time.time() * 1000)
        run = self._client.create_run(self._experiment, run_name=run_name(record))
        parameters = [
            entities.Param(key, str(value)) for key, value in record.cell.row.items() if key != ""
        ]
        # SQL stores have no infinite numbers: a run that diverged ends with its last finite loss.
        metrics = [
            entities.Metric("loss", loss, now, step)
            for step, loss in enumerate(record.losses)
            if math.isfinite(loss)
        ]
        tag = entities.RunTag("status", record.status.value)
        self._client.log_batch(run.info.run_id, params=parameters, tags=[tag])
        for start in range(0, len(metrics), _METRICS_PER_CALL):
            self._client.log_batch(run.info.run_id, metrics[start : start + _METRICS_PER_CALL])
        ended = "FINISHED" if record.status is Status.FINISHED else "FAILED"
        self._client.set_terminated(run.info.run_id, ended)


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


def run_name(record: Record[Any]) -> str:
    """A run's folder: its size, learning rate and seed, and the start of its key.

    Example:
        >>> from array import array
        >>> from depthmup.records import Status, Trial
        >>> trial = Trial(model="make", code="1", size={"width": 64, "depth": 8},
        ...               base={"width": 64, "depth": 4}, scheme="sp",
        ...               optimizer="adamw", lr=0.01, steps=1, seed=2)
        >>> run_name(Record(cell=trial, status=Status.FINISHED, losses=array("f", [1.0])))[:-8]
        'w64-d8-lr0.01-s2-'
    """
    run: Any = record.cell
    size = run.size if isinstance(run, Trial) else {a: run.row[a] for a in ("width", "depth")}
    lengths = "-".join(f"{_SHORT.get(axis, axis)}{value}" for axis, value in size.items())
    return f"{lengths}-lr{run.row['lr']:.4g}-s{run.seed}-{run.key[:8]}"
