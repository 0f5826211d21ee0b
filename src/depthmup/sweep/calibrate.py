"""Calibrated transfer: from sweeps at small sizes to a certificate for a large one, or a refusal.

The optimum and the curvature of each size come from the parabola through the lowest point of the
seed-averaged curve of log losses and its neighbours. Their laws against size (``sweep.law``) give
draws of the target's optimum and curvature, and those the price of any learning rate there:
the shape of the largest size's curve, moved to the drawn optimum and stretched to the drawn
curvature.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from depthmup._version import __version__
from depthmup.records import NUMERICS, Estimate, Verdict
from depthmup.records.certificate import BandPoint, Certificate, Metrics, Slope
from depthmup.sweep.law import AXES, CONFIDENCE, Array, Law, Size, predict
from depthmup.sweep.optimum import TOLERANCE
from depthmup.sweep.refusals import (
    FARTHEST,
    refuse_breakdown,
    refuse_design,
    refuse_law,
    refuse_measurements,
    refuse_price,
)
from depthmup.sweep.shape import Laws, Price, averages, measured_optimum

VERSION = 2
"""Of the statistics: raised when the same losses would give another certificate."""


def calibrate(
    *,
    sizes: Sequence[Size],
    log2_lrs: Sequence[float],
    losses: Array,
    target: Size,
    base: Size | None = None,
    early: Array | None = None,
    chance: float = math.inf,
    rate_unit: float = 1.0,
    title: str = "",
    scheme: str = "",
    measure: str = "training loss",
    model: str = "",
    tolerance: float = TOLERANCE,
    config: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
) -> Certificate:
    """A certificate of the best learning rate at a target size, or a refusal with its reasons.

    ``losses`` are positive, (sizes, learning rates, seeds), infinite where a run diverged; a size
    is (width, depth). Seeds share their data, order and initialization over sizes. ``early`` holds
    the same for a window in the middle of training. ``chance`` is the loss of guessing.
    ``rate_unit * 2**log2_lr`` is the learning rate at the base, that schemes scale. ``model`` is a
    fingerprint of the code that was trained; certificates of different code are not compared.

    Raises:
        ValueError: arrays of the wrong shape, losses that are not positive, sizes below 1.

    Example:
        >>> lrs = np.arange(-6.0, 1.0)
        >>> best = [-3.0, -3.1, -3.2, -3.3]
        >>> seeds = np.array([-0.01, 0.0, 0.01])
        >>> losses = np.exp([[0.1 * (k - b - seeds) ** 2 for k in lrs] for b in best])
        >>> found = calibrate(sizes=[(64, d) for d in (8, 16, 32, 64)], log2_lrs=lrs,
        ...     losses=losses, target=(64, 256))
        >>> found.issued, round(found.predicted.value, 2)
        (True, -3.5)
    """
    values, rates = np.asarray(losses, float), np.asarray(log2_lrs, float)
    base = base or min(sizes, key=lambda size: (size[0] * size[1], size))
    _check(sizes, rates, values, early, target, base)
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i][0] * sizes[i][1], sizes[i]))
    sizes = [(int(sizes[i][0]), int(sizes[i][1])) for i in order]
    values = values[order]
    early = None if early is None else np.asarray(early, float)[order]

    optima = tuple(
        measured_optimum(size, rates, of_size, chance)
        for size, of_size in zip(sizes, values, strict=True)
    )
    refusals = refuse_measurements(optima, rates, values)
    laws = Laws.of(rates, values, sizes, base) if not refusals else None
    refusals += refuse_design(sizes, base, target, laws)
    if laws is not None and laws.place.freedom > 0:
        refusals += refuse_law(laws, rates, early) + refuse_breakdown(laws)
    common: dict[str, Any] = {
        "target": target,
        "base": base,
        "optima": optima,
        "log2_lrs": tuple(float(k) for k in rates),
        "seeds": values.shape[-1],
        "title": title,
        "scheme": scheme,
        "rate_unit": rate_unit,
        "confidence": CONFIDENCE,
        "measure": measure,
        "code": {
            "depthmup": __version__,
            "numerics": NUMERICS,
            "calibration": VERSION,
            "model": model,
        },
        "config": config or {},
        "environment": environment or {},
    }
    if laws is None or refusals:
        return Certificate(**common, refusals=tuple(refusals))
    concluded = _conclude(laws, rates, values, sizes, base, target, tolerance)
    if refusals := refuse_price(concluded["penalty"]):
        return Certificate(**common, refusals=tuple(refusals))
    return Certificate(**common, **concluded)


def _conclude(
    laws: Laws,
    rates: Array,
    losses: Array,
    sizes: Sequence[Size],
    base: Size,
    target: Size,
    tolerance: float,
) -> dict[str, Any]:
    """Everything that an issued certificate says."""
    place = predict(laws.place, target)
    slopes = tuple(_slope(laws.place, axis, base, target) for axis in laws.place.axes)
    largest = max(sizes, key=lambda size: (size[0] * size[1], size))
    price = Price(
        rates=rates,
        curve=averages(losses[list(sizes).index(largest)]),
        stretch=predict(laws.curvature, target, minus=largest),
        place=place,
    )
    kept = _kept(laws.place, base)
    measured = [
        FARTHEST * max(s[i] for s in sizes) if axis in laws.place.axes else sizes[0][i]
        for i, axis in enumerate(AXES)
    ]
    horizon = (measured[0], measured[1])
    if not laws.place.reaches(horizon):
        horizon = target
    at_horizon = Price(
        rates=rates,
        curve=price.curve,
        stretch=predict(laws.curvature, horizon, minus=largest),
        place=predict(laws.place, horizon),
    )
    best = predict(laws.loss, target).estimate()
    predicted = place.estimate("log2 learning rate at the base")
    shown = np.linspace(min(predicted.low, kept) - 1.5, max(predicted.high, kept) + 1.5, 61)
    return {
        "slopes": slopes,
        "predicted": predicted,
        "penalty": price.of(place.value),
        "base_regret": price.of(kept),
        "best_loss": Estimate(
            value=math.exp(best.value), low=math.exp(best.low), high=math.exp(best.high)
        ),
        "metrics": Metrics(
            fit_error=laws.place.fit_error,
            robustness=tuple(
                _slope(laws.curvature, axis, base, target) for axis in laws.curvature.axes
            ),
            horizon_penalty=at_horizon.of(kept),
        ),
        "verdict": _verdict(slopes, tolerance),
        "law": _law_band(laws.place, base, target),
        "penalty_curve": tuple(_point(float(k), price.of(float(k))) for k in shown),
    }


def _kept(law: Law, base: Size) -> float:
    """The learning rate that the base would hand on: its optimum as measured, else the law's."""
    return (
        float(law.values[law.sizes.index(base)]) if base in law.sizes else predict(law, base).value
    )


def _slope(law: Law, axis: str, base: Size, target: Size) -> Slope:
    """The law's slope along one dimension, with the interval of the mean slope base to target.

    Where the target is no larger than the base, that to the largest size, or to the smallest.
    """
    i = AXES.index(axis)
    end = list(base)
    others = (target[i], max(s[i] for s in law.sizes), min(s[i] for s in law.sizes))
    end[i] = next(n for n in others if n != base[i])
    doublings = math.log2(end[i] / base[i])
    found = predict(law, (end[0], end[1]), minus=base).estimate()
    low, high = sorted((found.low / doublings, found.high / doublings))
    return Slope(
        axis=axis,
        estimate=Estimate(
            value=found.value / doublings, low=low, high=high, unit=f"per doubling of {axis}"
        ),
    )


def _verdict(slopes: Sequence[Slope], tolerance: float) -> Verdict:
    """Transfers if every slope's interval lies within the tolerance, drifts if one lies outside."""
    if any(s.estimate.outside(-tolerance, tolerance) for s in slopes):
        return Verdict.DRIFTS
    if all(s.estimate.inside(-tolerance, tolerance) for s in slopes):
        return Verdict.TRANSFERS
    return Verdict.UNDECIDED


def _law_band(law: Law, base: Size, target: Size) -> tuple[BandPoint, ...]:
    """The law from the base to the target along the straight line of log sizes.

    ``at`` is the fraction of the way from base to target.
    """
    start, end = np.log2(np.asarray(base, float)), np.log2(np.asarray(target, float))
    places = np.linspace(0, 1, 33)
    found = []
    for place in places:
        w, d = 2.0 ** (start + place * (end - start))
        size: Any = (float(w), float(d))
        found.append(_point(float(place), predict(law, size).estimate()))
    return tuple(found)


def _point(at: float, estimate: Estimate) -> BandPoint:
    return BandPoint(at=at, value=estimate.value, low=estimate.low, high=estimate.high)


def check_asked(log2_lrs: Sequence[float], target: Size) -> None:
    """Refuse, before anything is trained, what no measurement could be calibrated for.

    Raises:
        ValueError: fewer than two learning rates, or a target that is no size.
    """
    _check_size("target", target)
    if len(log2_lrs) < 2:
        raise ValueError(
            f"Expected at least two learning rates, to foretell the best one of {target}; got "
            f"{list(log2_lrs)}."
        )


def _check_size(name: str, size: Size) -> None:
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"Expected every {name} to be (width, depth), at least 1; got {size}.")


def _check(
    sizes: Sequence[Size],
    rates: Array,
    losses: Array,
    early: Array | None,
    target: Size,
    base: Size,
) -> None:
    """Refuse what is no measurement, with an error."""
    shape = (len(sizes), len(rates))
    if losses.ndim != 3 or losses.shape[:2] != shape or 0 in losses.shape:
        raise ValueError(
            f"Expected losses of shape (sizes, learning rates, seeds) = ({shape[0]}, {shape[1]}, "
            f"seeds); got {losses.shape}."
        )
    if early is not None and np.shape(early) != losses.shape:
        raise ValueError(
            f"Expected early losses of the same shape as losses, {losses.shape}; got "
            f"{np.shape(early)}."
        )
    for name, values in (("losses", losses), ("early losses", early)):
        if values is not None and not (np.asarray(values) > 0).all():
            raise ValueError(
                f"Expected {name} to be positive, infinite where a run diverged (their logarithms "
                "are compared); got NaN, zero or negative ones."
            )
    if not (np.isfinite(rates).all() and (np.diff(rates) > 0).all()):
        raise ValueError(f"Expected increasing log2 learning rates; got {rates.tolist()}.")
    for size in (*sizes, base):
        _check_size("size", size)
    check_asked(rates.tolist(), target)
    if len(set(sizes)) != len(sizes):
        raise ValueError(
            f"Expected each size once; got {list(sizes)}. Average or drop repetitions."
        )
