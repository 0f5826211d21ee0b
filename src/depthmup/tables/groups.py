"""From a table to the studies of its groups: one for each axis, each group a variant."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from depthmup._version import __version__
from depthmup.records import UNKNOWN, AcrossGroups, Certificate, Study, Transfer
from depthmup.records.certificate import Lack, Refusal
from depthmup.records.judgement import Answer, JointLaw, Judgement
from depthmup.records.note import Note
from depthmup.records.printable import printable
from depthmup.records.text import begin, counted
from depthmup.rules import Scheme, canonical
from depthmup.rules import scheme as scheme_named
from depthmup.rules.claims import claims
from depthmup.statistics import Curves
from depthmup.statistics.groups import MANY, across_groups, comparable
from depthmup.statistics.runs import Runs
from depthmup.statistics.scattered import RUNS
from depthmup.statistics.study import answer, far_sizes, judged, window
from depthmup.statistics.table import confounded
from depthmup.tables.clean import Cleaned, clean, own_runs
from depthmup.tables.columns import TITLE, listed, propose
from depthmup.tables.held import fixed_of, question_of, unnamed
from depthmup.tables.laws import from_law, joint_law, pooled_joint_law, sparse
from depthmup.tables.predict import checked_target, predict
from depthmup.tables.question import Question
from depthmup.tables.read import RunTable
from depthmup.tables.rows import Excluded
from depthmup.tables.settings import of_runs
from depthmup.tables.where import equalities, is_number

MOST_GROUPS = 40
VERSION = 5
"""Of what is concluded: raised when the same table would give another study."""


def cleaned(question: Question) -> tuple[RunTable, list[Cleaned]]:
    """The rows of a table that satisfy the filter, and the groups of these."""
    rows = question.read()
    groups = [_group(part, name, where, question) for name, where, part in _groups(rows, question)]
    return rows, groups


def studies_of(rows: RunTable, groups: Sequence[Cleaned], question: Question) -> tuple[Study, ...]:
    """A study along every axis that varies, from the groups of a table's filtered rows."""
    # One group that cannot be fitted is a result beside the others; none at all is an error.
    if all(group.runs.problem for group in groups):
        raise ValueError(groups[0].runs.problem)
    laws = [_law(group, question) for group in groups]
    notes = [note for group in groups for note in group.notes]
    notes += _notes(groups, question, rows.total - len(rows))
    studies = [_study(groups, laws, axis, question) for axis in question.axes]
    excluded = sum(len(group.excluded) for group in groups)
    return tuple(
        replace(
            study,
            title=question.reading.title or f"Fit of {rows.title}",
            config=_config(question, groups, rows=len(rows), excluded=excluded),
            environment={"depthmup": __version__, "fit": VERSION},
            # What is said of all axes stands in the first.
            laws=() if i else tuple(law for law in laws if law is not None),
            notes=(*(() if i else notes), *study.notes),
        )
        for i, study in enumerate(study for study in studies if study is not None)
    )


def _config(
    question: Question, groups: Sequence[Cleaned], *, rows: int, excluded: int
) -> dict[str, object]:
    scheme = question.scheme
    return {
        "table": question.path,
        "axes": dict(question.axes),
        "lr": question.lr,
        "loss": question.loss,
        "seed": question.seed,
        "steps": question.steps,
        "by": list(question.by),
        "groups": {group.runs.name: group.where for group in groups if group.where},
        "where": list(question.where),
        "ignore": list(question.ignore),
        "keep": sorted(listed(question.reading.keep)),
        "rows": rows,
        "excluded": excluded,
        "scheme": "" if scheme is None else scheme.title,
        "target": dict(question.target or {}),
        "tolerance": question.tolerance,
        **({"command": list(question.command)} if question.command else {}),
    }


def _group(part: RunTable, name: str, where: str, question: Question) -> Cleaned:
    """One group, or why it cannot be fitted."""
    title = part.first(TITLE) if question.own else _title(name, question.by)
    try:
        group = (own_runs if question.own else clean)(part, question, name=name, title=title)
    except ValueError as error:
        runs = Runs(name=name, title=title, sizes=(), curves=Curves.none(), problem=str(error))
        return Cleaned(runs=runs, notes=(), where=where)
    asked = {axis: question_of(group, axis, question.tuned) for axis in group.runs.varied()}
    return replace(group, where=where, runs=replace(group.runs, question=asked))


def _title(name: str, by: Sequence[str]) -> str:
    """A group in a sentence: a word says by itself what it is, a number does not."""
    if len(by) == 1:
        value = name.removeprefix(f"{printable(by[0])} ")
        if value[:1].isalpha() and not is_number(value):
            return value
    return begin(name) or "All runs"


def _partners(group: Cleaned) -> list[tuple[str, ...]]:
    """Axes that always change together among the sizes that can be used."""
    runs = group.runs
    if runs.problem or runs.base is not None:
        return []
    return confounded(runs.array[runs.inside], list(runs.sizes[0]))


def _law(group: Cleaned, question: Question) -> JointLaw | None:
    """The law of all axes; a pooled one stands for slices that show none."""
    if group.runs.problem:
        return None
    if group.law is not None:
        return pooled_joint_law(group.runs, question.tuned, group.law)
    joint = joint_law(group.runs, question.tuned)
    # Two rates say on which side an optimum lies: many such sizes fix a law that none has alone.
    if sparse(group.runs, joint) and not _partners(group) and not question.own:
        return pooled_joint_law(group.runs, question.tuned) or joint
    return joint


def _study(
    groups: Sequence[Cleaned], laws: Sequence[JointLaw | None], axis: str, question: Question
) -> Study | None:
    """The study along an axis, of the groups in which it varies; none where it does in none."""
    tuned, tolerance = question.tuned, question.tolerance
    kept = [
        (group, law)
        for group, law in zip(groups, laws, strict=True)
        if group.runs.problem or axis in group.runs.varied()
    ]
    if all(group.runs.problem for group, _ in kept):
        return None
    along = window([group.runs for group, _ in kept], axis, tolerance=tolerance, tuned=tuned)
    transfers: list[Transfer] = []
    rules: list[Judgement] = []
    notes: list[Note] = []
    for (group, law), transfer in zip(kept, along.transfers, strict=True):
        if group.runs.problem:
            transfers.append(transfer)
            continue
        transfer = from_law(
            transfer,
            axis,
            law,
            tolerance=tolerance,
            tuned=tuned,
            moved=group.law is not None,
            confounded=any(axis in axes for axes in _partners(group)),
        )
        transfers.append(transfer)
        notes += far_sizes(group.runs, axis, tuned)
        if tuned.is_learning_rate and not unnamed(group, axis):  # of which published rules speak
            spoken = claims(
                axis,
                _fixed(group, axis, question),
                _scheme_of(group, question),
                batch_held=_batch_held(group, question),
            )
            rules += judged(group.runs, axis, transfer.drift, spoken, tolerance)
    together = _together(transfers, question)
    if together is not None:
        rules = [*_judged_together(rules, together, tolerance), *rules]
    return Study(
        title="",
        windows=(replace(along, transfers=tuple(transfers)),),
        together=together,
        tolerance=tolerance,
        config={},
        environment={},
        axis=axis,
        tuned=tuned,
        rules=tuple(rules),
        notes=tuple(notes),
    )


def _together(transfers: Sequence[Transfer], question: Question) -> AcrossGroups | None:
    """What all groups of a table show together along an axis, where they are many.

    Variants of this package's own runs are alternatives, of which no mean says anything.
    """
    if not question.by or question.own:
        return None
    together = across_groups(comparable(transfers), tolerance=question.tolerance)
    return together if together.groups >= MANY else None


def _judged_together(
    rules: Sequence[Judgement], together: AcrossGroups, tolerance: float
) -> list[Judgement]:
    """The rules once more, by the drift of all groups; each group has costs of its own."""
    once: dict[tuple[str, float], Judgement] = {}
    for rule in rules:
        once.setdefault((rule.rule, rule.exponent), rule)
    return [
        replace(
            rule,
            scheme="",
            cost=UNKNOWN,
            answer=rule.answer
            if rule.answer is Answer.ELSEWHERE
            else answer(together.mean, rule.exponent, tolerance),
        )
        for rule in once.values()
    ]


def _fixed(group: Cleaned, axis: str, question: Question) -> str:
    """What stays as the batch grows: tokens or steps, as designs of sweeps have it."""
    if question.own:
        return "tokens" if "tokens" in question.axes else "steps"
    return fixed_of(group, axis)


def _batch_held(group: Cleaned, question: Question) -> bool:
    """Whether the batch is known to stay where another axis grows: an axis, or one value alone."""
    if question.own or "batch" in map(canonical, question.axes):
        return True
    column = propose(question.names).get("batch", "")
    picked = any(c.column == column and len(c.values) == 1 for c in question.conditions)
    one = column in group.settings and len(np.unique(group.settings[column])) == 1
    return column in question.by or picked or one


def _scheme_of(group: Cleaned, question: Question) -> Scheme | None:
    """The scheme by which values were scaled: as was said, or by the name of an own variant."""
    if question.scheme is not None or not question.own:
        return question.scheme
    try:
        return scheme_named(group.runs.name.split()[0])
    except ValueError:
        return None


def prediction(group: Cleaned, question: Question) -> Certificate | None:
    """The prediction at the target, and what published rules prescribe there."""
    if question.target is None or group.runs.problem:
        return None
    scheme, title = _scheme_of(group, question), question.reading.title
    certificate = predict(
        group.runs,
        question.target,
        tolerance=question.tolerance,
        scheme=scheme,
        about={
            "title": ", ".join(part for part in (title, group.runs.name) if part),
            "scheme": "" if scheme is None else scheme.title,
            "measure": question.loss,
            "tuned": question.tuned,
        },
    )
    if group.law is None:
        return certificate
    few = _few_cells(group)
    refusals = tuple(few if r.lack is Lack.SIZES else r for r in certificate.refusals)
    return replace(certificate, refusals=refusals)


def _few_cells(group: Cleaned) -> Refusal:
    """Of a random design the sizes are cells, of which many runs make few."""
    axes = len(group.runs.varied())
    return Refusal(
        lack=Lack.SIZES,
        reason=(
            f"This random search is read in {len(group.runs.sizes)} cells of neighbouring sizes; a "
            "prediction needs three along each axis that is to grow."
        ),
        advice=(
            f"Use {RUNS * 3**axes:,} runs or more, or train several rates at each of three sizes."
        ),
    )


def predicted(runs: Runs | None, target: Mapping[str, float], study: Study) -> Certificate:
    """The certificate of one group for a target, asked for after the fit."""
    if runs is None or runs.problem:
        raise ValueError("Expected the runs of a table for a prediction; fit the table again.")
    return predict(
        runs,
        checked_target(target, runs.sizes[0]),
        tolerance=study.tolerance,
        scheme=None,
        about={"title": runs.name, "tuned": study.tuned, "measure": study.config.get("loss", "")},
    )


def _groups(table: RunTable, question: Question) -> list[tuple[str, str, RunTable]]:
    """The name of each group, the filter that its rows satisfy, and these."""
    by = question.by
    if not by:
        return [("", "", table)]
    keys = np.column_stack([table.codes[column] for column in by])
    distinct, first, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    if len(distinct) > MOST_GROUPS:
        raise ValueError(
            f"Expected at most {MOST_GROUPS} groups; {printable(', '.join(by))} make "
            f"{len(distinct):,}. Pick some with a filter."
        )
    number = number.reshape(-1)
    # Variants of this package stand in their order, by their own names.
    order = np.argsort(first) if question.own else range(len(distinct))
    groups = []
    for i in order:
        values = [table.names[c][code] for c, code in zip(by, distinct[i], strict=True)]
        pairs = list(zip(by, values, strict=True))
        name = ", ".join(f"{column} {value or '(none)'}" for column, value in pairs)
        name = values[0] if question.own else printable(name)
        groups.append((name, equalities(pairs), table.where(number == i)))
    return groups if question.own else sorted(groups, key=lambda group: group[0])


def cells_of(table: RunTable, excluded: Sequence[Excluded]) -> dict[str, list[Any]]:
    """What the excluded rows hold, by column."""
    index = np.searchsorted(table.rows, [e.row for e in excluded])
    cells: dict[str, list[Any]] = {c: v[index].tolist() for c, v in table.numbers.items()}
    for column, codes in table.codes.items():
        cells[column] = [table.names[column][code] for code in codes[index]]
    return cells


def _notes(groups: Sequence[Cleaned], question: Question, filtered: int) -> list[Note]:
    notes = [
        Note(
            scheme=group.runs.name,
            text=f"{begin(' and '.join(axes))} always change together: what each does cannot "
            "be told apart. Vary one alone.",
        )
        for group in groups
        for axes in _partners(group)
    ]
    notes += [
        Note(
            scheme=group.runs.name,
            text=f"{printable(column)} changes with the sizes: a drift may be its doing, so no "
            "published rule is judged by it. Name it as an axis, too.",
        )
        for group in groups
        for column, codes in group.settings.items()
        if len(np.unique(codes)) > 1 and of_runs(column)
    ]
    if filtered:
        notes.append(Note(text=f"The filter leaves out {counted(filtered, 'row')}."))
    for group in groups:
        if group.runs.problem:
            notes.append(Note(text=group.runs.problem, scheme=group.runs.name))
    known = {canonical(a) for a in question.axes}
    if "batch" in known and not {"tokens", "steps"} & known and not question.steps:
        unnamed = [name for name in question.names if name not in question.axes.values()]
        like = propose(unnamed).get("tokens", "")
        text = (
            "Whether tokens or steps were held while the batch changed is not known: name their "
            f"column{f' ({printable(like)}?)' if like else ''} as an axis, or with --steps."
        )
        notes.append(Note(text=text))
    elif {"batch", "tokens"} <= known and not question.steps:
        unnamed = [name for name in question.names if name not in question.axes.values()]
        if like := propose(unnamed).get("steps", ""):
            text = (
                "Tokens are not compared with batch times steps, which finds those in another "
                f"unit: name the column of steps, --steps {printable(like)}."
            )
            notes.append(Note(text=text))
    return notes
