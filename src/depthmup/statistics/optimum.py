"""Every curve of loss against learning rate by itself: where its lowest point lies.

Its ``centre`` is that of the parabola through its lowest point and the neighbours: a place, not an
estimate. The minima of all sizes at once, with what is known of them, are those of the posterior.
"""

import math
from dataclasses import dataclass

import numpy as np

from depthmup.posterior.curve import Curves
from depthmup.posterior.errors import CurvePoints
from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.records import Place


@dataclass(frozen=True, kw_only=True, eq=False)
class Optima:
    """Curves one by one, each attribute an array over (..., sizes).

    Attributes:
        log_losses: seed-averaged, (..., sizes, rates).
        centre: of the parabola through three points, log2 learning rate.
        spacing: of the grid around the lowest point, octaves.
        lowest, first, last: indices of the lowest, first and last learning rate that was tried.
        wall: whether a neighbour of the lowest point diverged.
        failed: whether no learning rate ends below the loss of guessing.
    """

    curves: Curves
    log_losses: Array
    centre: Array
    spacing: Array
    lowest: Index
    first: Index
    last: Index
    wall: Flags
    failed: Flags

    def places(self) -> tuple[Place, ...]:
        """Where each size's optimum lies, of one experiment."""
        return tuple(self._place(i) for i in range(len(self.centre)))

    def _place(self, size: int) -> Place:
        if self.failed[size]:
            return Place.FAILED
        if self.lowest[size] == self.first[size]:
            return Place.LOW_EDGE
        return Place.HIGH_EDGE if self.lowest[size] == self.last[size] else Place.INTERIOR


def optima(curves: Curves, *, chance: float = math.inf) -> Optima:
    """Every curve's lowest point."""
    x, y = np.nan_to_num(curves.log2_lrs), curves.averages()
    tried, finite, index = ~np.isnan(y), np.isfinite(y), np.arange(y.shape[-1])
    lowest = np.where(finite, y, math.inf).argmin(-1)
    before, after = _neighbours(tried, lowest)
    here, low, high = (_at(x, i) for i in (lowest, before, after))
    steps = np.maximum((before < lowest).astype(int) + (after > lowest), 1)
    spacing = np.where(high > low, (high - low) / steps, 1.0)
    wall = ~(np.isfinite(_at(y, before)) & np.isfinite(_at(y, after))) & finite.any(-1)
    points = CurvePoints(x=x, y=np.where(finite, y, 0.0), count=finite.astype(float))
    return Optima(
        curves=curves,
        log_losses=y,
        # Beside a divergence no parabola knows both sides of the valley.
        centre=np.where(finite.any(-1), np.where(wall, here, points.centre), math.nan),
        spacing=spacing,
        lowest=lowest,
        first=np.where(tried, index, len(index)).min(-1),
        last=np.where(tried, index, -1).max(-1),
        wall=wall,
        failed=~(_at(np.where(finite, y, math.inf), lowest) < math.log(chance)),
    )


def _at(values: Array, index: Index) -> Array:
    """The entry of every row, (..., rates), at an index of its own, (...,)."""
    return np.asarray(np.take_along_axis(values, index[..., None], axis=-1)[..., 0])


def _neighbours(tried: Flags, lowest: Index) -> tuple[Index, Index]:
    """Indices of the learning rates tried before and after the lowest point; itself at an end."""
    index, at = np.arange(tried.shape[-1]), lowest[..., None]
    before = np.where(tried & (index < at), index, -1).max(-1)
    after = np.where(tried & (index > at), index, len(index)).min(-1)
    return np.where(before < 0, lowest, before), np.where(after == len(index), lowest, after)
