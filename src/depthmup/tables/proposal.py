"""Which runs a table of results lacks most, for people with their own trainer or job queue."""

import math
import reprlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from depthmup.posterior.intervals import Index
from depthmup.records import LEARNING_RATE, worded
from depthmup.records.grammar import either
from depthmup.records.printable import printable
from depthmup.statistics import MOST_SEEDS, TOLERANCE, Search, next_round
from depthmup.statistics.bracket import GRAIN
from depthmup.statistics.drift import check_tolerance
from depthmup.tables.columns import one_column, texts
from depthmup.tables.ends import ended
from depthmup.tables.formats import Source
from depthmup.tables.question import Question, Reading
from depthmup.tables.read import RunTable
from depthmup.tables.rows import GroupRows
from depthmup.tables.settings import settings_of
from depthmup.tables.where import parse_filters

DIGITS = 6
"""Significant digits of a proposed rate: far more than rates are told apart by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NextRuns:
    """Runs to be made next, as rows of the table that was asked about.

    Attributes:
        rows: columns and values; a list without entries if nothing more is to be trained.
        why: what these runs are for, or why there are none.
    """

    rows: tuple[Mapping[str, Any], ...]
    why: str


LARGEST = 1e30
"""Of an axis: far more tokens than there are."""

STEEPEST = 10
"""Power of an axis above which no run's cost grows."""


def next_runs(
    table: Any,
    *,
    axes: Mapping[str, str],
    lr: str,
    loss: str,
    sizes: Mapping[str, Sequence[int]],
    seed: str = "",
    base: Mapping[str, int] | None = None,
    tolerance: float = TOLERANCE,
    tuned: str = LEARNING_RATE.name,
    start: float | None = None,
    cost: Mapping[str, float] | None = None,
    seeds: int = MOST_SEEDS,
    precision: float | None = None,
    chance: float = math.inf,
    ignore: str | Sequence[str] = (),
    where: str | Sequence[str] = (),
) -> NextRuns:
    """The most informative runs to train next, from the results so far; trains nothing.

    Add results to the table as they come, and ask again until nothing more is proposed. Then
    ``why`` has the verdict; its interval accounts for the repeated looks. ``depthmup.fit`` gives
    the whole report of the table.

    Args:
        table: a pandas DataFrame, or the path of a CSV, JSON lines or Parquet file; it may have no
            rows yet. A loss of nan or inf is a run that diverged, an empty one is no result yet.
        axes: the columns of the sizes, by the names of their axes.
        lr: the column of the learning rate.
        loss: the column of the final loss.
        sizes: the sizes to decide about: values along each axis, the others at the base's.
        seed: the column of the seed; without one, every run has its own.
        base: where the arms of the axes meet; the smallest values unless given.
        tolerance: largest drift, in octaves per doubling, that still counts as staying.
        tuned: the hyperparameter in the column ``lr``, in words, if not the learning rate.
        start: first value to try; by default a usual one.
        cost: powers of the axes that a run costs, such as ``{"depth": 1, "width": 2}``; of an axis
            that is not named 1, of width 2.
        seeds: most seeds of a rate.
        precision: stop when every drift is known to within this many octaves per doubling,
            instead of a verdict.
        chance: the loss of guessing; a size without a run below it fails.
        ignore: columns to ignore when runs are grouped.
        where: filters such as ``"optimizer == adamw"``, as ``fit`` has them; all must hold.

    Returns:
        The runs, and why.

    Raises:
        ValueError: the table cannot be read, sizes and axes do not fit together, or a number is
            none that can be searched with.

    Example:
        >>> import pandas as pd
        >>> empty = pd.DataFrame({"layers": [], "lr": [], "loss": []})
        >>> proposal = next_runs(empty, axes={"depth": "layers"}, lr="lr", loss="loss",
        ...     sizes={"depth": (4, 8, 16)})
        >>> [row["lr"] for row in proposal.rows][:3]
        [0.000244141, 0.000488281, 0.000976562]
    """
    what = worded(tuned)
    named = texts(axes)
    check_tolerance(tolerance)
    _check_search(seeds, cost, {"start": start, "precision": precision, "chance": chance})
    question = Question(
        source=Source(table, loss),
        axes=named,
        lr=one_column(lr),
        loss=loss,
        seed=seed,
        reading=Reading(tuned=tuned, ignore=ignore),
        conditions=parse_filters(where),
    )
    source = _ended(question.read(empty=True), question)
    wanted, smallest = _sizes(axes, sizes, base)
    begin = round(math.log2(what.start if start is None else start), 9)
    points = _points(source, question, begin)
    numbered = {tuple(float(size[a]) for a in question.axes): i for i, size in enumerate(wanted)}
    of_size = np.array([numbered.get(tuple(size), -1) for *size, _ in points], np.int64)
    if (known := of_size >= 0).any():
        rows_of_sizes = GroupRows(table=source.where(known), question=question)
        settings_of(rows_of_sizes, of_size[known], advice=ADVICE)
    labels, number = _seeds(source, question, points)
    search = Search(
        sizes=wanted,
        costs=tuple(_cost(size, cost) for size in wanted),
        base=smallest,
        axes=tuple(axis for axis in sizes if len(sizes[axis]) > 1),
        start=begin,
        seeds=seeds,
        tolerance=tolerance,
        precision=precision,
        chance=chance,
        tuned=what,
    )
    losses, repeats = _losses(source, loss, points, of_size, number, len(wanted))
    step = next_round(search, losses)
    why = f"{step.why.removesuffix('.')}.{_repeated(repeats)}" if repeats else step.why
    rows = [
        {
            **{question.axes[axis]: value for axis, value in wanted[ask.size].items()},
            question.lr: float(f"{2.0**ask.log2_lr:.{DIGITS}g}"),
            **({question.seed: _label(ask.seed, labels)} if question.seed else {}),
        }
        for ask in step.asks
    ]
    return NextRuns(rows=tuple(rows), why=why)


def _ended(source: RunTable, question: Question) -> RunTable:
    """The runs that ended, as ``fit`` has them; none where none did."""
    rows = GroupRows(table=source, question=question)
    if not len(source):
        return source
    try:
        ended(rows)
    except ValueError:  # no run is left
        return source.where(np.zeros(len(source), bool))
    return rows.table


def _check_search(
    seeds: int, cost: Mapping[str, float] | None, amounts: Mapping[str, float | None]
) -> None:
    """Refuse what no search can begin, count or end with."""
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise ValueError(f"Expected seeds as a whole number from 1 on; got {seeds!r}.")
    for name, value in amounts.items():
        highest = math.inf if name == "chance" else sys.float_info.max
        if value is not None and not 0 < value <= highest:
            raise ValueError(f"Expected {name} as a positive number; got {value!r}.")
    if not all(abs(power) <= STEEPEST for power in (cost or {}).values()):
        raise ValueError(
            f"Expected cost as powers of the axes from -{STEEPEST} to {STEEPEST}, such as "
            f"{{'width': 2}}; got {printable(repr(dict(cost or {})))}."
        )


def _sizes(
    axes: Mapping[str, str], given: Mapping[str, Sequence[int]], base: Mapping[str, int] | None
) -> tuple[tuple[dict[str, int], ...], dict[str, int]]:
    """Every size to decide about, and the base."""
    along = {axis: _amounts(values) for axis, values in given.items()}
    if set(along) != set(axes) or not all(along.values()):
        first, *others = axes
        python = [f"{first!r}: (4, 8, 16)", *(f"{axis!r}: (64,)" for axis in others)]
        words = [f"{first}=4,8,16", *(f"{axis}=64" for axis in others)]
        such = either(f"sizes={{{', '.join(python)}}}", f"--sizes {' '.join(words)}")
        raise ValueError(
            f"Expected sizes with positive numbers for {', '.join(axes)}, such as {such}; got "
            f"{printable(reprlib.repr(dict(given))) if given else 'none'}."
        )
    smallest = {axis: min(along[axis]) for axis in along}
    at_base = {**smallest, **(base or {})}
    if not all(axis in along and value in along[axis] for axis, value in at_base.items()):
        raise ValueError(f"Expected base to be one of the sizes; got {dict(base or {})}.")
    if not any(len(along[axis]) > 1 for axis in along):
        raise ValueError("Expected two values or more along one axis; got one of each.")
    sizes = [{**at_base, axis: n} for axis in along for n in sorted(set(along[axis]))]
    return tuple({tuple(size.items()): size for size in sizes}.values()), at_base


def _amounts(values: Any) -> tuple[int, ...]:
    """The values of an axis; none where one of them is no size of a network or of a run."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        return ()
    numbers = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    sound = (
        isinstance(n, int | float) and not isinstance(n, bool) and 0 < n <= LARGEST for n in numbers
    )
    return numbers if all(sound) else ()


def _cost(size: Mapping[str, int], powers: Mapping[str, float] | None) -> float:
    """What a run costs: parameters of a network times the other axes, but for powers given."""
    if unknown := set(powers or ()) - set(size):
        raise ValueError(
            f"Expected cost for the axes {', '.join(size)}; got {printable(', '.join(unknown))}."
        )
    usual = {axis: 2.0 if axis == "width" else 1.0 for axis in size} | dict(powers or {})
    return float(math.prod(float(n) ** usual[axis] for axis, n in size.items()))


ADVICE = (
    "Ask about the rows of one value, make it an axis, or say that it does not matter: "
    "ignore=..., --ignore."
)


def _points(source: RunTable, question: Question, start: float) -> list[tuple[float, ...]]:
    """Every row's size and log2 rate, which is NaN where it cannot be."""
    sizes = [source.numbers[column] for column in question.axes.values()]
    rates = [_log2(float(rate), start) for rate in source.numbers[question.lr]]
    return [tuple(map(float, row)) for row in zip(*sizes, rates, strict=True)]


def _log2(rate: float, start: float) -> float:
    """A rate's logarithm: that of the one asked for, if this is it printed with fewer digits."""
    if not 0 < rate < math.inf:
        return math.nan
    log2 = math.log2(rate)
    near = start + round((log2 - start) / GRAIN) * GRAIN
    printed = (float(f"{2.0**near:.{digits}g}") for digits in range(2, DIGITS + 1))
    return round(near, 9) if rate in printed else round(log2, 3)


def _seeds(
    source: RunTable, question: Question, points: Sequence[tuple[float, ...]]
) -> tuple[list[str], list[int]]:
    """The texts of the seeds, and every row's number.

    A seed that stands at two points or more is one seed. Others take the numbers that are free at
    their point: trainers may log a seed of their own for every run, and so do runs without one.
    """
    names = [f"run {row}" for row in source.rows]
    if question.seed:
        names = [source.names[question.seed][code] for code in source.codes[question.seed]]
    places: dict[str, set[tuple[float, ...]]] = {}
    for name, point in zip(names, points, strict=True):
        places.setdefault(name, set()).add(point)
    common = sorted((name for name, at in places.items() if len(at) > 1), key=_natural)
    # The seed with the most runs is the first, whatever the order of the rows.
    common.sort(key=lambda name: -len(places[name]))
    index = {name: i for i, name in enumerate(common)}
    taken: dict[tuple[float, ...], set[int]] = {}
    for name, i in index.items():
        for point in places[name]:
            taken.setdefault(point, set()).add(i)
    labels = dict(enumerate(common))
    for name, at in places.items():
        if name not in index:
            used = taken.setdefault(next(iter(at)), set())
            index[name] = next(i for i in range(len(used) + 1) if i not in used)
            used.add(index[name])
            labels.setdefault(index[name], name)
    return [labels[i] for i in range(len(labels))], [index[name] for name in names]


def _natural(name: str) -> tuple[int, str]:
    """The order of seeds: that of numbers, then that of texts."""
    return (int(name), "") if name.isdecimal() else (sys.maxsize, name)


def _losses(
    source: RunTable,
    column: str,
    points: Sequence[tuple[float, ...]],
    of_size: Index,
    number: Sequence[int],
    sizes: int,
) -> tuple[list[dict[float, list[float]]], int]:
    """The losses of every wanted size by log2 rate and seed, and how many runs stand there twice.

    Of a run that stands there twice with different losses the mean counts, as in ``fit``.
    """
    of_runs: dict[tuple[int, float, int], list[float]] = {}
    results = source.numbers[column]
    unsaid = source.unsaid.get(column, np.zeros(len(source), bool))
    for row, (*_, log2) in enumerate(points):
        loss = float(results[row])
        if of_size[row] < 0 or math.isnan(log2):
            continue
        if math.isnan(loss):
            if not unsaid[row]:
                continue
            loss = math.inf  # a frame's nan: a run that diverged
        if loss <= 0:
            raise ValueError(
                f"Expected positive losses, whose logarithms are compared; row "
                f"{source.rows[row]} has {loss:g}."
            )
        of_run = of_runs.setdefault((int(of_size[row]), log2, number[row]), [])
        if loss not in of_run:
            of_run.append(loss)
    losses: list[dict[float, list[float]]] = [{} for _ in range(sizes)]
    for (i, log2, seed), values in of_runs.items():
        of_rate = losses[i].setdefault(log2, [])
        of_rate += [math.nan] * (seed + 1 - len(of_rate))
        of_rate[seed] = math.fsum(values) / len(values)
    return losses, sum(len(values) > 1 for values in of_runs.values())


def _repeated(runs: int) -> str:
    which = "run stands" if runs == 1 else "runs stand"
    return (
        f" {runs} {which} there twice, with different losses of one seed: the mean counts. Do your "
        "runs take the seeds that they are given?"
    )


def _label(seed: int, labels: Sequence[str]) -> str | int:
    """A seed's name in the table; new ones are whole numbers that it does not have."""
    if seed < len(labels):
        return int(labels[seed]) if labels[seed].isdecimal() else labels[seed]
    taken = {int(label) for label in labels if label.isdecimal()}
    free = (n for n in range(len(labels) + seed + 1) if n not in taken)
    new = [next(free) for _ in range(seed - len(labels) + 1)]
    return new[-1]
