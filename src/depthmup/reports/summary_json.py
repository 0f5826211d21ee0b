"""The result as strict JSON, for other programs."""

from collections.abc import Sequence
from typing import Any

from depthmup.records import Estimate, Study, Transfer
from depthmup.records.certificate import Certificate
from depthmup.records.codec import encode, strict
from depthmup.records.finding import UNKNOWN, verdict_of_all
from depthmup.records.search import SearchStory
from depthmup.records.study import plural
from depthmup.reports.certificate import certified, to_use
from depthmup.reports.next_steps import next_steps
from depthmup.reports.sentences import base_optimum, headline, holding
from depthmup.reports.study_rows import ROWS, size_of, transfers

SCHEMA = 4
"""Version of the file's layout."""

CONFIDENCE = 0.95
"""Of the intervals of optima."""


def summary(
    study: Study,
    *more: Study,
    certificates: Sequence[Certificate] = (),
    whole: bool = False,
) -> dict[str, Any]:
    """The headline windows' findings, with how they were measured, as strict JSON holds them.

    docs/reference/files.md has every field. Numbers that could not be measured or are infinite are
    null, so that ``json.dumps(summary(study), allow_nan=False)`` never fails. A report that has no
    store beside it holds its ``studies`` and ``certificates`` whole.

    Args:
        study: whose findings come first.
        more: further axes or variants.
        certificates: of the target.
        whole: whether to hold everything, from which ``depthmup.load`` makes the report again.

    Returns:
        Values that strict JSON holds.

    Example:
        >>> from depthmup.reports import example_study
        >>> for scheme in summary(example_study())["schemes"]:
        ...     print(scheme["scheme"], scheme["verdict"])
        depth-mup transfers
        sp drifts
    """
    what = study.tuned
    kept = {"studies": (study, *more), "certificates": tuple(certificates)}
    beyond = {
        name: [row for one in (study, *more) for row in ROWS[name](one)]
        for name in ("rules", "laws", "notes")
    }
    findings = {
        "schema": SCHEMA,
        "headline": _headline((study, *more), certificates),
        "best": _best((study, *more), certificates),
        **({} if what.is_learning_rate else {"tuned": what.key}),
        "schemes": [_scheme(s, transfer) for s in (study, *more) for transfer in transfers(s)],
        **({"together": together} if (together := _together((study, *more))) else {}),
        "config": study.config,
        "environment": study.environment,
        **({"search": _search(study.search, study.tuned.column)} if study.search else {}),
        "next": [
            {"do": step.lead, "copy": step.code}
            for step in next_steps((study, *more), certificates)
        ],
        **{name: rows for name, rows in beyond.items() if rows},
        **(
            {"gains": found}
            if (found := encode([g for s in (study, *more) for g in s.gains]))
            else {}
        ),
        **(
            {"ablations": rules}
            if (rules := encode([a for s in (study, *more) for a in s.ablations]))
            else {}
        ),
    }
    result: dict[str, Any] = strict(findings)
    return {**result, **(encode(kept) if whole else {})}


def _headline(studies: Sequence[Study], certificates: Sequence[Certificate]) -> str:
    """The first line of a report: the value to use, or else what was found."""
    found = " ".join(headline(study) for study in studies)
    return next(iter(to_use(studies, certificates)), found)


def _best(studies: Sequence[Study], certificates: Sequence[Certificate]) -> dict[str, Any] | None:
    """The value to use: at the target where one is certified, else the best at the base."""
    first = next(iter(transfers(studies[0])), None)
    best = holding(*studies) or first
    if best is None:
        return None
    value, size, confidence, scheme = UNKNOWN, dict[str, float](), CONFIDENCE, best.scheme
    if (at := base_optimum(studies[0], best)) is not None:
        value, size = at.log2_lr.exp2(), dict(at.size)
    if (found := certified(studies, certificates)) is not None:
        value, size, confidence = found.value, dict(found.target), found.confidence
        scheme = found.scheme
    of_scheme = (t.verdict for s in studies for t in transfers(s) if t.scheme == scheme)
    return {
        "scheme": scheme,
        "verdict": verdict_of_all(of_scheme),
        "size": size,
        studies[0].tuned.key: value.value,
        "low": value.low,
        "high": value.high,
        "confidence": confidence,
        "certified": found is not None,
    }


def _together(studies: Sequence[Study]) -> list[dict[str, Any]]:
    """What all groups of a table show together along each axis, where they are many."""
    return [
        {
            "axis": study.axis,
            "groups": together.groups,
            "drift": _estimate(together.mean, f"octaves per doubling of {study.axis}"),
            "scatter": together.scatter,
            "new_group": _estimate(together.new_group, f"octaves per doubling of {study.axis}"),
            "verdict": together.verdict,
        }
        for study in studies
        if (together := study.together) is not None
    ]


def _search(story: SearchStory, column: str) -> dict[str, Any]:
    """The rounds in order, and what a grid would have taken."""
    return {
        "runs": story.runs,
        "grid_runs": story.grid_runs,
        "grid_work_over_work": story.saved,
        "ended": story.ended,
        "rounds": [
            {
                "round": one.number,
                "scheme": one.scheme,
                "why": one.why,
                "runs": [
                    {"size": size, column: log2_lr, "seeds": seeds}
                    for size, log2_lr, seeds in one.asked
                ],
                "drift": {
                    axis: _estimate(drift, f"octaves per doubling of {axis}")
                    for axis, drift in one.drifts.items()
                },
            }
            for one in story.rounds
        ],
    }


def _scheme(study: Study, transfer: Transfer) -> dict[str, Any]:
    return {
        "scheme": transfer.scheme,
        "alpha": transfer.alpha,
        "gamma": transfer.gamma,
        "axis": study.axis,
        plural(study.axis): [size_of(study, optimum) for optimum in transfer.optima],
        "optimum": [
            {
                **optimum.size,
                study.tuned.column: optimum.log2_lr.value,
                "low": optimum.log2_lr.low,
                "high": optimum.log2_lr.high,
                "loss": optimum.loss.value,
                "status": optimum.place,
            }
            for optimum in transfer.optima
        ],
        "drift": _estimate(transfer.drift, f"octaves per doubling of {study.axis}"),
        **(
            {"interactions": {a: _estimate(s, s.unit) for a, s in transfer.interactions.items()}}
            if transfer.interactions
            else {}
        ),
        "regret": _estimate(transfer.regret, "loss"),
        "bend": _estimate(transfer.bend, "change per doubling"),
        "question": transfer.question,
        "verdict": transfer.verdict,
        "why": transfer.why,
    }


def _estimate(estimate: Estimate, unit: str) -> dict[str, Any]:
    return {
        "estimate": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "unit": estimate.unit or unit,
    }
