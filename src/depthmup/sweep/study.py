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
    Verdict,
    Window,
)
from depthmup.records.search import SearchStory
from depthmup.statistics import (
    TOLERANCE,
    Array,
    around,
    drifts,
    excess_loss,
    geometric_mean,
    judge,
    looked_at,
    measured,
    optima,
)
from depthmup.statistics.asymmetry import asymmetry_trend
from depthmup.statistics.drift import EXCESS_UNIT, change_of_shape, drift_unit
from depthmup.statistics.interaction import crossed, interaction, interaction_sentence
from depthmup.sweep.design import Size, Variant
from depthmup.sweep.losses import positive_loss_over
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
    log2_lrs = tuple(sorted({k for size in sizes for k in sweep.rates(variant, size)}))
    values = _aligned(sweep, records, variant, sizes, window, log2_lrs)
    return Losses(
        sizes=tuple(sizes),
        log2_lrs=log2_lrs,
        values=values,
        chance=sweep.chance(records, variant),
        bracketed=sweep.design.auto is not None,
    )


def _aligned(
    sweep: Sweep,
    records: Records,
    variant: Variant,
    sizes: Sequence[Size],
    window: slice,
    log2_lrs: Sequence[float],
) -> Array:
    """Mean losses of ragged grids (sizes, all learning rates, seeds), NaN where no run was made."""
    values = np.full((len(sizes), len(log2_lrs), sweep.design.seeds), math.nan)
    for i, size in enumerate(sizes):
        for log2_lr in sweep.rates(variant, size):
            for seed, run in enumerate(sweep.curve(variant, size, log2_lr)):
                loss = positive_loss_over(run, records[run], window, steps=sweep.design.steps)
                values[i, log2_lrs.index(log2_lr), seed] = loss
    return values


def studies(
    sweep: Sweep,
    records: Records,
    *,
    title: str = "",
    tolerance: float = TOLERANCE,
    config: Mapping[str, object],
    environment: Mapping[str, object],
    search: SearchStory | None = None,
    steps: Sequence[slice] | None = None,
) -> tuple[Study, ...]:
    """Judge a sweep whose runs are done, axis by axis and window by window.

    Args:
        sweep: whose runs are done.
        records: of its runs.
        title: of the page; by default the model's.
        tolerance: octaves per doubling within which an optimum counts as staying.
        config: how it was run, in values that JSON has.
        environment: on what it was run, likewise.
        search: how learning rates were found, if they were.
        steps: of the windows, in steps of the base; those of the design unless given.

    Returns:
        A study for each axis; windows tile training from its end, and the last is the headline.
    """
    return tuple(
        Study(
            title=title or sweep.title,
            windows=tuple(
                _window(sweep, records, axis, window, tolerance)
                for window in steps or sweep.design.windows
            ),
            tolerance=tolerance,
            config=config,
            environment=environment,
            axis=axis,
            search=search,
            tuned=sweep.design.tune,
        )
        for axis in sweep.design.axes
    )


def _window(sweep: Sweep, records: Records, axis: Axis, steps: slice, tolerance: float) -> Window:
    curves: list[Curve] = []
    transfers: list[Transfer] = []
    for variant in sweep.design.variants:
        sizes = [size for size in sweep.design.sizes_along(axis) if sweep.rates(variant, size)]
        if not sizes:
            transfers.append(_unreached(variant, axis))
            continue
        losses = losses_over(sweep, records, variant, sizes, steps)
        curves += _curves(variant, losses)
        transfer = _transfer(sweep, variant, axis, losses, tolerance)
        of_others = _interactions(sweep, records, variant, axis, steps)
        why = transfer.why + "".join(
            interaction_sentence(axis, other, s) for other, s in of_others.items()
        )
        transfers.append(replace(transfer, interactions=of_others, why=why))
    return Window(
        start=steps.start, stop=steps.stop, curves=tuple(curves), transfers=tuple(transfers)
    )


def _unreached(variant: Variant, axis: Axis) -> Transfer:
    """What a search says of an axis along which it trained nothing: its budget was spent before."""
    return Transfer(
        scheme=variant.name,
        title=variant.title,
        alpha=str(variant.scheme.alpha),
        gamma=str(variant.scheme.gamma),
        optima=(),
        drift=UNKNOWN,
        regret=UNKNOWN,
        verdict=Verdict.UNDECIDED,
        why=f"The search ended before its first run along {axis}.",
    )


def _interactions(
    sweep: Sweep, records: Records, variant: Variant, axis: Axis, steps: slice
) -> dict[Axis, Estimate]:
    """How the drift along an axis changes with every other one, where sizes grow along both."""
    design = sweep.design
    measured_sizes = [size for size in design.all_sizes if sweep.rates(variant, size)]
    result = {}
    for other in design.axes:
        sizes = crossed(measured_sizes, design.base, (axis, other)) if other != axis else ()
        if not sizes:
            continue
        losses = losses_over(sweep, records, variant, sizes, steps)
        fitted = optima(losses.curves(), chance=losses.chance)
        unit = f"{drift_unit(axis, design.tune)} and of {other}"
        result[other] = replace(interaction(fitted, sizes, design.base, (axis, other)), unit=unit)
    return result


def _curves(variant: Variant, losses: Losses) -> list[Curve]:
    """The curve of every size."""
    return [
        Curve(
            scheme=variant.name,
            size=dict(size),
            points=tuple(
                _point(log2_lr, of_seeds)
                for log2_lr, of_seeds in zip(losses.log2_lrs, of_size, strict=True)
                if not np.isnan(of_seeds).all()
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
    whole = optima(losses.curves(), chance=losses.chance)
    at_sizes = list(measured(whole, losses.sizes))
    # Where nothing trains a search asks for few seeds: that says nothing of the other sizes.
    trains = [k for k, optimum in enumerate(at_sizes) if optimum.place is not Place.FAILED]
    fitted = whole
    if 0 < len(trains) < len(along):
        fitted = optima(whole.curves[trains], chance=losses.chance)
        for k, optimum in zip(
            trains, measured(fitted, [losses.sizes[k] for k in trains]), strict=True
        ):
            at_sizes[k] = optimum
    inside = [k for k, optimum in enumerate(at_sizes) if optimum.place is Place.INTERIOR]
    drift = UNKNOWN
    if len(inside) > 1:
        positions = np.log2([along[k] for k in inside])
        some, auto = optima(whole.curves[inside]), sweep.design.auto
        # Who stops when the interval decides needs one that may be looked at several times.
        slope = (
            drifts(positions, some)
            if auto is None
            else looked_at(positions, some, decides=auto.precision is None)
        )
        drift = around(float(slope.value), float(slope.half))
    at_base, target = sweep.design.base[axis], len(along) - 1
    base = along.index(at_base) if at_base in along else -1
    regret = UNKNOWN
    if at_sizes[target].place is Place.FAILED:
        regret = Estimate(value=math.inf, low=math.inf, high=math.inf)
    elif base in inside and target in inside:
        regret = excess_loss(fitted, trains.index(base), trains.index(target))
    what = sweep.design.tune
    drift = replace(drift, unit=drift_unit(axis, what))
    verdict, why = judge(
        at_sizes,
        drift,
        seeds=fitted.curves.fewest_seeds,
        tolerance=tolerance,
        axis=axis,
        tuned=what,
    )
    if drift.known:
        trend = asymmetry_trend(positions, some.sides.offset)
        why += change_of_shape(trend, drift, tolerance=tolerance, axis=axis)
    if len(along) < len(sweep.design.arm(axis)):
        largest = sweep.design.arm(axis)[-1]
        why += f" The search ended before {axis} {largest}: what happens there was not measured."
    return Transfer(
        scheme=variant.name,
        title=variant.title,
        alpha=str(variant.scheme.alpha),
        gamma=str(variant.scheme.gamma),
        optima=tuple(at_sizes),
        drift=drift,
        regret=replace(regret, unit=EXCESS_UNIT),
        verdict=verdict,
        why=why,
    )
