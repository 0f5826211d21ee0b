"""Certificates of a grid whose cells are in the store, one for each scheme."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from depthmup.records import Cell, Certificate
from depthmup.rules import Scheme
from depthmup.statistics import TOLERANCE, calibrate
from depthmup.sweep.cost import work
from depthmup.sweep.glance import LAST, STEPS, Train, glance
from depthmup.sweep.grid import DATA_SHAPES, Grid
from depthmup.sweep.losses import early_window, mean_losses
from depthmup.sweep.store import Store


def certify(
    grid: Grid,
    store: Store,
    *,
    depth: int,
    tolerance: float = TOLERANCE,
    train: Train | None = None,
    config: Mapping[str, object] | None = None,
    environment: Mapping[str, object] | None = None,
) -> tuple[Certificate, ...]:
    """What a grid's depths say about the best learning rate of another depth, scheme by scheme.

    Args:
        grid: whose cells are in the store.
        depth: to predict for.
        tolerance: octaves per doubling within which an optimum counts as staying.
        train: trains the few steps at the target that a certificate rests on; without it those
            that the store holds are used.
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
        settings: dict[str, Any] = {
            "sizes": [{"width": grid.width, "depth": d} for d in grid.depths],
            "log2_lrs": grid.log2_lrs,
            "losses": mean_losses(points, records, late),
            "early": None if early is None else mean_losses(points, records, early),
            "target": {"width": grid.width, "depth": depth},
            "base": {"width": grid.width, "depth": grid.base_depth},
            "chance": math.log(classes),
            "tolerance": tolerance,
            "about": {
                "rate_unit": first.optimizer.lr,
                "title": scheme.title,
                "scheme": scheme.name,
                "measure": f"mean training loss over steps {late.start} to {late.stop}",
                "config": config or {},
                "environment": environment or {},
            },
        }
        certificate = calibrate(**settings)
        if certificate.issued:
            probe = glance(certificate, _Probed(grid=grid, scheme=scheme), store, train)
            if probe is not None:
                certificate = calibrate(**settings, probe=probe)
        certificates.append(certificate)
    return tuple(certificates)


@dataclass(frozen=True, kw_only=True)
class _Probed:
    """A scheme of a grid, at any depth, for a few steps."""

    grid: Grid
    scheme: Scheme

    @cached_property
    def short(self) -> Grid:
        return replace(self.grid, schemes=(self.scheme,), steps=STEPS, window=LAST)

    def run(self, size: Mapping[str, float], log2_lr: float, seed: int) -> Cell:
        return self.short.cell(self.scheme, int(size["depth"]), log2_lr, seed)

    def work(self, size: Mapping[str, float]) -> float:
        return work(self.run(size, 0.0, 0)) / STEPS

    @cached_property
    def sweep_work(self) -> float:
        return math.fsum(work(cell) for cell in self.grid.cells)
