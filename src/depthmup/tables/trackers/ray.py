"""Ray Tune: an experiment's folders of trials, ``result.json`` and ``params.json``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from depthmup.tables.trackers.run import RAISED, UNKNOWN, LoggedRun, json_lines, settings_beside

OWN = frozenset({"timestamp", "pid", "done", "time_this_iter_s", "time_total_s"})


def runs(address: str) -> Iterator[LoggedRun]:
    """The trials; dead ones have an ``error.txt``, as those that raised."""
    for file in sorted(Path(address).rglob("result.json")):
        metrics: dict[str, list[tuple[float, Any]]] = {}
        for number, row in enumerate(json_lines(file), 1):
            step = row.get("training_iteration", number)
            for name, value in row.items():
                if isinstance(value, int | float) and name not in OWN:
                    metrics.setdefault(name, []).append((step, value))
        status = RAISED if (file.parent / "error.txt").is_file() else UNKNOWN
        settings = settings_beside(file.parent)
        yield LoggedRun(name=file.parent.name, settings=settings, metrics=metrics, status=status)
