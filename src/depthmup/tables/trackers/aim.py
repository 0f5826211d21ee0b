"""Aim: a repository, the folder with ``.aim``, by its SDK, which alone reads it."""

from collections.abc import Iterator
from pathlib import Path

from depthmup.tables.trackers.run import DEAD, FINISHED, LoggedRun


def runs(address: str) -> Iterator[LoggedRun]:
    """The runs of a repository; one that raised looks finished, one that died active."""
    from aim import Repo  # type: ignore[import-not-found]

    folder = Path(address)
    if not (folder / ".aim").is_dir():
        raise ValueError(f"Expected a folder with .aim, a repository of Aim; {address} is none.")
    repository = Repo(str(folder))
    found = list(repository.iter_runs())
    if len(found) < len(listed := repository.list_all_runs()):
        raise ValueError(
            f"Expected an index of all {len(listed)} runs of {address}; it has {len(found)}: run "
            f"`aim storage --repo {address} reindex` first."
        )
    for run in found:
        metrics = {}
        for metric in run.metrics():
            # Its values are ordered by a hash of the step; the frame has both.
            frame = metric.dataframe().sort_values("step")
            metrics[metric.name] = list(zip(frame["step"], frame["value"], strict=True))
        settings = {k: v for k, v in run[...].items() if not k.startswith("__")}
        yield LoggedRun(
            name=run.hash,
            settings=settings.pop("hparams", {}) | settings,
            metrics=metrics,
            status=DEAD if run.active else FINISHED,
        )
