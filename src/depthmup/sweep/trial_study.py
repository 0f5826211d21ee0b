"""From a store to studies of a person's own model: one for each axis that was measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from depthmup.records import Axis, Record, Study, Trial, Window
from depthmup.statistics import TOLERANCE
from depthmup.statistics.intervals import Array
from depthmup.sweep.losses import mean_losses
from depthmup.sweep.study import Line, curves_of, transfer
from depthmup.sweep.trials import Size, TrialGrid, Variant

Records = Mapping[Trial, Record[Trial]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Losses:
    """Mean losses over a window, as a law of the optimum is fitted to them.

    ``values`` is (sizes, learning rates, seeds), infinite where a run diverged; a size is a width
    and a depth. ``chance`` is the loss before training, that of guessing.
    """

    sizes: tuple[Size, ...]
    log2_lrs: tuple[float, ...]
    values: Array
    chance: float


def trial_losses(
    grid: TrialGrid,
    records: Records,
    variant: Variant,
    sizes: Sequence[Size],
    window: slice,
) -> Losses:
    """The losses of a variant at some sizes, over the steps of a window.

    Raises:
        ValueError: a mean loss is not positive.
    """
    values = mean_losses(grid.points(variant, sizes), records, window)
    if not (values > 0).all():
        raise ValueError(
            f"Expected positive losses; over steps {window.start} to {window.stop} the mean is "
            f"{values.min():.4g} somewhere. Curves are compared by the logarithm of the loss: "
            "train fewer steps, or on data that the model cannot fit exactly."
        )
    return Losses(
        sizes=tuple(sizes),
        log2_lrs=grid.log2_lrs,
        values=values,
        chance=_chance(grid, records, variant),
    )


def _chance(grid: TrialGrid, records: Records, variant: Variant) -> float:
    """The base's loss before training, averaged over seeds: what a model must get below."""
    at_base = grid.curve(variant, grid.base, grid.log2_lrs[0])
    first = [records[trial].losses[:1] for trial in at_base]
    known = [math.log(loss[0]) for loss in first if loss and loss[0] > 0]
    return math.exp(math.fsum(known) / len(known)) if known else math.inf


def trial_studies(
    grid: TrialGrid,
    records: Records,
    *,
    title: str,
    tolerance: float = TOLERANCE,
    config: Mapping[str, object],
    environment: Mapping[str, object],
) -> tuple[Study, ...]:
    """A study for each axis; windows tile training from its end, the last one is the headline."""
    stops = range(grid.steps, grid.window - 1, -grid.window)
    return tuple(
        Study(
            title=title,
            windows=tuple(
                _window(grid, records, axis, slice(stop - grid.window, stop), tolerance)
                for stop in reversed(stops)
            ),
            tolerance=tolerance,
            config=config,
            environment=environment,
            axis=axis,
        )
        for axis in grid.axes
    )


def _window(
    grid: TrialGrid, records: Records, axis: Axis, steps: slice, tolerance: float
) -> Window:
    curves, transfers = [], []
    for variant in grid.variants:
        sizes = grid.sizes(axis)
        found = trial_losses(grid, records, variant, sizes, steps)
        line = Line(
            scheme=variant.name,
            title=variant.title,
            law=variant.scheme,
            widths=tuple(width for width, _ in sizes),
            depths=tuple(depth for _, depth in sizes),
            base=grid.base[1] if axis == "depth" else grid.base[0],
            log2_lrs=grid.log2_lrs,
            axis=axis,
        )
        curves += curves_of(line, found.values)
        transfers.append(transfer(line, found.values, chance=found.chance, tolerance=tolerance))
    return Window(
        start=steps.start, stop=steps.stop, curves=tuple(curves), transfers=tuple(transfers)
    )
