"""Tables from files and frames, in bounded memory: numbers, labels, and what else may differ.

Only what is needed is kept: numbers as arrays, labels as codes, other columns as codes as long as
they have few values; a column of many values is an identity or a measurement, no setting.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.records.printable import printable
from depthmup.tables.cells import to_codes, to_numbers
from depthmup.tables.formats import MOST_ROWS, chunks_of, explained, title_of, too_many

FEW_VALUES = 64
"""Distinct values up to which an unnamed column may be a setting."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunTable:
    """Columns of a table.

    Attributes:
        rows: numbers of the table's rows, from 1; a filter leaves gaps.
        numbers: by column; NaN where a cell is missing, infinite where it says nan or inf.
        unsaid: where a number is NaN without a word on whether it was missing or diverged, as in
            frames; by column.
        codes, names: labels by column: a number for every row, and the text of each number.
        others: unnamed columns of few values.
        total: rows before any filter.
    """

    title: str
    rows: Index
    numbers: Mapping[str, Array]
    unsaid: Mapping[str, Flags]
    codes: Mapping[str, Index]
    names: Mapping[str, list[str]]
    others: tuple[str, ...]
    total: int

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, column: str) -> str:
        """The label of the first row."""
        return self.names[column][int(self.codes[column][0])]

    def where(self, keep: Flags) -> "RunTable":
        """The rows that a flag keeps."""
        return replace(
            self,
            rows=self.rows[keep],
            numbers={name: values[keep] for name, values in self.numbers.items()},
            unsaid={name: values[keep] for name, values in self.unsaid.items()},
            codes={name: values[keep] for name, values in self.codes.items()},
        )


def read(
    source: Any,
    *,
    numbers: Sequence[str],
    labels: Sequence[str],
    sizes: Sequence[str] = (),
    empty: bool = False,
) -> RunTable:
    """A table from a frame or a file; what is not needed is dropped chunk by chunk."""
    values: dict[str, list[Array]] = {name: [] for name in numbers}
    unsaid: dict[str, list[Flags]] = {name: [] for name in numbers}
    codes: dict[str, list[Index]] = {name: [] for name in labels}
    names: dict[str, dict[str, int]] = {name: {} for name in labels}
    dropped: set[str] = set()
    rows = 0
    with explained(source):
        for chunk in chunks_of(source):
            for name in numbers:
                if name not in chunk:
                    column, blank = np.full(len(chunk), math.nan), np.zeros(len(chunk), bool)
                else:
                    column, blank = to_numbers(
                        chunk[name], name, first_row=rows + 1, sizes=name in sizes
                    )
                values[name].append(column)
                unsaid[name].append(blank)
            wanted = [*labels, *(str(c) for c in chunk.columns if c not in {*numbers, *labels})]
            for name in dict.fromkeys(wanted):
                if name in dropped:
                    continue
                if name not in names:  # a column that appears late was empty before
                    names[name], codes[name] = {"": 0}, [np.zeros(rows, np.int64)]
                codes[name].append(to_codes(chunk, name, names[name]))
                # A setting has few values; what has more is a measurement, and would fill memory.
                if name not in labels and len(names[name]) > FEW_VALUES:
                    dropped.add(name)
                    del names[name], codes[name]
            rows += len(chunk)
            if rows > MOST_ROWS:
                raise too_many(rows)
    title = title_of(source)
    if not rows and not empty:
        raise ValueError(f"Expected a table with rows; {printable(title)} has none.")
    none = np.zeros(0)
    whole = {n: np.concatenate([*parts, none.astype(np.int64)]) for n, parts in codes.items()}
    return RunTable(
        title=title,
        rows=np.arange(1, rows + 1),
        numbers={n: np.concatenate([*parts, none]) for n, parts in values.items()},
        unsaid={n: np.concatenate([*parts, none.astype(bool)]) for n, parts in unsaid.items()},
        codes={n: np.pad(v, (0, rows - len(v))) for n, v in whole.items()},
        names={n: list(known) for n, known in names.items()},
        others=tuple(n for n in names if n not in labels),
        total=rows,
    )
