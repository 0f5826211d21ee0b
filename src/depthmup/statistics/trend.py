"""What most sizes of a table agree on: a plane through their values that a few do not bend."""

import math
from dataclasses import dataclass

import numpy as np

from depthmup.posterior.intervals import Array, Flags

SPARE = 3
"""Sizes beyond those that fix a plane, which say what is usual."""

PASSES = 60
"""Of reweighting; converged well before."""

CLOSE = 1e-4
"""A residual below which a size's weight grows no further."""

NORMAL = 1.4826
"""Standard deviations of a normal distribution in one median absolute deviation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trend:
    """Expected values of all sizes, and how far they scatter.

    ``scatter`` is a robust standard deviation, in units of each size's own error where errors were
    given.
    """

    expected: Array
    scatter: float

    def few_off(self, off: Array, flags: Flags) -> dict[int, float]:
        """By how much flagged sizes are off; none of more than a third: there is no "most" then."""
        few = flags.sum() <= len(flags) / 3
        return {int(i): float(off[i]) for i in np.flatnonzero(flags)} if few else {}


def trend_of(
    positions: Array,
    values: Array,
    *,
    least: float,
    errors: Array | None = None,
    curved: bool = False,
) -> Trend | None:
    """The plane through most sizes, by least absolute deviations; None of too few sizes.

    ``curved`` adds a square of the total size, as losses flatten towards their floor. A bend needs
    sizes to spare, or it follows what is off.
    """
    known = np.isfinite(values)
    x = positions[:, np.ptp(positions[known], axis=0) > 0] if known.any() else positions
    total = x.sum(-1) - x.sum(-1).mean()
    bent = [total**2] if curved and known.sum() >= 6 + x.shape[1] else []
    design = np.column_stack([np.ones(len(x)), x, *bent])
    rank = int(np.linalg.matrix_rank(design[known])) if known.any() else 0
    if known.sum() - rank < SPARE:
        return None
    scale = np.ones(len(values)) if errors is None else errors
    y, inner = values[known] / scale[known], design[known] / scale[known][:, None]
    coefficients = least_absolute(inner, y)
    # The plane passes through `rank` sizes: their residuals of zero say nothing about scatter.
    free = np.sort(np.abs(y - inner @ coefficients))[rank:]
    scatter = max(least, NORMAL * float(np.median(free)))
    return Trend(expected=design @ coefficients, scatter=scatter)


def least_absolute(design: Array, values: Array) -> Array:
    """Coefficients of least absolute deviations, by iteratively reweighted least squares."""
    weights = np.ones(len(values))
    coefficients = np.asarray(np.zeros(design.shape[1]), float)
    for _ in range(PASSES):
        root = np.sqrt(weights)
        moved = np.asarray(
            np.linalg.lstsq(design * root[:, None], values * root, rcond=1e-10)[0], float
        )
        weights = 1 / np.maximum(np.abs(values - design @ moved), CLOSE)
        still = math.isclose(float(np.abs(moved - coefficients).max(initial=0)), 0, abs_tol=1e-9)
        coefficients = moved
        if still:
            break
    return coefficients
