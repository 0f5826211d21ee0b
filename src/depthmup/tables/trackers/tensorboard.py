"""TensorBoard: folders of event files, each file in the order of writing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from depthmup.tables.trackers.run import LoggedRun, settings_beside

EVENTS = "*events.out.tfevents.*"


def runs(address: str) -> Iterator[LoggedRun]:
    """The runs below a folder: one for each folder with scalars, hyperparameters joined to it."""
    files: dict[Path, list[Path]] = {}
    for file in sorted(Path(address).rglob(EVENTS), key=lambda f: f.name):
        files.setdefault(file.parent, []).append(file)
    read = {folder: [_of(file) for file in of_folder] for folder, of_folder in files.items()}
    for folder, parts in sorted(read.items()):
        metrics: dict[str, list[tuple[float, Any]]] = {}
        settings = settings_beside(folder)
        for scalars, hyperparameters in parts:
            settings |= hyperparameters
            for name, points in scalars.items():
                metrics.setdefault(name, []).extend(points)
        # ``add_hparams`` writes into a folder of its own, called by the time, below the run's.
        for inner, of_inner in read.items():
            if inner.parent == folder:
                settings = {**settings, **settings_beside(inner)}
                for _, hyperparameters in of_inner:
                    settings |= hyperparameters
        is_part = folder.parent in read and any(parts_[1] for parts_ in parts)
        if metrics and not is_part:
            yield LoggedRun(name=folder.name, settings=settings, metrics=metrics)


def scalars_of(file: Path) -> dict[str, list[tuple[float, float]]]:
    """Steps and values of one file of events."""
    return _of(file)[0]


def _of(file: Path) -> tuple[dict[str, list[tuple[float, float]]], dict[str, Any]]:
    """The scalars and the hyperparameters of one file, all rows of them."""
    from tensorboard.backend.event_processing import (  # type: ignore[import-untyped]
        event_accumulator,
    )
    from tensorboard.plugins.hparams import plugin_data_pb2  # type: ignore[import-untyped]

    events = event_accumulator.EventAccumulator(
        str(file), size_guidance={"scalars": 0, "tensors": 0}
    )
    events.Reload()
    scalars = {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }
    settings: dict[str, Any] = {}
    for tag, metadata in events.summary_metadata.items():
        if metadata.plugin_data.plugin_name != "hparams" or not tag.endswith("session_start_info"):
            continue
        content = plugin_data_pb2.HParamsPluginData.FromString(metadata.plugin_data.content)
        for name, value in content.session_start_info.hparams.items():
            settings[name] = getattr(value, value.WhichOneof("kind"))
    return scalars, settings
