"""The best value at a target in all axes, with its interval, or a refusal with its reasons."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from depthmup.records import LEARNING_RATE, Certificate, Fate, Place, Tuned
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
from depthmup.tables.score import scored

MOST_SIZES = 48
"""Sizes that a prediction rests on, the largest ones: the time grows with their cube."""


FEWEST = 4
"""Sizes that are kept however much they scatter; the certificate then says so."""


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
    good = chosen(runs)
    # Where none is left, their own curves say why.
    sizes = good if len(good) else _largest(runs, np.arange(len(runs.sizes)))

    if runs.gathered:
        # No run repeats another: those of a cell have sizes and rates of their own.
        about = {**about, "seeds": 1, "config": {"random_runs": runs.gathered}}

    def forecast(
        size: Mapping[str, float], *refusals: Refusal, sizes: Index = sizes
    ) -> Certificate:
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

    if not len(good):
        return forecast(target)
    failed = [runs.sizes[i] for i in np.flatnonzero(runs.optima.failed)]
    if upto := [size for size in failed if all(size[a] <= n for a, n in target.items())]:
        return forecast(target, _failed(upto, runs, about))
    certificate = forecast(target)
    if Lack.SIZES in {r.lack for r in certificate.refusals} and not runs.gathered:
        # Where others could be measured better, that is what they lack.
        trained = _largest(runs, np.flatnonzero(~runs.optima.failed))
        every = forecast(target, sizes=trained)
        return certificate if every.issued else every
    away = [sum(abs(math.log2(size[a] / n)) for a, n in target.items()) for size in runs.sizes]
    nearest = away.index(min(away))
    if certificate.issued and nearest not in sizes and not runs.optima.failed[nearest]:
        there = forecast(runs.sizes[nearest])
        if there.issued and (contradiction := _contradiction(there, runs, nearest)):
            certificate = forecast(target, contradiction)
    more = with_edges(runs, sizes)
    if len(more) > len(sizes) and Lack.CONTRADICTED not in {r.lack for r in certificate.refusals}:
        certificate = forecast(target, sizes=more)
    start = next(o for o in certificate.optima if dict(o.size) == dict(certificate.base))
    if not start.log2_lr.known or not certificate.tuned.is_learning_rate:
        return certificate
    if start.place is not Place.INTERIOR:
        return certificate  # rules would start from an edge
    there_too = prescribed(certificate.base, target, start.log2_lr.value, scheme)
    rules = (Prescribed(rule=r.name, rate=rate, source=r.source) for r, rate in there_too)
    return replace(certificate, rules=tuple(rules))


def _failed(sizes: Sequence[Mapping[str, float]], runs: Runs, about: Mapping[str, Any]) -> Refusal:
    """Sizes no larger than the target at which nothing trains."""
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
