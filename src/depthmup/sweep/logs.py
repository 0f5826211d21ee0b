"""Logs of finished runs for other programs, such as TensorBoard."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from depthmup.records import Record, Trial
from depthmup.sweep.executors import Executor, Listener
from depthmup.sweep.jobs import Job, Result


class Log(Protocol):
    """Receives each run of this session once, after it has ended and was stored."""

    def write(self, record: Record[Any]) -> None: ...


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


class TensorBoard:
    """Writes the loss of every step of every run for TensorBoard, a folder per run.

    Raises:
        ValueError: TensorBoard is not installed, or the folder could not be written.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError(
                "Logging for TensorBoard needs the package: pip install 'depthmup[tensorboard]'."
            ) from None
        self._writer, self.folder = SummaryWriter, Path(folder)
        _check_folder(self.folder)

    def write(self, record: Record[Any]) -> None:
        with self._writer(str(self.folder / run_name(record))) as writer:
            for step, loss in enumerate(record.losses):
                writer.add_scalar("loss", loss, step)
            writer.add_text("run", f"    {record.cell.to_json()}\n\n{record.status.value}")


def _check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written now, not when the first run ends after hours."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(
            f"Expected a writable folder for TensorBoard; got {folder}, where {existing} cannot be "
            "written. Name another folder."
        )


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


def log_named(name: str) -> Log:
    """The log that ``tensorboard:FOLDER`` names.

    Raises:
        ValueError: the text is not of this form.
    """
    kind, _, folder = name.partition(":")
    if kind != "tensorboard" or not folder:
        raise ValueError(f"Expected a log as tensorboard:FOLDER; got {name!r}.")
    return TensorBoard(folder)
