"""From a store to a study: everything that can be said about a grid, computed from records."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from depthmup.records import (
    UNKNOWN,
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
from depthmup.sweep.grid import DATA_SHAPES, Grid
from depthmup.sweep.optimum import (
    CONFIDENCE,
    DRIFT_UNIT,
    REGRET_UNIT,
    TOLERANCE,
    Array,
    drift,
    judge,
    optimum,
    regret,
)
from depthmup.sweep.store import Store, StoreError


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
    records = {cell: store.get(cell) for cell in grid.cells}
    complete = {cell: record for cell, record in records.items() if record is not None}
    if len(complete) < len(records):
        raise StoreError(
            f"{len(records) - len(complete)} of {len(records)} runs are not in {store.path} yet. "
            "Run `depthmup transfer` with the same settings and --out to finish them."
        )
    stops = range(grid.steps, grid.window - 1, -grid.window)
    windows = [_window(grid, complete, stop - grid.window, stop, tolerance) for stop in stops]
    return Study(
        title=title,
        windows=tuple(reversed(windows)),
        tolerance=tolerance,
        config=config,
        environment=environment,
    )


def losses(grid: Grid, records: Mapping[Cell, Record], scheme: Scheme, window: slice) -> Array:
    """Mean losses over a window, (depths, learning rates, seeds), infinite where diverged."""
    return np.array(
        [
            [
                [
                    records[cell].mean_loss(window.start, window.stop)
                    for cell in grid.curve(scheme, depth, log2_lr)
                ]
                for log2_lr in grid.log2_lrs
            ]
            for depth in grid.depths
        ]
    )


def _window(
    grid: Grid, records: Mapping[Cell, Record], start: int, stop: int, tolerance: float
) -> Window:
    curves, transfers = [], []
    for scheme in grid.schemes:
        values = losses(grid, records, scheme, slice(start, stop))
        curves += [
            Curve(
                scheme=scheme.name,
                depth=depth,
                points=tuple(
                    _point(log2_lr, of_seeds)
                    for log2_lr, of_seeds in zip(grid.log2_lrs, of_depth, strict=True)
                ),
            )
            for depth, of_depth in zip(grid.depths, values, strict=True)
        ]
        transfers.append(_transfer(grid, scheme, values, tolerance))
    return Window(start=start, stop=stop, curves=tuple(curves), transfers=tuple(transfers))


def _point(log2_lr: float, of_seeds: Array) -> Point:
    """The geometric mean over the seeds that did not diverge, with a t interval of the log."""
    finite = np.log(of_seeds[np.isfinite(of_seeds)])
    loss = UNKNOWN
    if len(finite):
        center, half = float(finite.mean()), math.inf
        if len(finite) > 1:
            error = float(finite.std(ddof=1)) / math.sqrt(len(finite))
            half = error * float(stdtrit(len(finite) - 1, (1 + CONFIDENCE) / 2))
        loss = Estimate(
            value=math.exp(center), low=math.exp(center - half), high=math.exp(center + half)
        )
    return Point(
        log2_lr=log2_lr, loss=loss, seeds=len(of_seeds), diverged=len(of_seeds) - len(finite)
    )


def _transfer(grid: Grid, scheme: Scheme, values: Array, tolerance: float) -> Transfer:
    _, classes = DATA_SHAPES[grid.data.name]
    optima = tuple(
        optimum(depth, grid.log2_lrs, of_depth, chance=math.log(classes))
        for depth, of_depth in zip(grid.depths, values, strict=True)
    )
    inside = [i for i, found in enumerate(optima) if found.place is Place.INTERIOR]
    moved = UNKNOWN
    if inside:
        moved = drift([grid.depths[i] for i in inside], grid.log2_lrs, values[inside])
    base, target = grid.depths.index(grid.base_depth), len(grid.depths) - 1
    price = UNKNOWN
    if optima[target].place is Place.FAILED:
        price = Estimate(value=math.inf, low=math.inf, high=math.inf)
    elif base in inside and target in inside:
        price = regret(grid.log2_lrs, values[base], values[target])
    verdict, why = judge(optima, moved, seeds=grid.seeds, tolerance=tolerance)
    return Transfer(
        scheme=scheme.name,
        title=scheme.title,
        alpha=str(scheme.alpha),
        gamma=str(scheme.gamma),
        optima=optima,
        drift=replace(moved, unit=DRIFT_UNIT),
        regret=replace(price, unit=REGRET_UNIT),
        verdict=verdict,
        why=why,
    )
