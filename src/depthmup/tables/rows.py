"""The rows of one group that are left, and what was said about the others.

Nothing is dropped without a word: every row that is left out has a reason, and every test that
flags rows leaves a ``Note`` with their count and a sentence.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.records.note import EXCLUDED, Defect, Excluded, Note
from depthmup.records.printable import printable
from depthmup.records.text import counted
from depthmup.statistics.runs import FEWEST_RATES
from depthmup.statistics.scattered import is_scattered
from depthmup.statistics.table import SAME_SIZE, merged
from depthmup.tables.question import Question
from depthmup.tables.read import RunTable, distinct, first_of_each

FEWEST_RUNS = 8
"""Runs beyond one of each size and one of each axis, with which all sizes together have a law."""

SHOWN = 10
"""Rows and sizes that a finding lists."""

MOST_SIZES = 500
"""Sizes of one group; an axis of more values is no axis."""

MOST_SCATTERED = 20_000
"""Sizes of one group whose runs are a random design."""

_OF_ONE = {
    "are": "is", "count": "counts", "end": "ends", "have": "has", "lack": "lacks",
    "repeat": "repeats", "stand": "stands", "were": "was",
}  # fmt: skip
"""The verbs of findings, of one run."""

_DONE = {Defect.DIVERGED: "Counted as infinite losses", Defect.REPEATED: "Averaged"}


@dataclass
class GroupRows:
    """The rows that are left of one group, and what was said of the others so far."""

    table: RunTable
    question: Question
    name: str = ""  # of the group, for messages
    excluded: list[Excluded] = field(default_factory=list)
    findings: list[Note] = field(default_factory=list)
    # Of the table as it is now: both take a good part of a second of a million rows.
    _sizes: tuple[RunTable, Array, Index] | None = None
    _points: tuple[RunTable, Index, int] | None = None

    @property
    def tuned(self) -> str:
        """What is tuned, in words."""
        return self.question.tuned.name

    @property
    def rate(self) -> Array:
        """The tuned value of every row."""
        return self.table.numbers[self.question.lr]

    @property
    def loss(self) -> Array:
        """The loss of every row."""
        return self.table.numbers[self.question.loss]

    @property
    def seed(self) -> Index:
        """Every row's seed, numbered in the order of their texts; -1 where no column was named."""
        if not self.question.seed:
            return np.full(len(self.table), -1, np.int64)
        column = self.question.seed
        ranks = np.unique(np.array(self.table.names[column]), return_inverse=True)[1].reshape(-1)
        return distinct(ranks[self.table.codes[column]])[0]

    @property
    def seed_names(self) -> tuple[str, ...]:
        """The texts of those numbers."""
        if not self.question.seed:
            return ()
        column = self.question.seed
        names = np.array(self.table.names[column])
        return tuple(map(str, np.unique(names[self.table.codes[column]])))

    @property
    def counts_steps(self) -> bool:
        """Whether a column tells the steps of every run, and is no axis."""
        steps = self.question.steps
        return bool(steps) and steps not in self.question.axes.values()

    def sizes(self) -> tuple[Array, Index]:
        """The distinct sizes, (sizes, axes), and every row's number."""
        if self._sizes is not None and self._sizes[0] is self.table:
            return self._sizes[1:]
        axes, numbers = self.question.axes, self.table.numbers
        cells = [_merged(numbers[column]) for column in axes.values()]
        size, count = distinct(*cells)
        sizes = np.column_stack([cell[first_of_each(size, count)] for cell in cells])
        if len(sizes) > (MOST_SCATTERED if self.scattered(size) else MOST_SIZES):
            values = {axis: len(np.unique(numbers[column])) for axis, column in axes.items()}
            axis = max(values, key=lambda a: values[a])
            raise ValueError(
                f"Expected at most {MOST_SIZES} sizes{self.of_group}; got {len(sizes):,}. The "
                f"column {printable(axes[axis])!r} ({axis}) has {values[axis]:,} values: is it an "
                "axis?"
            )
        self._sizes = (self.table, sizes, size)
        return sizes, size

    def points(self) -> tuple[Index, int]:
        """Every row's size and tuned values as one number, and how many of these there are."""
        if self._points is None or self._points[0] is not self.table:
            beside = (self.table.numbers[column] for column in self.question.beside)
            key = distinct(self.rate, *beside, self.sizes()[1], ordered=False)
            self._points = (self.table, *key)
        return self._points[1:]

    def scattered(self, size: Index) -> bool:
        """Whether these are runs of a random design."""
        return is_scattered(size, self.rate)

    def has_curves(self, rates: Index, size: Index, rate: Array) -> bool:
        """Whether enough sizes have three rates, or all sizes together have as many runs.

        ``rates`` is how many every size has.
        """
        fewest = self.question.fewest
        if len(rates) < fewest or (rates >= FEWEST_RATES).sum() >= fewest:
            return len(rates) >= fewest
        pooled = (rates - 1).sum() >= FEWEST_RUNS + len(self.question.axes)
        return bool((pooled and len(np.unique(rate)) > 2) or is_scattered(size, rate))

    def tell(
        self,
        defect: Defect,
        flags: Flags,
        sentence: str,
        *,
        reasons: Callable[[int], str] | None = None,
        out: bool | None = None,
        what: str = "run",
        done: str = "",
    ) -> Flags:
        """Count and list flagged rows; ``done`` says what became of them."""
        count = int(flags.sum())
        if not count:
            return flags
        if out is None:
            out = defect in EXCLUDED and defect not in self.question.reading.kept_defects
        done = done or _DONE.get(defect, "Left out" if out else "Kept")
        verb, _, rest = sentence.partition(" ")
        sentence = f"{_OF_ONE.get(verb, verb) if count == 1 else verb} {rest}".rstrip()
        runs = counted(count, what)
        numbers = self.table.rows[flags]
        shown = tuple(int(row) for row in numbers[:SHOWN])
        self.findings.append(
            Note(
                text=f"{runs} {sentence}. {done}.",
                scheme=self.name,
                defect=defect,
                count=count,
                rows=shown,
            )
        )
        if not out:
            return np.zeros(len(flags), bool)
        texts = [
            sentence if reasons is None else reasons(i) for i in map(int, np.flatnonzero(flags))
        ]
        self.excluded += [
            Excluded(row=int(row), group=self.name, defect=defect, reason=text)
            for row, text in zip(numbers, texts, strict=True)
        ]
        return flags

    def drop(self, flags: Flags) -> None:
        """Leave flagged rows out."""
        if flags.any():
            self.table = self.table.where(~flags)
        if not len(self.table):
            raise ValueError(f"No run is left{self.of_group}. {self.told}")

    @property
    def told(self) -> str:
        """What was left out, for an error, and what helps where that is the table's own way."""
        texts = [finding.text.removesuffix(" Left out.") for finding in self.findings]
        defects = {finding.defect for finding in self.findings}
        if Defect.IMPOSSIBLE in defects:
            texts.append("Add a constant to losses that may be negative.")
        if Defect.NOT_POSITIVE in defects:
            texts.append("Of logarithms use the values themselves.")
        return " ".join(texts)

    def with_losses(self, losses: Array) -> None:
        """Replace the column of losses."""
        numbers = {**self.table.numbers, self.question.loss: losses}
        self.table = replace(self.table, numbers=numbers)

    @property
    def of_group(self) -> str:
        """Which group, as it stands in a message."""
        return f" in the group {printable(self.name)}" if self.name else ""


def _merged(values: Array) -> Array:
    """``statistics.table.merged``, which sorts all rows, only where two values are close."""
    apart = np.sort(np.unique(values))
    return values if (apart[1:] > apart[:-1] * (1 + SAME_SIZE)).all() else merged(values)
