"""Rows of a table that are no sound runs: each test flags, tells, and drops what it must.

They run in this order, as each counts on what the ones before it left: numbers, losses without a
logarithm, repeats, near repeats, stray values, tokens, steps, losses that do not say whether they
are missing.
"""

import math
import shlex

import numpy as np

from depthmup.posterior.curve import best_of_size
from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.records.note import Defect
from depthmup.records.printable import printable
from depthmup.statistics.strays import (
    CUT,
    beyond_sense,
    impossible,
    usual_steps,
)
from depthmup.tables.read import distinct, first_of_each
from depthmup.tables.rows import GroupRows
from depthmup.tables.where import equalities

DIGITS = 6
"""Significant digits from which on two runs of different seeds do not end with one loss."""

NEARLY = 1e-4
"""Of the loss: most runs of one size and rate that differ by less are one run that was logged
twice, or its seed is not applied. Seeds of public tables differ by 1%."""

COUNT_OFF = 0.05
"""How far tokens may be from batch x steps x a constant, as a fraction."""


def numbers(rows: GroupRows) -> None:
    """Sizes, rates or losses that are missing or cannot be."""
    cells, question, loss = rows.table.numbers, rows.question, rows.loss
    named = {axis: cells[column] for axis, column in question.axes.items()}
    named[rows.tuned] = rows.rate
    named |= {printable(column): cells[column] for column in question.beside}
    if question.steps:
        named["steps"] = cells[question.steps]
    lacking = np.isnan(loss) & ~rows.table.unsaid[question.loss]
    reasons = {int(i): "no loss" for i in np.flatnonzero(lacking)}
    for what, values in named.items():
        empty = np.isnan(values)
        reasons |= {int(i): f"no {what}" for i in np.flatnonzero(empty & ~lacking)}
        lacking |= empty
    # Logarithms are fitted: what is missing or not positive cannot be kept, whatever was asked for.
    columns = (*question.axes.values(), question.lr, *question.beside, question.steps)
    wholly = [printable(repr(c)) for c in columns if c and np.isnan(cells[c]).all()]
    told = f"have no number in {' and '.join(wholly)}" if wholly else "lack a number"
    if "no loss" in reasons.values():
        told += ": of a run that diverged the loss is nan, not empty"
    out = rows.tell(Defect.MISSING, lacking, told, reasons=reasons.__getitem__, out=True)
    bad = np.zeros(len(loss), bool)
    for what, values in named.items():
        wrong = ~lacking & ~((values > 0) & np.isfinite(values))
        reasons |= {int(i): f"{what} is not positive" for i in np.flatnonzero(wrong & ~bad)}
        bad |= wrong
    sentence = f"have a size or a {rows.tuned} that is not positive"
    why = reasons.__getitem__
    rows.drop(out | rows.tell(Defect.NOT_POSITIVE, bad, sentence, reasons=why, out=True))


def losses_of_no_logarithm(rows: GroupRows) -> None:
    """Losses that are not positive, and sizes whose losses really go below zero.

    There the best runs do so: without them the size would have an edge that is none. One number
    alone, such as -1, marks runs that failed.
    """
    loss = rows.loss
    if not (loss <= 0).any():
        return
    size = rows.sizes()[1]
    sentence = "have a loss of zero or below, which has no logarithm"
    out = rows.tell(Defect.IMPOSSIBLE, loss <= 0, sentence, out=True)
    below = np.unique(np.column_stack([size, loss])[loss < 0], axis=0)
    sizes, values = np.unique(below[:, 0], return_counts=True)
    sentence = "are of sizes whose losses go below zero in several runs: add their lower bound"
    crossing = np.isin(size, sizes[values > 1]) & ~out
    rows.drop(out | rows.tell(Defect.IMPOSSIBLE, crossing, sentence, out=True))


def unsound(rows: GroupRows) -> None:
    """Every test of rows with numbers, in its order."""
    for test in (repeats, near_repeats, strays, tokens, steps, unsaid):
        test(rows)


def repeats(rows: GroupRows) -> None:
    """Rows that stand twice, and runs that do with different losses."""
    loss, (point, points), seed = rows.loss, rows.points(), rows.seed
    if points == len(loss):
        return
    run, repeated = _recurring(point * (seed.max() + 2) + seed + 1)
    if not repeated.any():
        return
    order = np.flatnonzero(repeated)
    order = order[np.lexsort((rows.table.rows[order], loss[order], run[order]))]
    same = np.zeros(len(run), bool)
    same[order[1:]] = (run[order][1:] == run[order][:-1]) & (loss[order][1:] == loss[order][:-1])
    if not rows.question.seed:
        # Two seeds may end with one loss if it was printed with few digits.
        same[same] = [_digits(value) >= DIGITS for value in loss[same]]
    out = rows.tell(Defect.DUPLICATE, same, "repeat a row of the table with the same loss")
    if rows.question.seed:
        twice = np.zeros(len(run), bool)
        twice[~out] = _recurring(run[~out])[1]
        sentence = "repeat a run of the same size, rate and seed with another loss"
        rows.tell(Defect.REPEATED, twice, sentence)
    rows.drop(out)


def near_repeats(rows: GroupRows) -> None:
    """Runs of one size and rate that end alike, nearly all of them: they are no other seeds.

    The one with the first seed stays, or the lowest loss.
    """
    point, points = rows.points()
    if points == len(point):
        return
    loss = np.log(rows.loss)
    ended = np.flatnonzero(np.isfinite(loss))
    ended = ended[np.lexsort((loss[ended], rows.seed[ended]))]
    run, repeated = _recurring(point[ended])
    if not repeated.any():
        return
    first = first_of_each(run, int(run.max()) + 1)
    ends = np.full((2, len(first)), -math.inf)
    for end, values in zip(ends, (loss[ended], -loss[ended]), strict=True):
        np.maximum.at(end, run, values)
    apart = ends.sum(0)
    if np.median(apart[np.unique(run[repeated])]) >= NEARLY:
        return
    later = repeated & (apart[run] < NEARLY)
    later[first] = False
    alike = np.zeros(len(loss), bool)
    alike[ended[later]] = True
    sentence = "end like another one of the same size and rate, to 0.01%"
    if rows.question.seed:
        sentence += ", as if the seed were not applied"
    rows.drop(rows.tell(Defect.DUPLICATE, alike, sentence))


def _recurring(*key: Array | Index) -> tuple[Index, Flags]:
    """A number for each distinct row of a key, and whether it stands there more than once."""
    number, count = distinct(*key)
    return number, np.asarray(np.bincount(number, minlength=count)[number] > 1)


def _digits(value: float) -> int:
    if not math.isfinite(value):
        return 0
    return len(f"{value:.15g}".split("e")[0].replace(".", "").replace("-", "").strip("0"))


def strays(rows: GroupRows) -> None:
    """Rates beyond sense, and losses far below all others."""
    sizes, size = rows.sizes()
    rate, loss = np.log2(rows.rate), rows.loss
    tuned = rows.tuned
    sentence = f"have a {rows.tuned} more than 256 times beyond all others"
    out = rows.tell(
        Defect.RATE,
        beyond_sense(rate),
        sentence,
        reasons=lambda i: f"{tuned} {2.0 ** rate[i]:.3g} lies alone",
    )
    low = impossible(size, np.where(np.isnan(loss), math.inf, np.log(loss)), np.log2(sizes))
    sentence = "end far below every other run, as no neighbour does"
    low = rows.tell(
        Defect.IMPOSSIBLE,
        low,
        sentence,
        reasons=lambda i: f"a loss of {loss[i]:.3g}, far below every other run",
    )
    rows.drop(out | low)


def tokens(rows: GroupRows) -> None:
    """Slices that count tokens otherwise than batch x steps x length, all by one factor."""
    question, cells = rows.question, rows.table.numbers
    if not question.steps or not {"batch", "tokens"} <= question.axes.keys():
        return
    batch, tokens = (cells[question.axes[axis]] for axis in ("batch", "tokens"))
    ratio = np.log(tokens / (batch * cells[question.steps]))
    factor = ratio - float(np.median(ratio))
    _, which, runs = np.unique(
        np.round(factor / COUNT_OFF), return_inverse=True, return_counts=True
    )
    # A run that was cut short has a factor of its own; of a slice all rows have one.
    off = (np.abs(factor) > COUNT_OFF) & (runs[which.reshape(-1)] >= 3)
    if off.mean() > 1 / 3:
        return
    sentence = "count their tokens otherwise than batch x steps x length"
    out = rows.tell(
        Defect.UNIT,
        off,
        sentence,
        reasons=lambda i: f"tokens are {math.exp(factor[i]):.3g} times batch x steps x length",
    )
    rows.drop(out)


def steps(rows: GroupRows) -> None:
    """Runs that were cut short."""
    if not rows.counts_steps:
        return
    size = rows.sizes()[1]
    taken = rows.table.numbers[rows.question.steps]
    usual = usual_steps(size, taken)
    usually = (np.abs(taken / usual - 1) <= CUT) | ~np.isfinite(rows.loss)
    if usually.mean() < 0.5:
        column = rows.question.steps
        last = equalities([(column, f"{taken.max():.10g}")])
        raise ValueError(
            f"Expected most runs of a size to have one number of steps{rows.of_group}; in "
            f"{printable(repr(column))} they differ. If rows are points of logs, keep the ends: "
            f"--where {printable(shlex.quote(last))}. If each is a run, make it an axis: --axes "
            f"steps={printable(column)}."
        )
    sentence = "were trained for another number of steps than most of their size"
    out = rows.tell(
        Defect.SHORT,
        ~usually,
        sentence,
        reasons=lambda i: f"{taken[i]:g} steps, where others of its size have {usual[i]:g}",
    )
    rows.drop(out)


def unsaid(rows: GroupRows) -> None:
    """Runs without a loss or a word on why: diverged if smaller rates trained better."""
    rate, loss = rows.rate, rows.loss
    nothing = np.isnan(loss)
    if not nothing.any():
        return
    size = rows.sizes()[1]
    diverged = nothing & (rate > best_of_size(size, rate, loss)[1])
    rows.with_losses(np.where(diverged, math.inf, loss))
    sentence = "have no loss, at rates no larger than their size's best"
    rows.drop(rows.tell(Defect.MISSING, nothing & ~diverged, sentence, out=True))


def rates_and_losses(rows: GroupRows, above: Flags | None = None) -> tuple[Array, Array]:
    """log2 rates, and losses that are infinite where runs diverged, or are said to be far above."""
    diverged = np.isinf(rows.loss)
    if above is None:
        above = np.zeros_like(diverged)
    far = f", {above.sum()} of them with a finite loss far above what smaller rates leave"
    rows.tell(Defect.DIVERGED, above | diverged, f"diverged{far if above.any() else ''}")
    return np.log2(rows.rate), np.where(above, math.inf, rows.loss)
