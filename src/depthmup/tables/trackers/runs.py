"""A folder of logs, by the pattern of their paths: ``sweep/w{width}/lr={lr}/log.csv:val_loss``.

The loss is the last value of a column (CSV, JSON lines, ``trainer_state.json``, TensorBoard's
events), the number in a file, or what a regular expression finds (``train.log:re:loss=(\\S+)``).
"""

import csv
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from depthmup.records.printable import printable
from depthmup.records.reported import Wanted, step_of
from depthmup.tables.names import NAME, fitting, typed
from depthmup.tables.trackers.run import (
    LoggedRun,
    flattened,
    json_lines,
    points_of,
    read_json,
    settings_beside,
)

_LOSS = "loss"
"""What a loss is called that has no column."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Paths with names in braces, and where in each file the loss stands."""

    path: str
    loss: str

    @staticmethod
    def of(text: str) -> "Pattern":
        path, _, loss = text.partition(":")
        names = NAME.findall(path)
        if not (names or "*" in path) or "{" in NAME.sub("", path):
            raise ValueError(
                "Expected a pattern with names in braces or stars, such as "
                f"'sweep/w{{width}}/lr={{lr}}_s{{seed}}/log.csv:val_loss'; got {text!r}."
            )
        if loss.startswith("re:") and re.compile(loss.removeprefix("re:")).groups != 1:
            raise ValueError(
                f"Expected a regular expression with one group, the loss; got {loss!r}."
            )
        return Pattern(path=os.path.expanduser(path), loss=loss)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in braces."""
        return tuple(dict.fromkeys(NAME.findall(self.path)))

    @property
    def column(self) -> str:
        """The name of the loss in the table."""
        return _LOSS if not self.loss or self.loss.startswith("re:") else self.loss

    def files(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Every path that fits, with the values of its names."""
        fits = fitting(self.path)
        starred = "".join(
            part if part == "*" else "*" if NAME.fullmatch(part) else glob.escape(part)
            for part in re.split(r"(\{\w+\}|\*)", self.path)
        )
        for path in sorted(glob.glob(starred)):
            if match := fits.fullmatch(path):
                yield Path(path), {name: typed(text) for name, text in match.groupdict().items()}


def runs(address: str) -> Iterator[LoggedRun]:
    """The runs whose logs fit a pattern; settings also from the files beside each log."""
    pattern = Pattern.of(address)
    wanted = Wanted.of(pattern.column)
    taken: dict[tuple[Any, ...], Path] = {}
    for path, values in pattern.files():
        key = tuple(values.values()) or (path,)  # without names, settings stand beside each log
        if other := taken.get(key):
            raise ValueError(
                f"Expected one log for each run; {printable(str(other))} and "
                f"{printable(str(path))} are of one: name in braces what differs."
            )
        taken[key] = path
        points = list(_points(path, pattern.loss, wanted.name))
        if not points_of(points):
            raise ValueError(
                f"Expected a loss in {printable(str(path))}; it has no value of "
                f"{printable(repr(pattern.loss or 'its number'))}{_there(path, pattern.loss)}."
            )
        folder = path if path.is_dir() else path.parent
        settings = {**settings_beside(folder), **values}
        yield LoggedRun(name=str(path), settings=settings, metrics={wanted.name: points})
    if not taken:
        raise ValueError(f"Expected files that fit {printable(pattern.path)!r}; there are none.")


def _points(path: Path, loss: str, name: str) -> Iterator[tuple[float, Any]]:
    if loss.startswith("re:"):
        found = re.compile(loss.removeprefix("re:"))
        with path.open(encoding="utf-8", errors="replace") as file:
            values = (m[1] for line in file for m in found.finditer(line[:65536]) if m[1])
            yield from enumerate(map(_number(path), values), 1)
    elif not loss:
        yield 0, _number(path)(path.read_text(encoding="utf-8", errors="replace").strip())
    elif path.is_dir():
        from depthmup.tables.trackers.tensorboard import EVENTS, scalars_of

        for events in sorted(path.glob(EVENTS)):
            yield from scalars_of(events).get(name, ())
    else:
        for number, row in enumerate(_rows(path), 1):
            value = row.get(name)
            if isinstance(value, list):  # a history in one file
                yield from enumerate(map(_number(path), value), 1)
            elif value not in (None, "", "NA"):
                yield _number(path)(step_of(row, number)), _number(path)(value)


def _rows(path: Path) -> Iterable[Mapping[str, Any]]:
    """The rows of a log: of CSV, of JSON lines, of an array, or of Trainer's state."""
    if path.suffix in (".jsonl", ".ndjson"):
        yield from json_lines(path)
    elif path.suffix == ".json":
        try:
            found = read_json(path)
        except ValueError:  # lines of JSON under another suffix
            found = list(json_lines(path))
        found = found.get("log_history", [found]) if isinstance(found, dict) else found
        yield from (dict(flattened(row)) for row in found if isinstance(row, dict))
    else:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            for row in reader:
                if None in row:
                    raise ValueError(
                        f"Expected rows as long as the header of {printable(str(path))}; line "
                        f"{reader.line_num} is longer."
                    )
                yield {str(name).strip(): value for name, value in row.items()}


def _there(path: Path, loss: str) -> str:
    """The columns that a log has instead."""
    if not loss or loss.startswith("re:") or path.is_dir():
        return ""
    names = dict.fromkeys(name for row in _rows(path) for name in row)
    return f"; its columns are {printable(', '.join(list(names)[:20]))}"


def _number(path: Path) -> Any:
    """A reader of numbers that names the file of a text that is none."""

    def number(text: Any) -> float:
        try:
            return float(text)
        except (TypeError, ValueError):
            raise ValueError(
                f"Expected numbers in {printable(str(path))}; it has "
                f"{printable(repr(str(text)[:60]))}."
            ) from None

    return number
