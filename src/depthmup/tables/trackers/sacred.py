"""Sacred: the numbered folders of a FileStorageObserver."""

from collections.abc import Iterator
from pathlib import Path

from depthmup.tables.trackers.run import DEAD, FINISHED, RAISED, UNKNOWN, LoggedRun, read_json

STATUSES = {
    "COMPLETED": FINISHED, "FAILED": RAISED, "INTERRUPTED": RAISED, "RUNNING": DEAD,
    "QUEUED": DEAD, "TIMED_OUT": DEAD,
}  # fmt: skip


def runs(address: str) -> Iterator[LoggedRun]:
    """The runs of a folder; one that died within ten seconds has no metrics."""
    for file in sorted(Path(address).rglob("run.json")):
        folder, metrics = file.parent, {}
        if (written := folder / "metrics.json").is_file():
            for name, points in read_json(written).items():
                metrics[name] = list(zip(points["steps"], points["values"], strict=True))
        config = folder / "config.json"
        yield LoggedRun(
            name=folder.name,
            settings=read_json(config) if config.is_file() else {},
            metrics=metrics,
            status=STATUSES.get(read_json(file).get("status", ""), UNKNOWN),
        )
