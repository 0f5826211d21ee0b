"""The best value at a target in all axes, with its interval, or a refusal with its reasons."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from depthmup.posterior.intervals import Index
from depthmup.records import LEARNING_RATE, Certificate, Place, Study, Tuned
from depthmup.records.certificate import Lack, Prescribed, Refusal
from depthmup.records.printable import printable
from depthmup.records.sizes import parse_size, size_names, size_value
from depthmup.rules import Scheme
from depthmup.rules.claims import prescribed
from depthmup.statistics import calibrate
from depthmup.statistics.runs import Runs
from depthmup.tables.clean import Cleaned
from depthmup.tables.groups import scheme_of
from depthmup.tables.question import Question

MOST_SIZES = 48
"""Sizes that a prediction rests on, the largest ones: the time grows with their cube."""


def prediction(group: Cleaned, question: Question) -> Certificate | None:
    """The prediction at the target, and what published rules prescribe there."""
    if question.target is None or group.runs.problem:
        return None
    scheme, title = scheme_of(group, question), question.reading.title
    return predict(
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


def predict(
    runs: Runs,
    target: Mapping[str, float],
    *,
    tolerance: float,
    scheme: Scheme | None,
    about: Mapping[str, Any],
) -> Certificate:
    """A certificate of the best value at a target; a refused one says why.

    It rests on all sizes with a run that trains; none that fails may be as small as the target.
    ``about`` are further fields, such as its title.
    """
    if runs.gathered:
        # No run repeats another: those of a cell have sizes and rates of their own.
        about = {**about, "seeds": 1, "config": {"random_runs": runs.gathered}}
    sizes = largest(runs)
    failure = _failed(runs, target, about)
    certificate = calibrate(
        sizes=[{axis: float(n) for axis, n in runs.sizes[s].items()} for s in sizes],
        curves=runs.curves[sizes],
        target={axis: float(n) for axis, n in target.items()},
        chance=runs.chance,
        refusals=() if failure is None else (failure,),
        tolerance=tolerance,
        about=dict(about),
    )
    return replace(certificate, rules=tuple(_prescribed(certificate, target, scheme)))


def _prescribed(
    certificate: Certificate, target: Mapping[str, float], scheme: Scheme | None
) -> Iterator[Prescribed]:
    """What published rules make of the best value at the base, where it is none at an edge."""
    start = next(o for o in certificate.optima if dict(o.size) == dict(certificate.base))
    known = start.log2_lr.known and start.place is Place.INTERIOR
    if known and certificate.tuned.is_learning_rate:
        for rule, value in prescribed(certificate.base, target, start.log2_lr.value, scheme):
            yield Prescribed(rule=rule.name, rate=value, source=rule.source)


def _failed(runs: Runs, target: Mapping[str, float], about: Mapping[str, Any]) -> Refusal | None:
    """Sizes no larger than the target at which nothing trains, if there are any."""
    failed = [runs.sizes[i] for i in np.flatnonzero(runs.optima.failed)]
    sizes = [size for size in failed if all(size[a] <= n for a, n in target.items())]
    if not sizes:
        return None
    tuned: Tuned = about.get("tuned", LEARNING_RATE)
    named = size_names(sizes, runs.sizes)
    return Refusal(
        lack=Lack.FAILED,
        reason=f"No {tuned.name} trains at {named}, and the target is no smaller.",
        advice="Extend the grid downwards there.",
    )


def largest(runs: Runs) -> Index:
    """The sizes that a prediction rests on: the largest ones that train, or all that fail."""
    good = np.flatnonzero(~runs.optima.failed)
    good = good if len(good) else np.arange(len(runs.sizes))
    volumes = np.log2(runs.array[good]).sum(-1)
    return np.asarray(np.sort(good[np.argsort(-volumes, kind="stable")[:MOST_SIZES]]))


def checked_target(target: Any, axes: Iterable[str]) -> dict[str, float]:
    """A target that names every axis, each with a positive number; also as text."""
    if isinstance(target, str):
        target = parse_size(target, option="target")
    if not isinstance(target, Mapping):
        raise ValueError(
            f"Expected target to give a value for every axis, such as "
            f"{{{printable(next(iter(axes)))!r}: 64}}; got {printable(repr(target))}."
        )
    lacking = [a for a in axes if a not in target]
    extra = [a for a in target if a not in axes]
    if lacking or extra:
        said = f"it lacks {', '.join(lacking)}" if lacking else f"it has {', '.join(extra)} too"
        raise ValueError(
            f"Expected a target in all axes, {printable(', '.join(axes))}; {printable(said)}."
        )
    checked = {}
    for axis in axes:
        given = target[axis]
        try:
            value = size_value(given) if isinstance(given, str) else float(given)
        except (TypeError, ValueError):
            value = float("nan")
        if not 0 < value < float("inf") or isinstance(given, bool):
            raise ValueError(
                f"Expected a positive number for the target's {printable(axis)}; got "
                f"{printable(repr(given))}."
            )
        checked[axis] = value
    return checked
