"""Optuna: a database (``sqlite:///study.db`` or its path), or a journal file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from depthmup.tables.trackers.run import DEAD, FINISHED, PRUNED, RAISED, UNKNOWN, LoggedRun

STATUSES = {"COMPLETE": FINISHED, "FAIL": RAISED, "PRUNED": PRUNED, "RUNNING": DEAD}
"""A trial that was killed, or that raised after ``ask``, is running for ever."""

VALUE = "value"


def runs(address: str) -> Iterator[LoggedRun]:
    """The trials of all studies: parameters and user attributes; intermediate and last values."""
    import optuna  # type: ignore[import-not-found]

    storage: Any = optuna.storages.RDBStorage(_url(address)) if _is_database(address) else None
    if storage is None:
        backend = optuna.storages.journal.JournalFileBackend(address)
        storage = optuna.storages.JournalStorage(backend)
    for summary in storage.get_all_studies():
        for trial in storage.get_all_trials(summary._study_id):
            points: list[tuple[float, Any]] = sorted(trial.intermediate_values.items())
            if trial.values:
                points.append((points[-1][0] if points else 0, trial.values[0]))
            yield LoggedRun(
                name=f"{summary.study_name} {trial.number}",
                settings={**trial.user_attrs, **trial.params},
                metrics={VALUE: points},
                status=STATUSES.get(trial.state.name, UNKNOWN),
            )


def _is_database(address: str) -> bool:
    path = Path(address)
    if ":" in address:
        return True
    if not path.is_file():
        raise ValueError(f"Expected a database or a journal of Optuna; {address} is no file.")
    with path.open("rb") as file:
        return file.read(6) == b"SQLite"


def _url(address: str) -> str:
    if ":" not in address:
        return f"sqlite:///{Path(address).absolute()}"
    kind, _, rest = address.partition(":")
    return f"{kind}://{'/' * (kind == 'sqlite')}{rest.lstrip('/') if kind != 'sqlite' else rest}"
