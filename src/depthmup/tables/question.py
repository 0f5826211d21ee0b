"""What is asked of a table: which columns mean what, which rows count, and what groups need."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from depthmup.records import TUNED, Tuned, worded
from depthmup.records.note import EXCLUDED, Defect, Note
from depthmup.records.printable import printable
from depthmup.rules import Scheme
from depthmup.statistics import TOLERANCE
from depthmup.tables.columns import CHANCE, RATES, TITLE, check_columns, listed
from depthmup.tables.formats import Source
from depthmup.tables.read import RunTable, read
from depthmup.tables.where import Condition

KEEP: Mapping[str, Defect] = {
    "rate": Defect.RATE,
    "impossible": Defect.IMPOSSIBLE,
    "short": Defect.SHORT,
    "unfinished": Defect.UNFINISHED,
    "duplicate": Defect.DUPLICATE,
    "unit": Defect.UNIT,
}
"""Tests whose rows may be kept all the same, by their names."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How ``fit`` reads a table, where the default reading is not what a person means by it.

    Attributes:
        ignore: columns to ignore when runs are grouped.
        keep: tests to skip, whose rows stay: rate, impossible, short, unfinished, duplicate, unit.
        chance: the loss of guessing; a size fails where no run ends below it.
        tuned: name of the hyperparameter in the column ``lr``.
        title: of the report.
        wide: the axis whose values are names of columns, each with the losses of one size.
        names: pattern of the runs' names where these hold settings: ``"w{width}_lr{lr}_*"``.
    """

    ignore: str | Sequence[str] = ()
    keep: str | Sequence[str] = ()
    chance: float = math.inf
    tuned: str = "learning rate"
    title: str = ""
    wide: str = ""
    names: str = ""

    def __post_init__(self) -> None:
        if unknown := [name for name in listed(self.keep) if name not in KEEP]:
            raise ValueError(
                f"Expected tests to keep rows of: {', '.join(KEEP)}; got "
                f"{printable(', '.join(map(str, unknown)))}."
            )
        if not (isinstance(self.chance, int | float) and self.chance > 0):
            raise ValueError(f"Expected a positive loss of guessing; got {self.chance}.")

    @property
    def kept_defects(self) -> frozenset[Defect]:
        """The defects whose rows are not left out."""
        return frozenset(KEEP[name] for name in listed(self.keep)) & EXCLUDED


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """What is asked of a table and of every group of it."""

    source: Source
    axes: Mapping[str, str]
    """Columns by the names of their axes."""
    lr: str
    loss: str
    beside: tuple[str, ...] = ()
    """Columns of values that were tuned together with the first."""
    seed: str = ""
    steps: str = ""
    by: tuple[str, ...] = ()
    """Columns whose values make groups."""
    base: Mapping[str, str] = field(default_factory=dict)
    """Columns of the size where arms meet, in this package's own tables alone."""
    reading: Reading
    where: tuple[str, ...] = ()
    """The filters as they were given, for the record; ``conditions`` is what they say."""
    conditions: tuple[Condition, ...] = ()
    scheme: Scheme | None = None
    target: Mapping[str, float] | None = None
    over: str = ""
    """The group that gains are over, or a part of its name; the first unless given."""
    tolerance: float = TOLERANCE
    fewest: int = 2
    """Sizes that a group needs: one, where nothing is asked of how the optimum moves."""
    path: str = ""
    """Of the file, as it was given; empty for a frame."""
    command: Sequence[str] = ()
    """That made the runs, where they are those of a folder of this package."""
    others: tuple[Note, ...] = ()
    """What that folder holds beside them."""

    def __post_init__(self) -> None:
        named = {"lr": self.lr, "loss": self.loss, "seed": self.seed, "steps": self.steps}
        named |= {f"lr {n}": column for n, column in enumerate(self.beside, 2)}
        try:
            check_columns(self.names, self.axes, self.by, named)
        except ValueError as error:
            lacks = {named["lr"], *self.axes.values()} - {*self.names} or not self.axes
            if lacks and (pattern := self.source.names_of_runs):
                hint = f"Names of runs hold numbers: --names {printable(shlex.quote(pattern))}"
                raise ValueError(f"{error} {hint} makes columns of them.") from None
            raise

    @property
    def names(self) -> Sequence[str]:
        """All columns of the table."""
        return self.source.names

    @property
    def own(self) -> bool:
        """Whether the table is one of this package's own, of ``report.to_pandas("runs")``."""
        return bool(self.base)

    @property
    def ignore(self) -> tuple[str, ...]:
        """Columns that may differ between runs without meaning anything."""
        return () if self.own else listed(self.reading.ignore)

    @property
    def tuned(self) -> Tuned:
        """What is tuned: of this package's own tables their column says it."""
        if self.own:
            return next(what for what in TUNED if what.key == self.lr)
        return worded(self.reading.tuned)

    def read(self, *, empty: bool = False) -> RunTable:
        """The rows of the table that satisfy the filter."""
        wanted = [condition.column for condition in self.conditions]
        for column in wanted:
            if column not in self.names:
                raise ValueError(
                    f"Expected the column {printable(repr(column))} of a filter in the table; it "
                    f"has {printable(', '.join(map(str, self.names[:20])))}."
                )
        numbers = [*self.axes.values(), self.lr, *self.beside, self.loss, self.steps]
        numbers += self.base.values()
        labels = [self.seed, *self.by]
        if self.own:
            numbers, labels = [*numbers, CHANCE], [*labels, RATES, TITLE]
        labels += [column for column in wanted if column not in numbers]
        table = read(
            self.source,
            numbers=[name for name in dict.fromkeys(numbers) if name],
            labels=[name for name in dict.fromkeys(labels) if name],
            sizes=tuple(self.axes.values()),
            empty=empty,
        )
        keep = np.ones(len(table), bool)
        for condition in self.conditions:
            keep &= condition.holds(table)
        if len(table) and not keep.any():
            raise ValueError("Expected rows that satisfy the filter; none does.")
        return table.where(keep)


def command_of(
    question: Question,
    *,
    by: Sequence[str] = (),
    ignore: Sequence[str] = (),
    where: Sequence[str] = (),
) -> str:
    """What asks the question again with further options: a command, or Python of a frame."""
    named = {"lr": question.lr, "loss": question.loss, "seed": question.seed}
    further = {
        "by": [*question.by, *by],
        "where": [*question.where, *where],
        "ignore": [*question.ignore, *ignore],
    }
    if not question.path:
        reading = f"reading=Reading(ignore={further.pop('ignore')})" if further["ignore"] else ""
        asked = [f"{what}={names}" for what, names in further.items() if names and what != "ignore"]
        return f"fit(..., {', '.join(filter(None, [*asked, reading]))})"
    words = ["depthmup", "fit", question.path, "--axes"]
    words += [a if a == column else f"{a}={column}" for a, column in question.axes.items()]
    for what, column in {**named, "steps": question.steps}.items():
        words += [f"--{what}", column] if column else []
    for what, names in further.items():
        words += [f"--{what}", *names] if names else []
    if question.reading.names:
        words += ["--names", question.reading.names]
    if question.reading.tuned != "learning rate":
        words += ["--tuned", question.reading.tuned]
    return shlex.join(words)
