"""Sizes whose rates or losses are in another unit than those of all others."""

import math

import numpy as np

from depthmup.fitting.group import FEWEST_RATES
from depthmup.fitting.rows import Rows
from depthmup.records import Place
from depthmup.records.fit import Defect
from depthmup.statistics import Optima
from depthmup.statistics.intervals import Array, Flags, Index
from depthmup.statistics.slips import Slip, slipped_losses, slipped_rates, trained

CLEAR_RATES, FINE = 5, 1.1
"""With as many rates, no farther apart in octaves, a curve shows its best loss by itself."""


def in_other_units(rows: Rows, sizes: Array, size: Index, fitted: Optima, tuned: str) -> Flags:
    """The rows that are to be left out; slips that may be something else are told alone.

    Args:
        rows: of the group.
        sizes: (sizes, axes).
        size: number of every row's size.
        fitted: the optima of all sizes.
        tuned: the tuned hyperparameter in words.
    """
    positions, x, spacing = np.log2(sizes), fitted.curves.log2_lrs, fitted.spacing
    tried = (~np.isnan(x)).sum(-1)
    interior = np.array([location is Place.INTERIOR for location in fitted.places()])
    inside = interior & (tried >= FEWEST_RATES)
    centre = np.where(inside, fitted.centre, np.nan)
    out = np.zeros(len(size), bool)
    few = tried < FEWEST_RATES
    # One or two rates far from their optimum are sound, unless they trained as well as others.
    well = trained(positions, x, fitted.log_losses, centre, spacing)
    telling = ~few | well
    lows, highs = (np.where(telling, end(x, -1), np.nan) for end in (np.nanmin, np.nanmax))
    for slip in slipped_rates(positions, centre, lows, highs, spacing, well):
        sentence = (
            f"of size {_size(sizes, slip)} have a best {tuned} {2.0**slip.shift:.3g} times that of "
            "the law of all others: another unit"
        )
        out = out | rows.tell(Defect.UNIT, size == slip.size, sentence)
    # Training may also break down at an end of the range, or be far from its optimum.
    sure = inside & ~_ends(positions) & (tried >= CLEAR_RATES) & (spacing <= FINE)
    for slip in slipped_losses(positions, x, fitted.log_losses, centre, spacing):
        sentence = (
            f"of size {_size(sizes, slip)} have losses {math.exp(slip.shift):.3g} times the trend "
            "of all others: bits for nats, or percent?"
        )
        flags = (size == slip.size) & ~out
        if sure[slip.size]:
            out = out | rows.tell(Defect.UNIT, flags, sentence)
        else:
            rows.tell(Defect.UNIT, flags, f"{sentence} Or runs that train badly", out=False)
    return out


def _size(sizes: Array, slip: Slip) -> str:
    return ", ".join(f"{value:g}" for value in sizes[slip.size])


def _ends(positions: Array) -> Flags:
    """Whether a size is the smallest or the largest along every axis that varies."""
    varied = positions[:, np.ptp(positions, axis=0) > 0]
    return np.asarray(((varied == varied.min(0)) | (varied == varied.max(0))).all(-1))
