"""From sweeps at small sizes to a certificate for a large one, or a refusal with its reasons.

The optimum and the curvature of each size (``statistics.optimum``) have laws of size
(``statistics.law``), which give draws of the target's optimum and curvature. Those give the price
of any learning rate there: the valley of the largest size, moved to the drawn optimum and stretched
to the drawn curvature.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from depthmup._version import __version__
from depthmup.records import NUMERICS, UNKNOWN, Estimate, Place, Verdict
from depthmup.records.certificate import (
    BandPoint,
    Certificate,
    Metrics,
    Probe,
    SizeOptimum,
    Slope,
)
from depthmup.statistics.curve import Curves
from depthmup.statistics.drift import TOLERANCE, loss_estimate, rate_estimate
from depthmup.statistics.intervals import Array, around, student
from depthmup.statistics.law import CONFIDENCE, Law, Prediction, Size, predict
from depthmup.statistics.optimum import Optima, optima
from depthmup.statistics.refusals import (
    FARTHEST,
    Laws,
    refuse_breakdown,
    refuse_design,
    refuse_law,
    refuse_measurements,
    refuse_price,
    refuse_probe,
    volume,
)

VERSION = 3
"""Of the statistics: raised when the same losses would give another certificate."""

CURVATURE_SCALE = 3.0
"""Of the departures of log2 curvature, over those of the optimum: a curvature is a second
difference, and far less sharp."""


def calibrate(
    *,
    sizes: Sequence[Size],
    log2_lrs: Sequence[Any] | Array,
    losses: Sequence[Any] | Array,
    target: Size,
    base: Size | None = None,
    early: Sequence[Any] | Array | None = None,
    chance: float = math.inf,
    probe: Probe | None = None,
    one_seed: bool = False,
    tolerance: float = TOLERANCE,
    about: Mapping[str, Any] | None = None,
) -> Certificate:
    """A certificate of the best learning rate at a target size, or a refusal with its reasons.

    Args:
        sizes: values by axis, the same axes for all, such as ``{"width": 64, "depth": 8}``.
        log2_lrs: increasing, for all sizes or a list for each; ``rate_unit * 2**log2_lr`` is the
            learning rate at the base, which schemes scale.
        losses: for each size positive losses (learning rates, seeds); infinite where a run
            diverged, NaN where it was not made. Seeds share their data, order and initialization
            over sizes.
        target: the size to predict for.
        base: the size from which learning rates are transferred; the smallest unless given.
        early: like ``losses``, for a window in the middle of training.
        chance: the loss of guessing.
        probe: what the probe of the target showed.
        one_seed: whether one seed is enough. The scatter of points about their curves then stands
            for that of seeds, and a shift that all runs of the one seed share is not seen.
        tolerance: octaves per doubling within which an optimum counts as staying.
        about: further fields of ``Certificate``: title, scheme, measure, rate_unit, model (the
            fingerprint of the code that was trained), config, environment.

    Returns:
        The certificate; a refused one predicts nothing and says why.

    Raises:
        ValueError: losses or sizes that are not positive, sizes that stand twice, arrays of the
            wrong shape.

    Example:
        >>> lrs = np.arange(-6.0, 1.0)
        >>> seeds = np.array([-0.01, 0.0, 0.01])
        >>> losses = [np.exp(0.1 * (lrs[:, None] - best - seeds) ** 2)
        ...     for best in (-3.0, -3.1, -3.2, -3.3)]
        >>> certificate = calibrate(sizes=[{"depth": d} for d in (8, 16, 32, 64)], log2_lrs=lrs,
        ...     losses=losses, target={"depth": 256})
        >>> certificate.issued, round(certificate.predicted.value, 1)
        (True, -3.5)
    """
    if not len(sizes) == len(losses) == (len(sizes) if early is None else len(early)) > 0:
        raise ValueError(
            f"Expected losses of {len(sizes)} sizes; got {len(losses)}"
            + (f", and {len(early)} of the early window." if early is not None else ".")
        )
    base = base or min(sizes, key=volume)
    _check(sizes, target, base)
    order = sorted(range(len(sizes)), key=lambda i: (volume(sizes[i]), list(sizes[i].values())))
    sizes = [sizes[i] for i in order]
    curves = Curves.of(log2_lrs, losses)[order]
    middle = None if early is None else Curves.of(log2_lrs, early)[order]
    if middle is not None and not np.array_equal(middle.seeds, curves.seeds):
        raise ValueError(
            "Expected early losses of the same seeds at every size; got "
            f"{middle.seeds.sum(-1).tolist()} seeds, and {curves.seeds.sum(-1).tolist()} late."
        )
    fitted = optima(curves, chance=chance)
    measured = tuple(
        _size_optimum(size, fitted, i, place)
        for i, (size, place) in enumerate(zip(sizes, fitted.places(), strict=True))
    )
    refusals = refuse_measurements(measured, fitted, one_seed=one_seed)
    laws = laws_of(fitted, sizes, base) if not refusals else None
    refusals += refuse_design(sizes, base, target, laws)
    if laws is not None and laws.optimum.freedom > 0:
        before = None if middle is None else laws_of(optima(middle), sizes, base)
        refusals += refuse_law(laws, before) + refuse_breakdown(laws)
    if probe is not None:
        refusals += refuse_probe(probe, target)
    extra = dict(about or {})
    common: dict[str, Any] = {
        "target": dict(target),
        "base": dict(base),
        "optima": measured,
        "log2_lrs": tuple(float(k) for k in np.unique(curves.log2_lrs[~np.isnan(curves.log2_lrs)])),
        "seeds": curves.fewest_seeds,
        "confidence": CONFIDENCE,
        "probe": probe,
        "code": {
            "depthmup": __version__,
            "numerics": NUMERICS,
            "calibration": VERSION,
            "model": extra.pop("model", ""),
        },
        **extra,
    }
    if laws is None or refusals:
        return Certificate(**common, refusals=tuple(refusals))
    conclusion = _conclude(laws, fitted, sizes, base, target, tolerance)
    if refusals := refuse_price(conclusion["penalty"]):
        return Certificate(**common, refusals=tuple(refusals))
    return Certificate(**common, **conclusion)


def laws_of(fitted: Optima, sizes: Sequence[Size], base: Size) -> Laws:
    """The laws of the optimum's centre, of log2 curvature and of the log of the best loss."""

    alone = fitted.curves.fewest_seeds < 2

    def law(values: Array, without: Array, known: Array, stream: int, scale: float = 1.0) -> Law:
        return Law(
            base=base,
            sizes=tuple(sizes),
            values=values,
            without=np.zeros((0, len(sizes))) if alone else np.moveaxis(without, -1, 0),
            groups=fitted.curves.groups,
            known=known,
            scale=scale,
            stream=stream,
        )

    nothing = np.zeros(len(sizes))
    misfit = np.hypot(fitted.misfit, fitted.scatter) if alone else fitted.misfit
    level = np.full(len(sizes), math.sqrt(float(fitted.point_variance))) if alone else nothing
    with np.errstate(invalid="ignore", divide="ignore"):
        # Of log2 c the standard error is that of c over c ln 2.
        blurred = fitted.curvature_scatter / (fitted.curvature * math.log(2)) if alone else nothing
        bends = np.log2(fitted.curvature), np.log2(fitted.curvature_without)
    return Laws(
        optimum=law(fitted.centre, fitted.centre_without, misfit, 0),
        curvature=law(*bends, blurred, 1, CURVATURE_SCALE),
        loss=law(fitted.log_loss, fitted.log_loss_without, level, 2),
    )


def _size_optimum(size: Size, fitted: Optima, i: int, place: Place) -> SizeOptimum:
    """One size's optimum with 90% intervals, open outwards at an edge of the grid."""
    at = curvature = loss = UNKNOWN
    if place is not Place.FAILED:
        at = rate_estimate(fitted, i, CONFIDENCE)
        loss = loss_estimate(fitted, i, CONFIDENCE)
        error, freedom = fitted.seed_error(fitted.curvature_without[i])
        curvature = around(float(fitted.curvature[i]), float(student(freedom, CONFIDENCE) * error))
    return SizeOptimum(size=dict(size), log2_lr=at, curvature=curvature, loss=loss, place=place)


@dataclass(frozen=True, kw_only=True, eq=False)
class Price:
    """What a learning rate costs at a size that was not trained.

    ``stretch`` predicts log2 curvature over that of the size whose valley is used, ``optimum`` the
    best log2 learning rate.
    """

    fitted: Optima
    size: int
    stretch: Prediction
    optimum: Prediction

    def of(self, log2_lr: float) -> Estimate:
        """The fraction by which the loss exceeds the best: its median, and 5% to 95%."""
        above = self.fitted.excess(self.size, log2_lr - self.optimum.draws)
        with np.errstate(over="ignore"):
            draws = np.expm1(2.0**self.stretch.draws * above)
        tail = (1 - CONFIDENCE) / 2
        low, value, high = np.quantile(draws, [tail, 0.5, 1 - tail], method="inverted_cdf")
        return Estimate(value=float(value), low=float(low), high=float(high), unit="of the loss")


def _conclude(
    laws: Laws,
    fitted: Optima,
    sizes: Sequence[Size],
    base: Size,
    target: Size,
    tolerance: float,
) -> dict[str, Any]:
    """Everything that an issued certificate says."""
    lean = float(fitted.sides.lean)
    lean_error = math.hypot(fitted.sides.scatter, fitted.sides.lean_misfit)

    def optimum(size: Size) -> Prediction:
        return predict(laws.optimum, size).shifted(lean, lean_error, stream=3)

    largest = max(range(len(sizes)), key=lambda i: volume(sizes[i]))

    def price(size: Size) -> Price:
        stretch = predict(laws.curvature, size, minus=sizes[largest])
        return Price(fitted=fitted, size=largest, stretch=stretch, optimum=optimum(size))

    slopes = tuple(_slope(laws.optimum, axis, base, target) for axis in laws.optimum.axes)
    at_target, kept = optimum(target), _kept(laws.optimum, base) + lean
    best = predict(laws.loss, target).estimate()
    predicted = at_target.estimate("log2 learning rate at the base")
    shown = np.linspace(min(predicted.low, kept) - 1.5, max(predicted.high, kept) + 1.5, 61)
    there = price(target)
    return {
        "slopes": slopes,
        "predicted": predicted,
        "penalty": there.of(at_target.value),
        "base_regret": there.of(kept),
        "best_loss": Estimate(
            value=math.exp(best.value), low=math.exp(best.low), high=math.exp(best.high)
        ),
        "metrics": Metrics(
            fit_error=laws.optimum.fit_error,
            robustness=tuple(
                _slope(laws.curvature, axis, base, target) for axis in laws.curvature.axes
            ),
            horizon_penalty=price(_horizon(laws.optimum, sizes, target)).of(kept),
        ),
        "verdict": _verdict(slopes, tolerance),
        "law": _law_band(laws.optimum, base, target, lean),
        "penalty_curve": tuple(_point(float(k), there.of(float(k))) for k in shown),
    }


def _horizon(law: Law, sizes: Sequence[Size], target: Size) -> Size:
    """Sixteen times the largest size measured along every axis varied, where the law reaches."""
    horizon = {
        axis: FARTHEST * max(size[axis] for size in sizes) if axis in law.axes else sizes[0][axis]
        for axis in law.base
    }
    return horizon if law.reaches(horizon) else target


def _kept(law: Law, base: Size) -> float:
    """The learning rate that the base would hand on: its optimum as measured, else the law's."""
    for size, value in zip(law.sizes, law.values, strict=True):
        if size == base:
            return float(value)
    return predict(law, base).value


def _slope(law: Law, axis: str, base: Size, target: Size) -> Slope:
    """The law's slope along one axis, with the interval of the mean slope from base to target.

    Where the target is no larger than the base, that to the largest size, or to the smallest.
    """
    others = (
        target[axis],
        max(size[axis] for size in law.sizes),
        min(size[axis] for size in law.sizes),
    )
    end = {**base, axis: next(n for n in others if n != base[axis])}
    doublings = math.log2(end[axis] / base[axis])
    change = predict(law, end, minus=base).estimate()
    low, high = sorted((change.low / doublings, change.high / doublings))
    return Slope(
        axis=axis,
        estimate=Estimate(
            value=change.value / doublings, low=low, high=high, unit=f"per doubling of {axis}"
        ),
    )


def _verdict(slopes: Sequence[Slope], tolerance: float) -> Verdict:
    """Transfers if every slope's interval lies within the tolerance, drifts if one lies outside."""
    if any(s.estimate.outside(-tolerance, tolerance) for s in slopes):
        return Verdict.DRIFTS
    if all(s.estimate.inside(-tolerance, tolerance) for s in slopes):
        return Verdict.TRANSFERS
    return Verdict.UNDECIDED


def _law_band(law: Law, base: Size, target: Size, lean: float) -> tuple[BandPoint, ...]:
    """The law from the base to the target along the straight line of log sizes.

    ``at`` is the fraction of the way from base to target.
    """
    points = []
    for way in np.linspace(0, 1, 33):
        size = {a: base[a] * (target[a] / base[a]) ** float(way) for a in base}
        band = predict(law, size).shifted(lean, 0.0, stream=3).estimate()
        points.append(_point(float(way), band))
    return tuple(points)


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
            f"Expected at least two learning rates, to predict the best one of {dict(target)}; "
            f"got {list(log2_lrs)}."
        )


def _check_size(name: str, size: Size) -> None:
    if not size or any(not 0 < value < math.inf for value in size.values()):
        raise ValueError(f"Expected every {name} to have positive values; got {dict(size)}.")


def _check(sizes: Sequence[Size], target: Size, base: Size) -> None:
    """Refuse what is no measurement, with an error."""
    for name, size in (*(("size", s) for s in sizes), ("base", base), ("target", target)):
        _check_size(name, size)
        if size.keys() != base.keys():
            raise ValueError(
                f"Expected every {name} to have the axes {', '.join(base)}; got {', '.join(size)}."
            )
    distinct = {tuple(sorted(size.items())) for size in sizes}
    if len(distinct) != len(sizes):
        raise ValueError(
            f"Expected each size once; got {[dict(size) for size in sizes]}. Average or drop "
            "repetitions."
        )
