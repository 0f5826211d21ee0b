"""A run as a tracker left it, and the table of several: one row a run, as ``fit`` reads it."""

import json
import math
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthmup.records.packages import need
from depthmup.records.printable import printable
from depthmup.records.reported import Wanted
from depthmup.tables.columns import propose

if TYPE_CHECKING:
    import pandas as pd

FINISHED, RAISED, DEAD, PRUNED, UNKNOWN = "finished", "raised", "dead", "pruned", "unknown"
"""How a run ended, as far as its tracker says."""

RUN, STATUS, LAST_STEP = "run", "status", "last_step"
"""Columns of a table of logged runs beside their settings and their loss."""

CONFIGS = ("config.yaml", "config.json", "hparams.yaml", "params.yaml", "params.json",
           ".hydra/config.yaml")  # fmt: skip
"""Files beside a log that hold a run's settings; later ones count where two have one name."""


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """A run: its settings, and every metric's steps and values in the order of their writing."""

    name: str
    settings: Mapping[str, Any]
    metrics: Mapping[str, Sequence[tuple[float, Any]]]
    status: str = UNKNOWN


def points_of(written: Iterable[tuple[float, Any]]) -> list[tuple[float, float]]:
    """Steps and values; a step that is written again begins anew there, as a resumed run does.

    Example:
        >>> points_of([(1, 3.0), (2, 2.5), (3, 2.0), (2, 2.6), (3, "NaN")])
        [(1.0, 3.0), (2.0, 2.6), (3.0, nan)]
    """
    points: dict[float, float] = {}
    for step, value in written:
        if value is None or value == "":
            continue
        if step in points:
            points = {s: v for s, v in points.items() if s < step}
        points[float(step)] = float(value)
    return list(points.items())


def frame_of(runs: Iterable[LoggedRun], loss: str, where: str) -> "pd.DataFrame":
    """The table of logged runs; infinite where a loss is not finite, empty where there is none."""
    need("A table of results", "pandas")
    import pandas as pd

    rows, metrics = [], dict[str, None]()
    for run in runs:
        metrics |= dict.fromkeys(run.metrics)
        wanted = Wanted.of(loss, metrics)
        points = points_of(run.metrics.get(wanted.name, ()))
        value = wanted.value(points)
        settings = ((n, str(v) if isinstance(v, list) else v) for n, v in flattened(run.settings))
        row = {name: v for name, v in settings if not _is_nothing(v)}
        row |= {loss: value if value is None or math.isfinite(value) else math.inf}
        row |= {LAST_STEP: points[-1][0] if points else 0.0, STATUS: run.status, RUN: run.name}
        rows.append(row)
    if not rows:
        raise ValueError(f"Expected runs in {printable(where)}; there are none.")
    if Wanted.of(loss, metrics).name not in metrics:
        like = propose([*metrics]).get("loss", "")
        hint = f" --loss {printable(like)} looks like it." if like else ""
        raise ValueError(
            f"Expected the metric that is the loss, --loss NAME, of the runs in {printable(where)}"
            f"; got {printable(repr(loss))}. They have {printable(', '.join(metrics)) or 'none'}."
            f"{hint}"
        )
    return pd.DataFrame(rows)


@contextmanager
def copied(database: Path) -> Iterator[Path]:
    """A copy of an SQLite database for a package that brings what it opens up to date."""
    with tempfile.TemporaryDirectory(prefix="depthmup-") as folder:
        copy = Path(folder, database.name)
        only_read = f"{database.absolute().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(only_read, uri=True)) as own,
            closing(sqlite3.connect(copy)) as to,
        ):
            own.backup(to)
        yield copy


def flattened(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings with inner names joined by dots."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{prefix}{name}.")
        else:
            plain = isinstance(value, int | float | list)
            yield f"{prefix}{name}", value if plain else str(value)


def _is_nothing(value: Any) -> bool:
    """Whether it is what trackers write for None."""
    return str(value) in ("None", "null", "", "{}", "[]")


def read_json(path: Path) -> Any:
    """A file of JSON, bare NaN and Infinity too."""
    return _named(path, lambda: json.loads(path.read_text(encoding="utf-8")))


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines; a last line that was cut is none."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line) if line.strip() else None
        except ValueError:
            if number < len(lines):
                raise ValueError(
                    f"Expected a JSON object on each line of {printable(str(path))}; line "
                    f"{number} is none."
                ) from None
            return
        if isinstance(value, dict):
            yield value


def settings_beside(folder: Path) -> dict[str, Any]:
    """The settings in the files beside a log; ``{"value": x}`` of W&B's config is x."""
    settings: dict[str, Any] = {}
    for name in CONFIGS:
        path = folder / name
        if path.is_file():
            found = read_json(path) if path.suffix == ".json" else read_yaml(path)
            settings |= found if isinstance(found, dict) else {}
    return {
        name: value["value"] if isinstance(value, dict) and "value" in value else value
        for name, value in settings.items()
    }


def read_yaml(path: Path) -> Any:
    """A file of YAML, in which 1e-05 is a number."""
    need(f"The settings in {path.name}", "yaml")
    import yaml  # type: ignore[import-untyped]

    found = _named(path, lambda: yaml.safe_load(path.read_text(encoding="utf-8")))
    return _numbers(found)


def _numbers(value: Any) -> Any:
    """YAML 1.1 takes 1e-05 for a text."""
    if isinstance(value, dict):
        return {name: _numbers(inner) for name, inner in value.items()}
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
        return float(value)
    return value


def _named(path: Path, read: Callable[[], Any]) -> Any:
    """What a reader gives; what it says of a damaged file names that file."""
    try:
        return read()
    except Exception as error:
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ValueError(
            f"Expected {printable(str(path))} to be {path.suffix[1:].upper() or 'text'}; "
            f"{printable(said)}."
        ) from None
