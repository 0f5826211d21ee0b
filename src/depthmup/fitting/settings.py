"""Columns that nobody named and that look like settings: do runs of one size differ in one?"""

import numpy as np

from depthmup.fitting.rows import Rows
from depthmup.records.printable import printable
from depthmup.statistics.intervals import Array, Index

SHARE = 8
"""A setting's values recur: it has at most one for so many rows."""

METADATA = frozenset(
    {
        "status", "state", "host", "name", "id", "user", "group", "tag", "created", "updated",
        "date", "time", "start", "end", "duration", "runtime", "path", "dir", "commit", "version",
        "notes", "gpu", "device", "number", "index", "rank", "trial", "run", "uri", "url", "seed",
        "epoch", "done", "pid", "node_ip", "hostname", "diverged", "finished",
    }
)  # fmt: skip
"""Words of columns that tell where or when a run was made, not how."""


def settings_of(rows: Rows, size: Index, count: int) -> dict[str, Array]:
    """The settings of a group, each as one code for every size.

    Args:
        rows: of the group.
        size: number of every row's size.
        count: of sizes.

    Raises:
        ValueError: runs of one size differ in a setting.
    """
    settings: dict[str, Array] = {}
    mixed: dict[str, int] = {}
    rate = np.unique(rows.rate, return_inverse=True)[1].reshape(-1)
    for name in rows.table.others:
        words = name.lower().replace(".", "_").replace("/", "_").split("_")
        if name in rows.columns.ignore or METADATA.intersection(words):
            continue
        codes = rows.table.codes[name]
        distinct = len(np.unique(codes))
        if distinct > max(2, len(codes) // SHARE):
            continue
        pairs = np.unique(np.stack([size, codes]), axis=1)
        if pairs.shape[1] == count:
            settings[name] = pairs[1]
        elif len(np.unique(np.stack([rate, codes]), axis=1)[0]) > len(np.unique(rate)):
            mixed[name] = distinct  # else it follows the tuned rate, as its logarithm does
    if mixed:
        raise ValueError(_mixed(mixed, rows))
    return settings


def _mixed(mixed: dict[str, int], rows: Rows) -> str:
    name, distinct = next(iter(mixed.items()))
    others = "".join(f", and {printable(repr(n))} too" for n in list(mixed)[1:4])
    return (
        f"Runs of one size differ in {printable(repr(name))}, which takes {distinct} "
        f"values{others}{rows.of_group}. Say what that means: --by makes groups of it, --where "
        "picks a value, --ignore says that it does not matter, --axes makes it an axis."
    )
