"""The studies of a table: one for each axis that varies, each group a variant."""

from collections.abc import Sequence
from dataclasses import replace

from depthmup._version import __version__
from depthmup.records import UNKNOWN, AcrossGroups, Study, Transfer
from depthmup.records.ablation import Ablation
from depthmup.records.gain import Gain
from depthmup.records.judgement import Answer, JointLaw, Judgement
from depthmup.records.note import Note
from depthmup.records.sizes import size_text
from depthmup.records.text import counted
from depthmup.rules.claims import claims
from depthmup.rules.scheme import single_changes
from depthmup.statistics.ablation import ablations
from depthmup.statistics.gain import gains, without_gain
from depthmup.statistics.groups import MANY, across_groups, comparable
from depthmup.statistics.strays import CUT
from depthmup.statistics.study import answer, far_sizes, judged, window
from depthmup.tables.clean import Cleaned
from depthmup.tables.columns import listed
from depthmup.tables.groups import remedies_of, scheme_of
from depthmup.tables.held import (
    budget_notes,
    fixed_of,
    in_step_notes,
    is_batch_held,
    unnamed,
    unnamed_notes,
)
from depthmup.tables.laws import from_law, joint_law, pooled_joint_law, sparse
from depthmup.tables.question import Question
from depthmup.tables.read import RunTable

VERSION = 10
"""Of what is concluded: raised when the same table would give another study."""


def studies_of(rows: RunTable, groups: Sequence[Cleaned], question: Question) -> tuple[Study, ...]:
    """A study along every axis that varies, from the groups of a table's filtered rows."""
    # One group that cannot be fitted is a result beside the others; none at all is an error.
    if all(group.runs.problem for group in groups):
        raise ValueError(groups[0].runs.problem)
    laws = [_law(group, question) for group in groups]
    notes = [*question.others, *(note for group in groups for note in group.notes)]
    notes += [*in_step_notes(groups), *unnamed_notes(groups)]
    if filtered := rows.total - len(rows):
        notes.append(Note(text=f"The filter leaves out {counted(filtered, 'row')}."))
    notes += [Note(text=g.runs.problem, scheme=g.runs.name) for g in groups if g.runs.problem]
    notes += budget_notes(question)
    axes = [axis for axis in question.axes if not _in_step(groups, axis)]
    found = _gains(groups, question)
    notes += without_gain([group.runs for group in groups], found, question.over)
    studies = [_study(groups, laws, axis, question) for axis in axes]
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
            gains=() if i else found,
            ablations=() if i else _ablations(groups, axes, question),
        )
        for i, study in enumerate(study for study in studies if study is not None)
    )


def _gains(groups: Sequence[Cleaned], question: Question) -> tuple[Gain, ...]:
    """Of groups over the first, or over the one that was named; of many only if one was."""
    if len(groups) >= MANY and not question.over:
        return ()
    runs = [group.runs for group in groups]
    if len(runs) < 2 and question.over:
        raise ValueError(
            f"Expected several groups for a gain over {question.over!r}; got one. Name the column "
            "that tells them apart with by."
        )
    by_name = {group.runs.name: group for group in groups}
    return tuple(
        replace(gain, reservations=(*gain.reservations, *told))
        if (told := _other_steps(by_name[gain.of], by_name[gain.over]))
        else gain
        for gain in gains(runs, over=question.over, target=question.target)
    )


def _ablations(
    groups: Sequence[Cleaned], axes: Sequence[str], question: Question
) -> tuple[Ablation, ...]:
    """What single rules do, where groups are called as schemes with and without them."""
    whole_runs = (group.runs for group in groups if not group.runs.problem)
    runs = {each.name: each for each in whole_runs if each.sizes and not each.gathered}
    # A group is called "scheme mup" in a table, and "mup" in one of this package's own.
    whole, added, changes = single_changes({name: name.rpartition(" ")[2] for name in runs})
    if not changes:
        return ()
    return ablations(
        [*runs.values()],
        changes,
        whole,
        axes,
        added=added,
        tolerance=question.tolerance,
        tuned=question.tuned,
    )


def _other_steps(b: Cleaned, a: Cleaned) -> list[str]:
    """A sentence where runs of one size took other steps in one group than in the other."""
    if not len(a.steps) or not len(b.steps):
        return []
    taken = {tuple(size.items()): n for size, n in zip(a.runs.sizes, a.steps, strict=True)}
    for size, steps in zip(b.runs.sizes, b.steps, strict=True):
        other = taken.get(tuple(size.items()), steps)
        if abs(steps - other) > CUT * other:
            return [
                f"At {size_text(size)} runs of {b.runs.title} took {steps:g} steps, and those of "
                f"{a.runs.title} {other:g}: the gain may be the longer training."
            ]
    return []


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
        **({"remedies": found} if (found := remedies_of(groups)) else {}),
        **({"command": list(question.command)} if question.command else {}),
    }


def _law(group: Cleaned, question: Question) -> JointLaw | None:
    """The law of all axes; a pooled one stands for slices that show none."""
    if group.runs.problem:
        return None
    if group.law is not None:
        return pooled_joint_law(group.runs, question.tuned, group.law)
    joint = joint_law(group.runs, question.tuned)
    # Two rates say on which side an optimum lies: many such sizes fix a law that none has alone.
    if sparse(group.runs, joint) and not group.runs.in_step and not question.own:
        return pooled_joint_law(group.runs, question.tuned) or joint
    return joint


def _in_step(groups: Sequence[Cleaned], axis: str) -> bool:
    """Whether an axis grows in step with an earlier one in every group: one study is of both."""
    kept = [group.runs for group in groups if group.runs.sizes and axis in group.runs.varied()]
    return bool(kept) and all(any(axis in axes[1:] for axes in runs.in_step) for runs in kept)


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
            confounded=any(axis in axes for axes in group.runs.in_step),
        )
        transfers.append(transfer)
        notes += far_sizes(group.runs, axis, tuned)
        if not unnamed(group, axis):
            spoken = claims(
                axis,
                _fixed(group, axis, question),
                scheme_of(group, question),
                batch_held=is_batch_held(group.settings, question),
                quantity=tuned.law,
            )
            rules += judged(group.runs, axis, transfer.drift, spoken, tolerance)
    together = _together(transfers, question)
    if together is not None:
        clear = not any(unnamed(g, axis) for g, _ in kept if g.runs.sizes)
        rules = [*(_judged_together(rules, together, tolerance) if clear else ()), *rules]
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
