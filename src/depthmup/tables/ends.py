"""Which rows are runs at their end: by status, by steps, and the last of a run's checkpoints.

Half of all trackers leave no status, and a run that diverged is finished in those that do: a run
that ended early is found by its steps, too. Names of columns only say which ones count steps.
"""

import re

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.records.note import Defect
from depthmup.records.printable import printable
from depthmup.records.reported import counts_steps
from depthmup.records.text import counted
from depthmup.rules import canonical
from depthmup.statistics.strays import CUT, usual_steps
from depthmup.tables.read import distinct
from depthmup.tables.rows import GroupRows

FINISHED = frozenset({"finished", "complete", "completed", "terminated", "success", "succeeded"})
UNFINISHED = frozenset(
    {
        "failed", "fail", "failure", "error", "crashed", "killed", "dead", "raised", "aborted",
        "running", "pending", "waiting", "scheduled", "queued", "paused", "inprogress",
        "interrupted", "stopped", "stopping", "preempted", "preempting", "pruned", "canceled",
        "cancelled", "timeout",
    }
)  # fmt: skip
DIVERGED, UNTOLD = frozenset({"diverged", "nan"}), frozenset({"unknown", ""})
"""Words of a status, in small letters and without what stands before a point or a blank."""

LOGGED = 5
"""Equal steps from the first one on that make a log: 1, 2, 3, 4, 5."""

_AN_IDENTITY = re.compile(r"(^|_)(run|trial|hash|id|uid|uuid|experiment|job|name)s?($|_)")


def ended(rows: GroupRows) -> str:
    """Keep the ends of runs; the column by which an axis of steps has prefixes, if one does."""
    statuses(rows)
    prefixes = checkpoints(rows)
    stopped(rows)
    return prefixes


def statuses(rows: GroupRows) -> None:
    """Runs that failed, were pruned, or never ended, by a column of words of a status."""
    for name in rows.table.others:
        if name in rows.question.ignore:
            continue
        words = [_word(label) for label in rows.table.names[name]]
        known = np.array([w in FINISHED | UNFINISHED | DIVERGED | UNTOLD for w in words])
        if not known.any():
            continue
        code = rows.table.codes[name]
        there = {words[c] for c in np.unique(code)}
        if not known[code].all() or not there & (FINISHED | {"unknown"}):
            continue
        diverged = np.array([word in DIVERGED for word in words])[code]
        if diverged.any():
            rows.with_losses(np.where(diverged, np.inf, rows.loss))
        # A loss that says that it diverged says so of a run that raised for it, too.
        out = np.array([word in UNFINISHED for word in words])[code] & ~np.isinf(rows.loss)
        labels = rows.table.names[name]
        reasons = {int(i): f"{name} is {labels[code[i]]}" for i in np.flatnonzero(out)}
        sentence = f"did not finish, by the column {printable(repr(name))}"
        rows.drop(rows.tell(Defect.UNFINISHED, out, sentence, reasons=reasons.__getitem__))


def _word(label: str) -> str:
    """``TrialState.COMPLETE`` and ``In Progress`` as words of a status."""
    return re.sub(r"[\s_-]", "", label.split(".")[-1]).lower()


def checkpoints(rows: GroupRows) -> str:
    """Keep the last of several rows of one run; the column by which an axis of steps has prefixes.

    Rows belong to one run where all that was set is the same and the steps differ.
    """
    named, axes = rows.question.steps, rows.question.axes
    columns = [named] if named else [c for c in _columns(rows) if counts_steps(c)]
    of_axis = [c for a, c in axes.items() if is_length(a) or counts_steps(c)]
    for column in columns:
        if column in of_axis:
            continue
        steps, key = _values(rows, column), _set(rows, column)
        run, count = distinct(*key)
        if not _are_points_of_runs(run, count, steps):
            continue
        order = np.lexsort((rows.table.rows, steps, run))
        last = np.zeros(len(run), bool)
        last[order[np.append(run[order][1:] != run[order][:-1], True)]] = True
        sentence = f"are checkpoints of {counted(count, 'run')}, each at several values of "
        rows.drop(
            rows.tell(
                Defect.CHECKPOINT, ~last, f"{sentence}{printable(repr(column))}", out=True,
                what="row",
            )
        )  # fmt: skip
    return _prefixes(rows, of_axis[0]) if of_axis else ""


def is_length(axis: str) -> bool:
    """Whether an axis is the length of training."""
    return canonical(axis) in ("steps", "tokens") or counts_steps(axis)


def _prefixes(rows: GroupRows, column: str) -> str:
    """The column that shows the runs of which an axis of steps has prefixes; empty without one.

    It names runs, or counts every step of a log: designs have steps that grow by factors.
    """
    steps = rows.table.numbers[column]
    run, count = distinct(*_set(rows, column, sizes_but=column))
    numbered = np.unique(steps)
    every = len(numbered) >= LOGGED and np.ptp(np.diff(numbered, prepend=0.0)) == 0
    if every and _are_points_of_runs(run, count, steps):
        return column
    for name in rows.table.others:
        if not _AN_IDENTITY.search(re.sub(r"[\W]+", "_", name.lower())):
            continue
        run = rows.table.codes[name]
        run, count = distinct(run)
        _, together = distinct(run, *_set(rows, column, sizes_but=column))
        if together == count and _are_points_of_runs(run, count, steps):
            return name
    return ""


def _are_points_of_runs(run: Index, count: int, steps: Array) -> bool:
    """Whether most runs have several rows, which differ in their steps, on one grid of steps."""
    several = np.bincount(run, minlength=count)
    if (several > 1).mean() <= 0.5:
        return False
    apart = distinct(run, steps)[1]
    return apart > 0.75 * len(run) and len(np.unique(steps)) <= max(2, len(run) / 3)


def _set(rows: GroupRows, column: str, *, sizes_but: str = "") -> list[Array | Index]:
    """What was set of each run: sizes, rate, seed, and columns of few values, but for steps."""
    numbers, table = rows.table.numbers, rows.table
    axes = [numbers[c] for c in rows.question.axes.values() if c != sizes_but]
    others = [n for n in table.others if n != column and not counts_steps(n)]
    few = [n for n in others if len(np.unique(table.codes[n])) <= len(table) / 3]
    return [*axes, rows.rate, rows.seed, *(table.codes[n] for n in few if not sizes_but)]


def stopped(rows: GroupRows) -> None:
    """Runs that took fewer steps than most of their size, where nobody named the steps."""
    if rows.question.steps or rows.question.own:
        return
    for name in _columns(rows):
        if not counts_steps(name) or name in rows.question.axes.values():
            continue
        steps, ended = _values(rows, name), np.isfinite(rows.loss)
        if not (steps > 0).all():
            continue
        usual = usual_steps(rows.sizes()[1], steps)
        fewer = (steps < usual * (1 - CUT)) & ended
        if not fewer.any() or (fewer | (steps > usual * (1 + CUT)))[ended].mean() >= 0.5:
            continue
        sentence = f"took fewer steps than most of their size, by the column {printable(name)!r}"
        reasons = {
            int(i): f"{steps[i]:g} steps; most of its size {usual[i]:g}"
            for i in np.flatnonzero(fewer)
        }
        rows.drop(rows.tell(Defect.SHORT, fewer, sentence, reasons=reasons.__getitem__))


def _columns(rows: GroupRows) -> list[str]:
    ignored = rows.question.ignore
    return [n for n in (*rows.table.others, *rows.table.measures) if n not in ignored]


def _values(rows: GroupRows, column: str) -> Array:
    """A column as numbers; zero where it has none."""
    table = rows.table
    if column in table.numbers:
        return table.numbers[column]
    if column in table.measures:
        return np.nan_to_num(table.measures[column], nan=0.0)
    texts = table.names[column]
    numbers = [float(t) if _is_amount(t) else 0.0 for t in texts]
    return np.array(numbers)[table.codes[column]]


def _is_amount(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?(e[+-]?\d+)?", text) is not None


def zeros(rows: GroupRows) -> None:
    """Losses of exactly zero, as some trackers write nan: they do not say what happened."""
    loss = rows.loss
    zero: Flags = loss == 0
    if not zero.any() or (loss < 0).any():
        return
    rows.tell(
        Defect.IMPOSSIBLE,
        zero,
        "have a loss of exactly zero, which some trackers write for nan",
        out=False,
        done=(
            "Counted as diverged. If zero is real, as an error rate's, add half the error of one "
            "example to every loss"
        ),
    )
    rows.with_losses(np.where(zero, np.nan, loss))
