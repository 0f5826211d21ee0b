"""Columns that nobody named and that look like settings: do runs of one size differ in one?"""

import shlex
from collections.abc import Sequence

import numpy as np

from depthmup.posterior.intervals import Index
from depthmup.records.printable import printable
from depthmup.tables.columns import axis_named, propose
from depthmup.tables.rows import GroupRows
from depthmup.tables.where import equalities, is_number

SHARE, FEWEST = 8, 3
"""A setting's values recur: it has at most one for so many rows; or it is called as axes are, and
each of its values has so many."""

METADATA = frozenset(
    {
        "status", "state", "host", "name", "id", "user", "group", "tag", "created", "updated",
        "date", "time", "start", "end", "duration", "runtime", "path", "dir", "commit", "version",
        "notes", "gpu", "device", "number", "index", "rank", "trial", "run", "uri", "url", "seed",
        "epoch", "done", "pid", "node_ip", "hostname", "diverged", "finished", "converged",
        "outcome", "result", "stable", "success", "reason", "message", "error", "comment",
    }
)  # fmt: skip
"""Words of columns that tell where or when a run was made, not how."""


USUAL = ("decay", "wd", "beta", "beta1", "beta2", "momentum", "eps", "epsilon", "warmup")
"""Words of settings that are said to be unchanged, or not, in a question."""

ADVICE = (
    "Say what that means: --by makes groups of it, --where picks a value, --ignore says that it "
    "does not matter, --axes makes it an axis."
)


def settings_of(rows: GroupRows, size: Index, *, advice: str = ADVICE) -> list[str]:
    """The columns of a group that are settings, one value at each size; refused where several."""
    settings: list[str] = []
    mixed: dict[str, int] = {}
    count = len(np.unique(size))
    for name in rows.table.others:
        words = name.lower().replace(".", "_").replace("/", "_").split("_")
        if name in rows.question.ignore or METADATA.intersection(words):
            continue
        codes = rows.table.codes[name]
        distinct, rows_of_each = np.unique(codes, return_counts=True)
        axis, recurs = axis_named(name), len(distinct) <= max(2, len(codes) // SHARE)
        if len(np.unique(np.stack([size, codes]), axis=1).T) == count:
            if recurs or axis or is_usual(name):
                settings.append(name)
        elif (recurs or (axis and rows_of_each.min() >= FEWEST)) and not _follows(rows, name):
            mixed[name] = len(distinct)
    if mixed:
        raise ValueError(_mixed(mixed, rows, advice))
    return settings


def codes_of_sizes(rows: GroupRows, size: Index, settings: Sequence[str]) -> dict[str, Index]:
    """The value of each setting at every size, as a code."""
    _, first = np.unique(size, return_index=True)
    return {name: rows.table.codes[name][first] for name in settings}


def is_usual(column: str) -> bool:
    """Whether a column looks like a usual setting of training."""
    return any(word in USUAL for word in column.lower().replace(".", "_").split("_"))


def _follows(rows: GroupRows, name: str) -> bool:
    """Whether a column divides the tuned rates into intervals, as their logarithm or rank does.

    That each rate has one value does not suffice: rates drawn at random stand there once, and two
    grids that interleave may belong to two optimizers. Nor do intervals that are called by words:
    those are recipes, each with rates of its own.
    """
    codes = rows.table.codes[name]
    pairs = np.unique(np.stack([rows.rate, codes]), axis=1)
    rates, values = len(np.unique(rows.rate)), np.unique(codes)
    names = [rows.table.names[name][code] for code in values]
    words = len(values) < rates and not all(map(_is_value, names))
    intervals = int((np.diff(pairs[1]) != 0).sum()) == len(values) - 1
    return rates == pairs.shape[1] and intervals and not words


_ANSWERS = ("", "true", "false", "yes", "no", "on", "off", "none", "null", "n/a", "na", "nan")


def _is_value(text: str) -> bool:
    """Whether a label is a number, an answer or nothing, and no recipe's name."""
    return is_number(text) or text.lower() in _ANSWERS


def _mixed(mixed: dict[str, int], rows: GroupRows, advice: str) -> str:
    name, distinct = next(iter(mixed.items()))
    if not rows.question.steps and propose([name]).get("steps"):
        advice += _of_steps(name, rows)
    if len(mixed) > 1 and (finest := _finest(mixed, rows)):
        others = "the other follows" if len(mixed) == 2 else f"the other {len(mixed) - 1} follow"
        use = f"Use --by {printable(shlex.quote(finest))}: {others} from it."
        advice = f"{use} Or {advice[0].lower()}{advice[1:]}"
    quoted = [printable(repr(n)) for n in list(mixed)[1:4]]
    others = f", and also in {', '.join(quoted)}" if quoted else ""
    return (
        f"Runs of one size differ in {printable(repr(name))}, which takes {distinct} "
        f"values{others}{rows.of_group}. {advice}"
    )


def _of_steps(name: str, rows: GroupRows) -> str:
    """What a column of steps may be: points of a log, or lengths of runs."""
    values = (rows.table.names[name][code] for code in np.unique(rows.table.codes[name]))
    last = max(filter(is_number, values), key=float, default="")
    keep = equalities([(name, last)]) if last else ""
    ends = f"--where {printable(shlex.quote(keep))} keeps the ends of logs, " if keep else ""
    column = printable(shlex.quote(name))
    return f" If it counts steps, {ends}--steps {column} finds runs that were cut short."


def _finest(mixed: dict[str, int], rows: GroupRows) -> str:
    """The first of some columns whose value gives those of all the others; empty if none does."""

    def gives(name: str, other: str) -> bool:
        pairs = np.stack([rows.table.codes[name], rows.table.codes[other]])
        return bool(np.unique(pairs, axis=1).shape[1] == mixed[name])

    return next((name for name in mixed if all(gives(name, other) for other in mixed)), "")
