"""Runs of the built-in networks, by learning rates in units of muP's."""

import math

from depthmup.records import Cell
from depthmup.sweep import Sweep, rate_unit


def cell_at(sweep: Sweep, log2_lr: float, seed: int, **size: int) -> Cell:
    """The run at a size, for a learning rate in units of muP's at the base."""
    design = sweep.design
    variant = design.variant()
    unit = rate_unit(variant.optimizer, design.base["width"])
    cell: Cell = sweep.run(variant, {**design.base, **size}, log2_lr + math.log2(unit), seed)
    return cell
