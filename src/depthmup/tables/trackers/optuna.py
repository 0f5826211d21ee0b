"""Optuna: a database (``sqlite:///study.db`` or its path), or a journal file."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from depthmup.tables.trackers.run import DEAD, FINISHED, PRUNED, RAISED, UNKNOWN, LoggedRun, copied

STATUSES = {"COMPLETE": FINISHED, "FAIL": RAISED, "PRUNED": PRUNED, "RUNNING": DEAD}
"""A trial that was killed, or that raised after ``ask``, is running for ever."""

VALUE, HIGHEST, STUDY = "value", "maximized", "study"
"""Names of the value, which is no loss where a study maximizes it, and of the column of studies."""


def runs(address: str) -> Iterator[LoggedRun]:
    """The trials of all studies: parameters and user attributes; intermediate and last values."""
    import optuna  # type: ignore[import-not-found]

    path = Path(re.sub(r"^sqlite:/*", "/", address))
    if path.is_file() and path.open("rb").read(6) == b"SQLite":
        with copied(path) as copy:  # the package would add tables to the owner's
            yield from _of(optuna.storages.RDBStorage(f"sqlite:///{copy}"))
    elif path.is_file():
        backend = optuna.storages.journal.JournalFileBackend(str(path))
        yield from _of(optuna.storages.JournalStorage(backend))
    elif match := re.match(r"(\w+(?:\+\w+)?):/+(.*)", address):  # a path has single slashes
        yield from _of(optuna.storages.RDBStorage(f"{match[1]}://{match[2]}"))
    else:
        raise ValueError(f"Expected a database or a journal of Optuna; {address} is no file.")


def _of(storage: Any) -> Iterator[LoggedRun]:
    for summary in storage.get_all_studies():
        # Of several directions the first value is read, as it is the one that counts here.
        highest = summary.directions[0].name == "MAXIMIZE"
        for trial in storage.get_all_trials(summary._study_id):
            points: list[tuple[float, Any]] = sorted(trial.intermediate_values.items())
            if trial.values:
                points.append((points[-1][0] if points else 0, trial.values[0]))
            yield LoggedRun(
                name=f"{summary.study_name} {trial.number}",
                settings={STUDY: summary.study_name, **trial.user_attrs, **trial.params},
                metrics={HIGHEST if highest else VALUE: points},
                status=STATUSES.get(trial.state.name, UNKNOWN),
            )
