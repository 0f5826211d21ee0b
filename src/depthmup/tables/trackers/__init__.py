"""Folders of trackers as tables of runs: one reader a file, all of them give the same rows."""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from depthmup.records.packages import need
from depthmup.records.printable import printable
from depthmup.tables.trackers.run import LoggedRun, frame_of, points_of
from depthmup.tables.trackers.runs import Pattern

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "READERS",
    "LoggedRun",
    "Pattern",
    "address_of",
    "frame_of",
    "points_of",
    "runs_at",
]

READERS = {
    "wandb": "wandb",
    "mlflow": "mlflow",
    "optuna": "optuna",
    "ray": "",
    "aim": "aim",
    "trackio": "",
    "sacred": "",
    "dvclive": "",
    "tensorboard": "tensorboard",
    "runs": "",
}
"""Trackers by the word before their address, with the package that reads them; empty for none."""


def address_of(table: object) -> tuple[str, str] | None:
    """The tracker and the address of ``wandb:FOLDER``; none of a path.

    Example:
        >>> address_of("wandb:runs/wandb"), address_of("runs.csv")
        (('wandb', 'runs/wandb'), None)
    """
    match = re.fullmatch(r"(\w+):(.+)", str(table), re.DOTALL)
    return (match[1], match[2]) if match and match[1] in READERS else None


def runs_at(kind: str, address: str, loss: str) -> "pd.DataFrame":
    """The runs that a tracker left, as a table with its loss, last step, status and name."""
    if package := READERS[kind]:
        need(f"Runs of {kind}", package)
    if kind == "runs":
        loss = Pattern.of(address).column
    read: Callable[[str], Iterator[LoggedRun]] = import_module(f"{__name__}.{kind}").runs
    return frame_of(read(address), loss, printable(f"{kind}:{address}"))
