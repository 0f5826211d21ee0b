"""From records to studies: losses over windows, runs of every variant, a study for each axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from depthmup.posterior.intervals import geometric_mean
from depthmup.records import UNKNOWN, Axis, Curve, Point, Record, Study, Tuned, Window
from depthmup.records.ablation import Ablation
from depthmup.records.judgement import Judgement
from depthmup.records.note import Note
from depthmup.records.search import SearchStory
from depthmup.rules.claims import AxisClaim, claims
from depthmup.statistics import TOLERANCE, Curves
from depthmup.statistics.ablation import ablations
from depthmup.statistics.gain import gains, without_gain
from depthmup.statistics.runs import Runs
from depthmup.statistics.study import far_sizes, judged, window
from depthmup.sweep.design import ADD, Design, Size, Variant, windows_of_training
from depthmup.sweep.sweep import Losses, Records, Sweep


def loss_over(run: Any, record: Record[Any], window: slice, *, steps: int) -> float:
    """The mean loss of a run over the window that is ``window`` in a run of so many steps."""
    own = stretched(window, run.steps / steps)
    return record.mean_loss(own.start, own.stop)


def positive_loss_over(run: Any, record: Record[Any], window: slice, *, steps: int) -> float:
    """``loss_over``, of which curves are compared by the logarithm."""
    loss = loss_over(run, record, window, steps=steps)
    if not loss > 0:
        raise ValueError(
            f"Expected positive losses; over steps {window.start} to {window.stop} the mean of a "
            f"run is {loss:.4g}. Curves are compared by the logarithm of the loss: train fewer "
            "steps, or on data that the model cannot fit exactly."
        )
    return loss


def stretched(window: slice, by: float) -> slice:
    """A window of a run that takes ``by`` times the steps, of at least one step.

    Example:
        >>> stretched(slice(160, 200), 2.5), stretched(slice(160, 200), 0.01)
        (slice(400, 500, None), slice(1, 2, None))
    """
    stop = max(1, round(window.stop * by))
    return slice(min(round(window.start * by), stop - 1), stop)


def early_window(steps: int, window: int) -> slice | None:
    """The window that ends in the middle of training, or None if training is too short for it.

    Example:
        >>> early_window(300, 60), early_window(100, 60)
        (slice(90, 150, None), None)
    """
    stop = steps // 2
    return slice(stop - window, stop) if stop >= window else None


def losses_over(
    sweep: Sweep,
    records: Records,
    variant: Variant,
    sizes: Sequence[Size],
    window: slice,
) -> Losses:
    """The losses of a variant at some sizes, over the steps of a window; NaN where no run is."""
    log2_lrs = tuple(sorted({k for size in sizes for k in sweep.rates(variant, size)}))
    values = np.full((len(sizes), len(log2_lrs), sweep.design.seeds), math.nan)
    for i, size in enumerate(sizes):
        for log2_lr in sweep.rates(variant, size):
            for seed, run in enumerate(sweep.curve(variant, size, log2_lr)):
                loss = positive_loss_over(run, records[run], window, steps=sweep.design.steps)
                values[i, log2_lrs.index(log2_lr), seed] = loss
    return Losses(
        sizes=tuple(sizes),
        log2_lrs=log2_lrs,
        values=values,
        chance=sweep.chance(records, variant),
    )


def runs_of(sweep: Sweep, records: Records, variant: Variant, steps: slice) -> Runs:
    """The runs of a variant at all sizes that were measured, by their losses over some steps."""
    design = sweep.design
    sizes = [size for size in design.all_sizes if sweep.rates(variant, size)]
    losses = losses_over(sweep, records, variant, sizes, steps)
    return Runs(
        name=variant.name,
        title=variant.title,
        sizes=losses.sizes,
        curves=Curves.of(losses.log2_lrs, losses.values) if sizes else Curves.none(),
        chance=losses.chance,
        base=design.base,
        seeds=tuple(map(str, range(design.seeds))),
        alpha="" if variant.scheme.left_out else str(variant.scheme.alpha),
        gamma="" if variant.scheme.left_out else str(variant.scheme.gamma),
    )


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
    notes: Sequence[Note] = (),
    over: str = "",
    target: Mapping[str, float] | None = None,
) -> tuple[Study, ...]:
    """Judge a sweep whose runs are done: a study for each axis; the last window is the headline."""
    design = sweep.design
    of_windows = [
        (span, [runs_of(sweep, records, variant, span) for variant in design.judged])
        for span in steps or design.windows
    ]
    result: list[Study] = []
    of_rules = ablated(sweep, records, (steps or design.windows)[-1], tolerance)
    # Of all axes at once: they stand in the first study.
    found = gains(of_windows[-1][1], over=over, target=target)
    notes = [*notes, *without_gain(of_windows[-1][1], found, over)]
    for axis in design.axes:
        windows = tuple(
            window(
                variants,
                axis,
                tolerance=tolerance,
                tuned=design.tune,
                steps=span,
                planned=design.arm(axis),
            )
            for span, variants in of_windows
        )
        last = of_windows[-1][1]
        earlier = windows_of_training(design)[:-1] if design.auto and not steps else ()
        far = [note for runs in last for note in far_sizes(runs, axis, design.tune)]
        rules: list[Judgement] = []
        for variant, runs, transfer in zip(design.judged, last, windows[-1].transfers, strict=True):
            spoken = claims_of(design, variant, axis, design.tune)
            rules += judged(runs, axis, transfer.drift, spoken, tolerance)
        result.append(
            Study(
                title=title or sweep.title,
                windows=windows,
                tolerance=tolerance,
                config=config,
                environment=environment,
                axis=axis,
                search=search,
                tuned=design.tune,
                rules=tuple(rules),
                notes=(*far, *notes),
                gains=() if result else tuple(found),
                ablations=() if result else of_rules,
                training=tuple(_earlier(sweep, records, windows[-1], span) for span in earlier),
            )
        )
    return tuple(result)


def ablated(sweep: Sweep, records: Records, steps: slice, tolerance: float) -> tuple[Ablation, ...]:
    """What each rule does, of a sweep in which one at a time was changed."""
    design, sweep = sweep.design, sweep.with_shared_runs()
    if not design.changed:
        return ()
    names = [design.variants[0].name, *design.changed]
    return ablations(
        [runs_of(sweep, records, design.variant(name), steps) for name in names],
        design.changed,
        names[0],
        design.axes,
        added=ADD in (design.ablate or ()),
        tolerance=tolerance,
        tuned=design.tune,
    )


def _earlier(sweep: Sweep, records: Records, headline: Window, span: slice) -> Window:
    """The losses of the headline's runs over earlier steps, without verdicts."""

    def point(curve: Curve, at: Point) -> Point:
        size = {axis: int(n) for axis, n in curve.size.items()}
        runs = sweep.curve(sweep.design.variant(curve.scheme), size, at.log2_lr)
        losses = [loss_over(r, records[r], span, steps=sweep.design.steps) for r in runs]
        ended = [loss for loss in losses if 0 < loss < math.inf]
        loss = geometric_mean(ended) if ended else UNKNOWN
        return replace(at, loss=loss, diverged=losses.count(math.inf))

    curves = (replace(c, points=tuple(point(c, at) for at in c.points)) for c in headline.curves)
    return Window(start=span.start, stop=span.stop, curves=tuple(curves), transfers=())


def claims_of(design: Design, variant: Variant, axis: Axis, tuned: Tuned) -> tuple[AxisClaim, ...]:
    """What published rules say of a variant's values at the base."""
    fixed = "tokens" if "tokens" in design.base else "steps"
    scheme = replace(variant.scheme, run=variant.run_laws)
    held = all(one.key != "batch" for one in design.tuned)
    return tuple(claims(axis, fixed, scheme, batch_held=held, quantity=tuned.law))
