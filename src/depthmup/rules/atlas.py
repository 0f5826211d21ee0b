"""The atlas: optimizer classes of public packages, as ``python -m studies.atlas`` measured them."""

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("atlas.csv")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One class with its settings: the family that was measured ("none": none), or why not.

    ``decay`` says in a word how it decays; ``verdict`` whether a plan for it was right, is refused,
    or would be wrong.
    """

    package: str
    version: str
    name: str
    settings: str
    family: str
    decay: str
    verdict: str
    why: str


def entries(cls: type) -> tuple[Entry, ...]:
    """What was measured of a class, one entry for each of its settings; none if it was not.

    Example:
        >>> import torch
        >>> [entry.family for entry in entries(torch.optim.RAdam)]
        ['entrywise']
    """
    return _by_class().get((cls.__module__.partition(".")[0], cls.__name__), ())


@cache
def _by_class() -> Mapping[tuple[str, str], tuple[Entry, ...]]:
    found: defaultdict[tuple[str, str], list[Entry]] = defaultdict(list)
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            entry = Entry(**{name: row[name] for name in Entry.__slots__})
            if entry.verdict != "not run":
                found[entry.package, entry.name].append(entry)
    return {key: tuple(rows) for key, rows in found.items()}
