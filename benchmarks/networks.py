"""The built-in networks of benchmarks, by their settings."""

import math
from typing import Any

from depthmup.records import Cell
from depthmup.sweep import BuiltIn, Design, Sweep, rate_unit

LAYERS = ("activation", "nonlinearity", "block_depth", "layer_norm", "batch_size", "data")


def residual(
    scheme: str | tuple[str, ...],
    *,
    depths: tuple[int, ...],
    base_depth: int,
    log2_lrs: tuple[float, ...],
    width: int = 64,
    optimizer: str = "adam",
    **settings: Any,
) -> Sweep:
    """A sweep along depth; learning rates are in units of muP's, 1 / width for Adam."""
    layers = {name: settings.pop(name) for name in LAYERS if name in settings}
    unit = rate_unit(optimizer, width)
    return Sweep(
        model=BuiltIn(**layers),
        design=Design(
            base={"width": width, "depth": base_depth},
            depth=tuple(sorted({base_depth, *depths})),
            lrs=[unit * 2.0**k for k in log2_lrs],
            schemes=scheme,
            optimizers=optimizer,
            **settings,
        ),
    )  # fmt: skip


def cell_at(sweep: Sweep, log2_lr: float, seed: int, **size: int) -> Cell:
    """The run at a size, for a learning rate in units of muP's at the base."""
    design = sweep.design
    variant = design.variant()
    unit = rate_unit(variant.optimizer, design.base["width"])
    cell: Cell = sweep.run(variant, {**design.base, **size}, log2_lr + math.log2(unit), seed)
    return cell
