"""From a store to a study: everything that can be said about a grid, computed from records."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from depthmup.records import (
    UNKNOWN,
    Axis,
    Cell,
    Curve,
    Estimate,
    Place,
    Point,
    Record,
    Study,
    Transfer,
    Window,
)
from depthmup.rules import Scheme
from depthmup.statistics import (
    TOLERANCE,
    Curves,
    drifts,
    excess_loss,
    geometric_mean,
    judge,
    measured,
    optima,
)
from depthmup.statistics.drift import DRIFT_UNIT, EXCESS_UNIT
from depthmup.statistics.intervals import Array, around
from depthmup.sweep.grid import DATA_SHAPES, Grid
from depthmup.sweep.losses import mean_losses
from depthmup.sweep.store import Store


def study(
    grid: Grid,
    store: Store,
    *,
    title: str = "Learning-rate transfer across depth",
    tolerance: float = TOLERANCE,
    config: Mapping[str, object],
    environment: Mapping[str, object],
) -> Study:
    """Judge a grid whose cells are all in the store, window by window.

    Windows have the grid's length and tile training from its end; the last one is the headline.

    Raises:
        StoreError: cells are missing; how many, and that the sweep resumes.
    """
    records = store.records(grid.cells)
    stops = range(grid.steps, grid.window - 1, -grid.window)
    windows = [_window(grid, records, stop - grid.window, stop, tolerance) for stop in stops]
    return Study(
        title=title,
        windows=tuple(reversed(windows)),
        tolerance=tolerance,
        config=config,
        environment=environment,
    )


def _window(
    grid: Grid, records: Mapping[Cell, Record], start: int, stop: int, tolerance: float
) -> Window:
    _, classes = DATA_SHAPES[grid.data.name]
    curves, transfers = [], []
    for scheme in grid.schemes:
        values = mean_losses(grid.points(scheme), records, slice(start, stop))
        line = Line(
            scheme=scheme.name,
            title=scheme.title,
            law=scheme,
            widths=(None,) * len(grid.depths),
            depths=grid.depths,
            base=grid.base_depth,
            log2_lrs=grid.log2_lrs,
        )
        curves += curves_of(line, values)
        transfers.append(transfer(line, values, chance=math.log(classes), tolerance=tolerance))
    return Window(start=start, stop=stop, curves=tuple(curves), transfers=tuple(transfers))


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """What losses (sizes, learning rates, seeds) were measured for: one scheme along one axis.

    ``base`` is the size, along the axis, that the learning rate is transferred from.
    """

    scheme: str
    title: str
    law: Scheme
    widths: tuple[int | None, ...]
    depths: tuple[int, ...]
    base: int
    log2_lrs: tuple[float, ...]
    axis: Axis = "depth"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes along the axis."""
        along = self.depths if self.axis == "depth" else self.widths
        return tuple(size for size in along if size is not None)


def curves_of(line: Line, values: Array) -> list[Curve]:
    """The curve of every size."""
    return [
        Curve(
            scheme=line.scheme,
            depth=depth,
            width=width,
            points=tuple(
                _point(log2_lr, of_seeds)
                for log2_lr, of_seeds in zip(line.log2_lrs, of_size, strict=True)
            ),
        )
        for width, depth, of_size in zip(line.widths, line.depths, values, strict=True)
    ]


def _point(log2_lr: float, of_seeds: Array) -> Point:
    """The geometric mean over the seeds that did not diverge, with a t interval of the log."""
    finite = of_seeds[np.isfinite(of_seeds)]
    loss = geometric_mean(finite.tolist()) if len(finite) else UNKNOWN
    return Point(
        log2_lr=log2_lr,
        loss=loss,
        seeds=int((~np.isnan(of_seeds)).sum()),
        diverged=int(np.isinf(of_seeds).sum()),
    )


def transfer(line: Line, values: Array, *, chance: float, tolerance: float) -> Transfer:
    """How the optimum moves along the axis; ``chance`` is the loss of guessing."""
    fitted = optima(Curves.of(line.log2_lrs, values), chance=chance)
    sizes = list(zip(line.depths, line.widths, strict=True))
    at_sizes = measured(fitted, sizes)
    inside = [i for i, optimum in enumerate(at_sizes) if optimum.place is Place.INTERIOR]
    drift = UNKNOWN
    if len(inside) > 1:
        positions = np.log2([line.sizes[i] for i in inside])
        slope = drifts(positions, optima(fitted.curves[inside]))
        drift = around(float(slope.value), float(slope.half))
    base, target = line.sizes.index(line.base), len(line.sizes) - 1
    regret = UNKNOWN
    if at_sizes[target].place is Place.FAILED:
        regret = Estimate(value=math.inf, low=math.inf, high=math.inf)
    elif base in inside and target in inside:
        regret = excess_loss(fitted, base, target)
    drift = replace(drift, unit=DRIFT_UNIT.format(axis=line.axis))
    verdict, why = judge(
        at_sizes, drift, seeds=fitted.curves.fewest_seeds, tolerance=tolerance, axis=line.axis
    )
    return Transfer(
        scheme=line.scheme,
        title=line.title,
        alpha=str(line.law.alpha),
        gamma=str(line.law.gamma),
        optima=at_sizes,
        drift=drift,
        regret=replace(regret, unit=EXCESS_UNIT),
        verdict=verdict,
        why=why,
    )
