"""Certificates of a grid whose cells are in the store, one for each scheme."""

import math
from collections.abc import Mapping

from depthmup.records import Certificate
from depthmup.sweep.calibrate import calibrate
from depthmup.sweep.grid import DATA_SHAPES, Grid
from depthmup.sweep.losses import mean_losses
from depthmup.sweep.optimum import TOLERANCE
from depthmup.sweep.store import Store


def certify(
    grid: Grid,
    store: Store,
    *,
    depth: int,
    tolerance: float = TOLERANCE,
    config: Mapping[str, object] | None = None,
    environment: Mapping[str, object] | None = None,
) -> tuple[Certificate, ...]:
    """What a grid's depths say about the best learning rate of another depth, scheme by scheme.

    Judged by the last window of training; the early one ends in the middle.

    Raises:
        StoreError: cells are missing.
    """
    records = store.records(grid.cells)
    _, classes = DATA_SHAPES[grid.data.name]
    windows = [slice(stop - grid.window, stop) for stop in (grid.steps, grid.steps // 2)]
    found = []
    for scheme in grid.schemes:
        late, early = (
            mean_losses(grid.points(scheme), records, window) if window.start >= 0 else None
            for window in windows
        )
        assert late is not None  # a window is never longer than training
        first = grid.cell(scheme, grid.base_depth, 0.0, seed=0)
        found.append(
            calibrate(
                sizes=[(grid.width, d) for d in grid.depths],
                log2_lrs=grid.log2_lrs,
                losses=late,
                early=early,
                target=(grid.width, depth),
                base=(grid.width, grid.base_depth),
                chance=math.log(classes),
                rate_unit=first.optimizer.lr,
                title=scheme.title,
                scheme=scheme.name,
                measure=f"mean training loss over steps {windows[0].start} to {windows[0].stop}",
                tolerance=tolerance,
                config=config,
                environment=environment,
            )
        )
    return tuple(found)
