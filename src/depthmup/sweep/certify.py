"""Certificates of a grid whose cells are in the store, one for each scheme."""

import math
from collections.abc import Mapping

from depthmup.records import Certificate
from depthmup.statistics import TOLERANCE, Probe, calibrate
from depthmup.sweep.grid import DATA_SHAPES, Grid
from depthmup.sweep.losses import early_window, mean_losses
from depthmup.sweep.store import Store


def certify(
    grid: Grid,
    store: Store,
    *,
    depth: int,
    tolerance: float = TOLERANCE,
    probes: Mapping[str, Probe] | None = None,
    config: Mapping[str, object] | None = None,
    environment: Mapping[str, object] | None = None,
) -> tuple[Certificate, ...]:
    """What a grid's depths say about the best learning rate of another depth, scheme by scheme.

    Args:
        grid: whose cells are in the store.
        depth: to predict for.
        tolerance: octaves per doubling within which an optimum counts as staying.
        probes: what a glance at the target showed, by scheme.
        config, environment: how it was run, and on what.

    Raises:
        StoreError: cells are missing.
    """
    records = store.records(grid.cells)
    _, classes = DATA_SHAPES[grid.data.name]
    late = slice(grid.steps - grid.window, grid.steps)
    early = early_window(grid.steps, grid.window)
    certificates = []
    for scheme in grid.schemes:
        points = grid.points(scheme)
        first = grid.cell(scheme, grid.base_depth, 0.0, seed=0)
        certificates.append(
            calibrate(
                sizes=[{"width": grid.width, "depth": d} for d in grid.depths],
                log2_lrs=grid.log2_lrs,
                losses=mean_losses(points, records, late),
                early=None if early is None else mean_losses(points, records, early),
                target={"width": grid.width, "depth": depth},
                base={"width": grid.width, "depth": grid.base_depth},
                chance=math.log(classes),
                probe=(probes or {}).get(scheme.name),
                tolerance=tolerance,
                about={
                    "rate_unit": first.optimizer.lr,
                    "title": scheme.title,
                    "scheme": scheme.name,
                    "measure": f"mean training loss over steps {late.start} to {late.stop}",
                    "config": config or {},
                    "environment": environment or {},
                },
            )
        )
    return tuple(certificates)
