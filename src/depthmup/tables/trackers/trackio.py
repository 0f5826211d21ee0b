"""trackio: ``PROJECT.db``, or the folder of several (TRACKIO_DIR), by plain SQL.

Runs are told apart by ``run_id``: its own calls by name give the last run of that name alone.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from depthmup.tables.trackers.run import LoggedRun


def runs(address: str) -> Iterator[LoggedRun]:
    """The runs of every project; there is no status."""
    path = Path(address)
    for file in sorted(path.glob("*.db")) if path.is_dir() else [path]:
        yield from _of(file)


def _of(file: Path) -> Iterator[LoggedRun]:
    if not file.is_file():
        raise ValueError(f"Expected a database of trackio; there is no file {file}.")
    with closing(sqlite3.connect(f"file:{file.absolute()}?mode=ro", uri=True)) as database:
        found: dict[str, tuple[dict[str, Any], dict[str, list[tuple[float, Any]]], str]] = {}
        try:
            for run, config in database.execute("SELECT run_id, config FROM configs ORDER BY id"):
                found.setdefault(run, ({}, {}, run))[0].update(json.loads(config))
            asked = "SELECT run_id, run_name, step, metrics FROM metrics ORDER BY id"
            for run, _, step, metrics in database.execute(asked):
                _, logged, _ = found.setdefault(run, ({}, {}, run))
                for name, value in json.loads(metrics).items():
                    logged.setdefault(name, []).append((step, value))
        except sqlite3.DatabaseError as error:
            raise ValueError(f"Expected {file} to be a database of trackio; {error}.") from None
    for settings, logged, name in found.values():
        own = {k: v for k, v in settings.items() if not k.startswith("_")}
        yield LoggedRun(name=name, settings=own, metrics=logged)
