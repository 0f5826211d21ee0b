"""The groups of a table's rows, each cleaned: its runs, or why they cannot be fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from depthmup.records.note import Excluded
from depthmup.records.printable import printable
from depthmup.records.text import begin
from depthmup.rules import Scheme
from depthmup.rules import scheme as scheme_named
from depthmup.statistics import Curves
from depthmup.statistics.runs import Runs
from depthmup.tables.clean import Cleaned, clean, own_runs
from depthmup.tables.columns import TITLE
from depthmup.tables.held import question_of
from depthmup.tables.question import Question
from depthmup.tables.read import RunTable, distinct, first_of_each
from depthmup.tables.settings import MOST_GROUPS
from depthmup.tables.where import equalities, is_number


def cleaned(question: Question) -> tuple[RunTable, list[Cleaned]]:
    """The rows of a table that satisfy the filter, and the groups of these."""
    rows = question.read()
    groups = [_group(question, *group) for group in parts(rows, question)]
    return rows, groups


def _group(question: Question, part: RunTable, values: Mapping[str, str]) -> Cleaned:
    """One group, or why it cannot be fitted."""
    name, title = named(question, part, values)
    where = equalities(list(values.items())) if values else ""
    try:
        group = (own_runs if question.own else clean)(part, question, name=name, title=title)
    except ValueError as error:
        runs = Runs(name=name, title=title, sizes=(), curves=Curves.none(), problem=str(error))
        return Cleaned(runs=runs, notes=(), where=where, remedy=getattr(error, "remedy", ""))
    asked = {axis: question_of(group, axis, question.tuned) for axis in group.runs.varied()}
    return replace(group, where=where, runs=replace(group.runs, question=asked))


def named(question: Question, part: RunTable, values: Mapping[str, str]) -> tuple[str, str]:
    """A group's name, and its title in sentences."""
    if question.own:
        return values[question.by[0]], part.first(TITLE)
    name = ", ".join(f"{column} {value or '(none)'}" for column, value in values.items())
    return printable(name), _title(values)


def _title(values: Mapping[str, str]) -> str:
    """A group in a sentence: a word says by itself what it is, a number does not."""
    parts = []
    for column, value in values.items():
        word = value[:1].isalpha() and not is_number(value)
        parts.append(value if word else f"{column} {value or '(none)'}")
    title = printable(", ".join(parts))
    words = bool(parts) and parts[0] in values.values()
    return title if words else begin(title) or "All runs"


def parts(table: RunTable, question: Question) -> list[tuple[RunTable, dict[str, str]]]:
    """The rows of each group, and what they have in its columns."""
    by = list(question.by)
    if not by:
        return [(table, {})]
    # A column that is the same in all groups names none of them.
    by = [c for c in by if len(np.unique(table.codes[c])) > 1] or by[:1]
    keys = np.column_stack([table.codes[column] for column in by])
    number, count = distinct(*keys.T)
    first = first_of_each(number, count)
    if count > MOST_GROUPS:
        raise ValueError(
            f"Expected at most {MOST_GROUPS} groups; {printable(', '.join(by))} make "
            f"{count:,}. Pick some with a filter."
        )
    # Variants of this package stand in their order.
    groups = [
        (
            table.where(number == i),
            {c: table.names[c][code] for c, code in zip(by, keys[first[i]], strict=True)},
        )
        for i in (np.argsort(first) if question.own else range(count))
    ]
    return groups if question.own else sorted(groups, key=lambda group: (*group[1].values(),))


def cells_of(table: RunTable, excluded: Sequence[Excluded]) -> dict[str, list[Any]]:
    """What the excluded rows hold, by column."""
    index = np.searchsorted(table.rows, [e.row for e in excluded])
    cells: dict[str, list[Any]] = {c: v[index].tolist() for c, v in table.numbers.items()}
    for column, codes in table.codes.items():
        cells[column] = [table.names[column][code] for code in codes[index]]
    return cells


def remedies_of(groups: Sequence[Cleaned]) -> dict[str, str]:
    """The command that most likely mends each group without a fit."""
    return {group.runs.name: group.remedy for group in groups if group.remedy}


def scheme_of(group: Cleaned, question: Question) -> Scheme | None:
    """The scheme by which values were scaled: as was said, or by the name of an own variant."""
    if question.scheme is not None or not question.own:
        return question.scheme
    try:
        return scheme_named(group.runs.name.split()[0])
    except ValueError:
        return None
