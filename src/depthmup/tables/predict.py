"""The best value at a target in all axes, with its interval, or a refusal with its reasons."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from depthmup.records import LEARNING_RATE, Certificate, Fate, Place, Study, Tuned
from depthmup.records.certificate import Lack, Prescribed, Refusal
from depthmup.records.finding import rate
from depthmup.records.printable import printable
from depthmup.records.sizes import parse_size, size_names, size_text, size_value
from depthmup.rules import Scheme
from depthmup.rules.claims import prescribed
from depthmup.statistics import calibrate, minima, noisy_sizes, optima
from depthmup.statistics.certificate_laws import laws_of, volume
from depthmup.statistics.intervals import Index
from depthmup.statistics.law import predict as predict_law
from depthmup.statistics.optimum import FEWEST_INSIDE
from depthmup.statistics.runs import Runs
from depthmup.statistics.scattered import RUNS
from depthmup.tables.clean import Cleaned
from depthmup.tables.groups import scheme_of
from depthmup.tables.question import Question
from depthmup.tables.score import scored

MOST_SIZES = 48
"""Sizes that a prediction rests on, the largest ones: the time grows with their cube."""


FEWEST = 4
"""Sizes that are kept however much they scatter; the certificate then says so."""


def prediction(group: Cleaned, question: Question) -> Certificate | None:
    """The prediction at the target, and what published rules prescribe there."""
    if question.target is None or group.runs.problem:
        return None
    scheme, title = scheme_of(group, question), question.reading.title
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


def predict(
    runs: Runs,
    target: Mapping[str, float],
    *,
    tolerance: float,
    scheme: Scheme | None,
    about: Mapping[str, Any],
) -> Certificate:
    """A certificate of the best value at a target; a refused one says why.

    Sizes whose optimum is beside a divergence are left out, as their curves know no optimum; none
    of them is certified where no size is left. The one nearest to the target must not contradict
    the others' law, and no size up to the target may fail. ``about`` are further fields, such as
    its title.
    """
    if runs.gathered:
        # No run repeats another: those of a cell have sizes and rates of their own.
        about = {**about, "seeds": 1, "config": {"random_runs": runs.gathered}}

    def forecast(size: Mapping[str, float], sizes: Index, *refusals: Refusal) -> Certificate:
        return calibrate(
            sizes=[{axis: float(n) for axis, n in runs.sizes[s].items()} for s in sizes],
            curves=runs.fitted[sizes],
            target={axis: float(n) for axis, n in size.items()},
            chance=runs.chance,
            given=True,
            refusals=refusals,
            tolerance=tolerance,
            about=dict(about),
        )

    good = chosen(runs)
    if not len(good):
        # Their own curves say why.
        return forecast(target, _largest(runs, np.arange(len(runs.sizes))))
    if failure := _failed(runs, target, about):
        return forecast(target, good, failure)
    certificate = forecast(target, good)
    if _lacks(certificate, Lack.SIZES) and not runs.gathered:
        # Where others could be measured better, that is what they lack.
        every = forecast(target, _largest(runs, np.flatnonzero(~runs.optima.failed)))
        return certificate if every.issued else every
    nearest, contradiction = _nearest(runs, target), None
    if certificate.issued and nearest not in good and not runs.optima.failed[nearest]:
        there = forecast(runs.sizes[nearest], good)
        contradiction = _contradiction(there, runs, nearest) if there.issued else None
    if contradiction is not None:
        certificate = forecast(target, good, contradiction)
    elif len(more := with_edges(runs, good)) > len(good):
        certificate = forecast(target, more)
    return replace(certificate, rules=tuple(_prescribed(certificate, target, scheme)))


def _lacks(certificate: Certificate, lack: Lack) -> bool:
    return any(refusal.lack is lack for refusal in certificate.refusals)


def _nearest(runs: Runs, target: Mapping[str, float]) -> int:
    """The measured size with the fewest doublings to the target."""
    away = [sum(abs(math.log2(size[a] / n)) for a, n in target.items()) for size in runs.sizes]
    return away.index(min(away))


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


def _contradiction(there: Certificate, runs: Runs, nearest: int) -> Refusal | None:
    """What the others' law forecasts at a measured size, missed by that size's own runs."""
    score, wall = scored(there, [runs]), _wall(runs, nearest)
    best, name, law = score.measured, there.tuned.name, there.value
    diverges = there.predicted.value >= wall
    if score.value is not Fate.MISSED and not diverges:
        return None
    bound = {
        Place.LOW_EDGE: f"below {rate(best.high)}",
        Place.HIGH_EDGE: f"above {rate(best.low)}",
    }
    found = f"the best {name} is {bound.get(score.best.place, rate(best.value))}"
    if diverges:
        found = f"training diverges from {rate(2.0**wall)} on"
    return Refusal(
        lack=Lack.CONTRADICTED,
        reason=(
            f"At {size_text(there.target)}, the measured size nearest to the target, {found}. The "
            f"law of the other sizes has {rate(law.low)} to {rate(law.high)} there."
        ),
        advice=f"Extend the grid of {there.tuned.plural} there, so that its best one lies inside.",
    )


def _wall(runs: Runs, size: int) -> float:
    """The log2 value from which on every value of a size has a run that diverged, or infinity."""
    x, y = runs.optima.curves.log2_lrs[size], runs.optima.log_losses[size]
    finite, tried = np.isfinite(y), ~np.isnan(y)
    beyond = tried & (x > x[finite].max(initial=-math.inf))
    return float(x[beyond].min(initial=math.inf))


def chosen(runs: Runs) -> Index:
    """The sizes that a prediction rests on."""
    fitted = runs.optima
    good = np.flatnonzero(runs.inside & ~fitted.wall & (fitted.curvature > 0))
    # A curvature that the seeds' scatter hides would spoil the others' law.
    while len(good) > FEWEST and (bad := noisy_sizes(optima(runs.fitted[good]))):
        if len(good) - len(bad) < FEWEST:
            break
        good = np.delete(good, bad)
    return _largest(runs, good)


def _largest(runs: Runs, good: Index) -> Index:
    volumes = np.log2(runs.array[good]).sum(-1)
    return np.asarray(np.sort(good[np.argsort(-volumes, kind="stable")[:MOST_SIZES]]))


def with_edges(runs: Runs, good: Index) -> Index:
    """Also sizes with an optimum at an edge, where the others' law puts it there or beyond.

    The valley of all leads on from there.
    """
    fitted, sizes = runs.optima, [runs.sizes[i] for i in good]
    if len(good) < FEWEST_INSIDE or not fitted.told_at_edge.any():
        return good
    law = laws_of(minima(optima(runs.fitted[good]), sizes), sizes, min(sizes, key=volume)).optimum
    if not (np.isfinite(law.without).all() and np.isfinite(law.values).all()):
        return good
    found = list(good)
    for i in map(int, np.flatnonzero(fitted.told_at_edge)):
        if law.reaches(runs.sizes[i]):
            there = predict_law(law, runs.sizes[i]).estimate()
            if fitted.reaches_edge(i, there.low, there.high):
                found.append(i)
    return _largest(runs, np.sort(found))


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
