"""From records to studies: curves, optima, drifts and verdicts, one study for each axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from depthmup.records import (
    UNKNOWN,
    Axis,
    Curve,
    Estimate,
    Place,
    Point,
    Study,
    Transfer,
    Window,
)
from depthmup.statistics import (
    TOLERANCE,
    Array,
    Curves,
    around,
    drifts,
    excess_loss,
    geometric_mean,
    judge,
    measured,
    optima,
)
from depthmup.statistics.drift import DRIFT_UNIT, EXCESS_UNIT
from depthmup.sweep.design import Size, Variant
from depthmup.sweep.losses import mean_losses
from depthmup.sweep.sweep import Losses, Records, Sweep


def losses_over(
    sweep: Sweep,
    records: Records,
    variant: Variant,
    sizes: Sequence[Size],
    window: slice,
) -> Losses:
    """The losses of a variant at some sizes, over the steps of a window.

    Args:
        sweep: whose runs are done.
        records: of its runs.
        variant: of the curves.
        sizes: of the curves.
        window: steps over which losses are averaged.

    Raises:
        ValueError: a mean loss is not positive.
    """
    points = sweep.points(variant, sizes)
    values = mean_losses(points, records, window, steps=sweep.design.steps)
    if not (values > 0).all():
        raise ValueError(
            f"Expected positive losses; over steps {window.start} to {window.stop} the mean is "
            f"{values.min():.4g} somewhere. Curves are compared by the logarithm of the loss: "
            "train fewer steps, or on data that the model cannot fit exactly."
        )
    return Losses(
        sizes=tuple(sizes),
        log2_lrs=sweep.design.log2_lrs,
        values=values,
        chance=sweep.chance(records, variant),
    )


def studies(
    sweep: Sweep,
    records: Records,
    *,
    title: str = "",
    tolerance: float = TOLERANCE,
    config: Mapping[str, object],
    environment: Mapping[str, object],
) -> tuple[Study, ...]:
    """Judge a sweep whose runs are done, axis by axis and window by window.

    Args:
        sweep: whose runs are done.
        records: of its runs.
        title: of the page; by default the model's.
        tolerance: octaves per doubling within which an optimum counts as staying.
        config: how it was run, in values that JSON has.
        environment: on what it was run, likewise.

    Returns:
        A study for each axis; windows tile training from its end, and the last is the headline.
    """
    return tuple(
        Study(
            title=title or sweep.model.title,
            windows=tuple(
                _window(sweep, records, axis, steps, tolerance) for steps in sweep.design.windows
            ),
            tolerance=tolerance,
            config=config,
            environment=environment,
            axis=axis,
        )
        for axis in sweep.design.axes
    )


def _window(sweep: Sweep, records: Records, axis: Axis, steps: slice, tolerance: float) -> Window:
    curves: list[Curve] = []
    transfers: list[Transfer] = []
    for variant in sweep.design.variants:
        losses = losses_over(sweep, records, variant, sweep.design.sizes_along(axis), steps)
        curves += _curves(variant, losses)
        transfers.append(_transfer(sweep, variant, axis, losses, tolerance))
    return Window(
        start=steps.start, stop=steps.stop, curves=tuple(curves), transfers=tuple(transfers)
    )


def _curves(variant: Variant, losses: Losses) -> list[Curve]:
    """The curve of every size."""
    return [
        Curve(
            scheme=variant.name,
            size=dict(size),
            points=tuple(
                _point(log2_lr, of_seeds)
                for log2_lr, of_seeds in zip(losses.log2_lrs, of_size, strict=True)
            ),
        )
        for size, of_size in zip(losses.sizes, losses.values, strict=True)
    ]


def _point(log2_lr: float, of_seeds: Array) -> Point:
    """The geometric mean over the seeds that did not diverge, with a t interval of the log."""
    finite = of_seeds[np.isfinite(of_seeds)]
    return Point(
        log2_lr=log2_lr,
        loss=geometric_mean(finite.tolist()) if len(finite) else UNKNOWN,
        seeds=int((~np.isnan(of_seeds)).sum()),
        diverged=int(np.isinf(of_seeds).sum()),
    )


def _transfer(
    sweep: Sweep, variant: Variant, axis: Axis, losses: Losses, tolerance: float
) -> Transfer:
    """How a variant's optimum moves along an axis."""
    along = [size[axis] for size in losses.sizes]
    fitted = optima(Curves.of(losses.log2_lrs, losses.values), chance=losses.chance)
    at_sizes = measured(fitted, losses.sizes)
    inside = [k for k, optimum in enumerate(at_sizes) if optimum.place is Place.INTERIOR]
    drift = UNKNOWN
    if len(inside) > 1:
        positions = np.log2([along[k] for k in inside])
        slope = drifts(positions, optima(fitted.curves[inside]))
        drift = around(float(slope.value), float(slope.half))
    base, target = along.index(sweep.design.base[axis]), len(along) - 1
    regret = UNKNOWN
    if at_sizes[target].place is Place.FAILED:
        regret = Estimate(value=math.inf, low=math.inf, high=math.inf)
    elif base in inside and target in inside:
        regret = excess_loss(fitted, base, target)
    drift = replace(drift, unit=DRIFT_UNIT.format(axis=axis))
    verdict, why = judge(
        at_sizes, drift, seeds=fitted.curves.fewest_seeds, tolerance=tolerance, axis=axis
    )
    return Transfer(
        scheme=variant.name,
        title=variant.title,
        alpha=str(variant.scheme.alpha),
        gamma=str(variant.scheme.gamma),
        optima=at_sizes,
        drift=drift,
        regret=replace(regret, unit=EXCESS_UNIT),
        verdict=verdict,
        why=why,
    )
