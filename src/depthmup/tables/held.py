"""What is held as an axis grows and what changes too: the question that a drift answers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from depthmup.posterior.intervals import Index
from depthmup.records import Tuned
from depthmup.records.note import Note
from depthmup.records.printable import printable
from depthmup.records.text import begin
from depthmup.rules import canonical
from depthmup.statistics.runs import slices_of
from depthmup.tables.clean import Cleaned
from depthmup.tables.columns import axis_named, propose
from depthmup.tables.ends import is_length
from depthmup.tables.question import Question
from depthmup.tables.settings import is_usual

_OF_RUNS = ("batch", "tokens", "steps", "sequence", "repetition")
_OF_SHAPES = ("width", "depth", "experts", "loops")


def question_of(group: Cleaned, axis: str, tuned: Tuned) -> str:
    """Which question a number along an axis answers."""
    runs = group.runs
    members, together = slices_of(runs, axis)
    fixed = [a for a in runs.varied() if a != axis and a not in together]
    with_it = [a for a in together if a != axis]
    if canonical(axis) == "batch" and not {"tokens", "steps"} & set(map(canonical, runs.sizes[0])):
        budget = _budget(group, axis, members)
        if budget in ("tokens", "steps"):
            fixed.append(budget)
        elif budget:
            with_it.append(budget)
    text = f"the best {tuned.name} against {axis}"
    if with_it:
        text += f", while {' and '.join(with_it)} change with it"
    if fixed:
        text += f", at fixed {' and '.join(fixed)}"
    return text + _settings(group, members)


def fixed_of(group: Cleaned, axis: str) -> str:
    """Whether tokens or steps stay fixed along the batch; empty where that is not known."""
    members, together = slices_of(group.runs, axis)
    names = {canonical(a): a for a in group.runs.sizes[0]}
    for what in ("tokens", "steps"):
        if what in names and names[what] not in together:
            return what
    budget = _budget(group, axis, members)
    return budget if budget in ("tokens", "steps") else ""


def is_batch_held(settings: Mapping[str, Index], question: Question) -> bool:
    """Whether the batch is known to stay where another axis grows: an axis, or one value alone."""
    if question.own or "batch" in map(canonical, question.axes):
        return True
    column = propose(question.names).get("batch", "")
    picked = any(c.column == column and len(c.values) == 1 for c in question.conditions)
    one = column in settings and len(np.unique(settings[column])) == 1
    return column in question.by or picked or one


def _budget(group: Cleaned, axis: str, members: list[Index]) -> str:
    """What stays as the batch grows, by the column of steps: tokens, steps, or neither."""
    if not len(group.steps) or not members:
        return ""
    constant = {"steps": group.steps, "tokens": group.steps * group.runs.along(axis)}
    for what, values in constant.items():
        # Steps are counted in whole numbers and tokens to the last batch: 5% apart is the same.
        if all(np.ptp(np.log(values[m])) < 0.05 for m in members):
            return what
    return "steps and tokens"


def unnamed(group: Cleaned, axis: str) -> list[str]:
    """Columns that nobody named, that change with an axis, and that move the best value, too."""
    if group.prefixes and is_length(axis):
        return [group.prefixes]  # of whose runs these are parts: their schedules had not ended
    members, _ = slices_of(group.runs, axis)
    return confounding(group.settings, axis, group.runs.sizes[0], members)


def confounding(
    settings: Mapping[str, Index], axis: str, axes: Iterable[str], members: Sequence[Index]
) -> list[str]:
    """Columns that change with an axis along some slices, and that move the best value, too."""
    known = set(map(canonical, axes))
    others = [column for column in settings if axis_named(column) not in known]
    return [
        column
        for column in others
        if _confounds(column, axis) and _changes(settings[column], members)
    ]


def _confounds(column: str, axis: str) -> bool:
    """Whether a column is of the runs, of a shape beside another one, or a setting of training."""
    called, shapes = axis_named(column), canonical(axis) in _OF_SHAPES
    return called in _OF_RUNS or (shapes and called in _OF_SHAPES) or is_usual(column)


def _changes(codes: Index, members: Sequence[Index]) -> bool:
    return any(len(np.unique(codes[member])) > 1 for member in members)


def _settings(group: Cleaned, members: list[Index]) -> str:
    """Which settings change with the axis, and which usual ones do not."""
    changed, same = [], []
    for name in group.settings if members else ():
        if _changes(group.settings[name], members):
            changed.append(name)
        elif is_usual(name):
            same.append(name)
    text = f", {' and '.join(same)} unchanged" if same else ""
    return text + (f", while {' and '.join(changed)} change too" if changed else "")


def in_step_notes(groups: Sequence[Cleaned]) -> Iterator[Note]:
    """Axes whose effects no size tells apart."""
    for group in groups:
        for axes in group.runs.in_step:
            text = (
                f"{begin(' and '.join(axes))} always change together: what each does cannot be "
                "told apart. Vary one alone."
            )
            yield Note(text=text, scheme=group.runs.name)


def unnamed_notes(groups: Sequence[Cleaned]) -> Iterator[Note]:
    """Columns that nobody named, and that move the best value, too."""
    for group in groups:
        if group.prefixes:
            text = (
                f"Rows are checkpoints of runs, as {printable(repr(group.prefixes))} shows: along "
                "their steps the schedule of a run had not ended. A law for the length of training "
                "needs runs that ended there, so no published rule is judged."
            )
            yield Note(text=text, scheme=group.runs.name)
        axes = group.runs.varied() if group.settings else ()
        along = {axis: unnamed(group, axis) for axis in axes}
        for column in group.settings:
            if with_it := [axis for axis in axes if column in along[axis]]:
                these = " and ".join(map(printable, with_it))
                yield Note(text=its_doing(column, these), scheme=group.runs.name)


def its_doing(column: str, axes: str) -> str:
    """A sentence on a column that changes with axes and was not named."""
    return (
        f"{printable(column)} changes with {axes}: a drift may be its doing, so no "
        f"published rule is judged along {axes}. Name it as an axis, too."
    )


def budget_notes(question: Question) -> Iterator[Note]:
    """Columns that would tell what was held as the batch grew, or check the tokens."""
    known = {canonical(axis) for axis in question.axes}
    if "batch" not in known or question.steps or "steps" in known:
        return
    like = propose([name for name in question.names if name not in question.axes.values()])
    if "tokens" not in known:
        column = f" ({printable(like['tokens'])}?)" if "tokens" in like else ""
        yield Note(
            text="Whether tokens or steps were held while the batch changed is not known: name "
            f"their column{column} as an axis, or with --steps."
        )
    elif "steps" in like:
        yield Note(
            text="Tokens are not compared with batch times steps, which finds those in another "
            f"unit: name the column of steps, --steps {printable(like['steps'])}."
        )
