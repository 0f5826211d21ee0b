"""From records to studies: the runs of every variant, and one study for each axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from depthmup.records import Axis, Study
from depthmup.records.judgement import Judgement, Note
from depthmup.records.search import SearchStory
from depthmup.rules.claims import Claim, claims
from depthmup.statistics import TOLERANCE, Array, Curves
from depthmup.statistics.study import Runs, far_sizes, judged, window
from depthmup.sweep.design import Design, Size, Variant
from depthmup.sweep.losses import positive_loss_over
from depthmup.sweep.sweep import Losses, Records, Sweep


def losses_over(
    sweep: Sweep,
    records: Records,
    variant: Variant,
    sizes: Sequence[Size],
    window: slice,
) -> Losses:
    """The losses of a variant at some sizes, over the steps of a window."""
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


def runs_of(sweep: Sweep, records: Records, variant: Variant, steps: slice) -> Runs:
    """The runs of a variant at all sizes that were measured, by their losses over some steps."""
    design = sweep.design
    sizes = [size for size in design.all_sizes if sweep.rates(variant, size)]
    losses = losses_over(sweep, records, variant, sizes, steps)
    none = np.zeros((0, 0)), np.zeros((0, 0, 0))
    return Runs(
        name=variant.name,
        title=variant.title,
        sizes=losses.sizes,
        curves=Curves.of(losses.log2_lrs, losses.values)
        if sizes
        else Curves(log2_lrs=none[0], losses=none[1]),
        chance=losses.chance,
        base=design.base,
        sought=design.auto is not None,
        decides=design.auto is not None and design.auto.precision is None,
        alpha=str(variant.scheme.alpha),
        gamma=str(variant.scheme.gamma),
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
) -> tuple[Study, ...]:
    """Judge a sweep whose runs are done: a study for each axis.

    Windows tile training from its end, unless ``steps`` gives others; the last is the headline.
    """
    design = sweep.design
    of_windows = [
        (span, [runs_of(sweep, records, variant, span) for variant in design.variants])
        for span in steps or design.windows
    ]
    result = []
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
        far = [note for runs in last for note in far_sizes(runs, axis, design.tune)]
        rules: list[Judgement] = []
        for variant, runs, transfer in zip(
            design.variants, last, windows[-1].transfers, strict=True
        ):
            spoken = _claims(design, variant, axis)
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
            )
        )
    return tuple(result)


def _claims(design: Design, variant: Variant, axis: Axis) -> tuple[Claim, ...]:
    """What published rules say of a variant's values at the base; of learning rates alone."""
    if not design.tune.is_learning_rate:
        return ()
    fixed = "tokens" if "tokens" in design.base else "steps"
    return tuple(claims(axis, fixed, replace(variant.scheme, run=variant.run_laws)))
