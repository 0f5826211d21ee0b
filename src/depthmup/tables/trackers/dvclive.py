"""DVCLive: folders with ``plots/metrics/NAME.tsv`` and ``params.yaml``; there is no status."""

import csv
from collections.abc import Iterator
from pathlib import Path

from depthmup.tables.trackers.run import LoggedRun, settings_beside


def runs(address: str) -> Iterator[LoggedRun]:
    """The runs of all folders below one, every metric with full digits."""
    for plots in sorted(Path(address).rglob("plots/metrics")):
        metrics = {}
        for file in sorted(plots.rglob("*.tsv")):
            name = file.relative_to(plots).with_suffix("").as_posix()
            with file.open(encoding="utf-8", newline="") as opened:
                rows = list(csv.DictReader(opened, delimiter="\t"))
            column = (
                next((c for c in rows[0] if c not in ("step", "timestamp")), "") if rows else ""
            )
            metrics[name] = [(float(row["step"]), row[column]) for row in rows]
        folder = plots.parent.parent
        settings = settings_beside(folder)
        yield LoggedRun(name=folder.name, settings=settings, metrics=metrics)
