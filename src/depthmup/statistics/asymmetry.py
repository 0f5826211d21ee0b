"""The two sides of a valley: its minimum, what lies beside the centre, and what a wrong rate costs.

Curves of loss against learning rate rise slowly on the left and steeply on the right. The minimum
is that of

    log loss = m + A_left |k - k*|^p   to the left of k*,    m + A_right |k - k*|^p   to its right,

least squares with the weights of the tapered parabola, k* between the neighbours of the lowest
point and p from 1 (a kink) to 2 (a parabola). Its distance from the parabola's centre scatters from
size to size; what all sizes of a scheme share is its mean, the *asymmetry*. Of a valley that is
none of these, such as a parabola that ends at a wall, the asymmetry comes out up to a fifth too
small or too large, at all sizes alike.
"""

import math
from dataclasses import dataclass

import numpy as np

from depthmup.records import UNKNOWN, Estimate
from depthmup.statistics.intervals import Array, Flags, Index, Numbers, around, student
from depthmup.statistics.parabola import tricube

POWERS = (1.0, 1.25, 1.5, 1.75, 2.0)
RELATIVE_ERROR = 0.15
"""Standard error of the asymmetry, over the asymmetry: what a valley of two powers misses."""

STEP = 0.05
"""Of the trial minima, in spacings of the grid."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sides:
    """The valleys' two sides, each attribute an array over (..., sizes).

    Attributes:
        minimum: log2 learning rate of the lowest point of the valley.
        level: log loss there; infinite where nothing is finite.
        power, left, right: p, A_left and A_right; NaN where the lowest point stands alone.
        row: weights (..., sizes, rates) of log losses in the level.
        offset: distance of each minimum from its centre, octaves; NaN where there is none.
        asymmetry: mean distance of the minima from the centres, (...,).
        scatter: of the distances, as a standard error for a size that was not measured, (...,).
    """

    minimum: Array
    level: Array
    power: Array
    left: Array
    right: Array
    row: Array
    offset: Array
    asymmetry: Array
    scatter: Array

    @property
    def asymmetry_error(self) -> Array:
        """The asymmetry's standard error that all sizes share, (...,)."""
        return np.asarray(RELATIVE_ERROR * np.abs(self.asymmetry))


def sides_of(
    *,
    log2_lrs: Array,
    log_losses: Array,
    centre: Array,
    bandwidth: Array,
    spacing: Array,
    neighbours: tuple[Index, Index],
    lowest: Index,
    alone: Flags,
) -> Sides:
    """Fit the two sides of every valley."""
    shape, rates = lowest.shape, log_losses.shape[-1]
    x, y = (np.reshape(a, (-1, rates)) for a in (log2_lrs, log_losses))
    at = np.take_along_axis(x, lowest.reshape(-1, 1), -1)[:, 0]
    level = np.take_along_axis(y, lowest.reshape(-1, 1), -1)[:, 0]
    power, left, right = (np.full(len(x), math.nan) for _ in range(3))
    row = np.zeros_like(y)
    np.put_along_axis(row, lowest.reshape(-1, 1), 1.0, -1)
    middle, reach, step = (a.reshape(-1) for a in (centre, bandwidth, spacing))
    before, after = (a.reshape(-1).tolist() for a in neighbours)
    for i in np.flatnonzero(~alone.reshape(-1)):
        fit = _fit(x[i], y[i], middle[i], reach[i], (before[i], after[i]), STEP * step[i])
        if fit is not None:
            at[i], power[i], (level[i], left[i], right[i]), row[i] = fit
    offsets = np.where(np.isnan(left), math.nan, at - middle).reshape(shape)
    asymmetry, scatter = _mean_offset(offsets)
    return Sides(
        minimum=at.reshape(shape),
        level=np.where(np.isfinite(level), level, math.inf).reshape(shape),
        power=power.reshape(shape),
        left=left.reshape(shape),
        right=right.reshape(shape),
        row=row.reshape(log_losses.shape),
        offset=offsets,
        asymmetry=asymmetry,
        scatter=scatter,
    )


def asymmetry_trend(positions: Numbers, offset: Array) -> Estimate:
    """How fast minima move away from their centres with size: by so much more do they drift.

    Least squares, with Student's 95% interval from the scatter about the line. Unknown with fewer
    than four sizes that have an offset: the interval of three is too wide to tell anything.
    """
    known = np.isfinite(offset)
    if known.sum() < 4:
        return UNKNOWN
    x, y = np.asarray(positions, float)[known], offset[known]
    x = x - x.mean()
    value = float(x @ y / (x @ x))
    freedom = len(x) - 2
    error = math.sqrt(float(((y - y.mean() - value * x) ** 2).sum()) / freedom / float(x @ x))
    return around(value, float(student(freedom)) * error)


def _mean_offset(offsets: Array) -> tuple[Array, Array]:
    """The mean over sizes that have one, and its standard error for one more size."""
    known = np.isfinite(offsets)
    count = known.sum(-1)
    mean = np.where(known, offsets, 0.0).sum(-1) / np.maximum(count, 1)
    square = np.where(known, (offsets - mean[..., None]) ** 2, 0.0).sum(-1)
    variance = square / np.maximum(count - 1, 1) * (1 + 1 / np.maximum(count, 1))
    return np.asarray(mean), np.asarray(np.sqrt(variance))


def _fit(
    x: Array,
    y: Array,
    centre: float,
    bandwidth: float,
    neighbours: tuple[int, int],
    step: float,
) -> tuple[float, float, Array, Array] | None:
    """The minimum, p, (m, A_left, A_right) and the weights of log losses in m.

    The best of all powers and trial minima; none where no two-sided valley fits.
    """
    weight = tricube((np.nan_to_num(x) - centre) / bandwidth) * np.isfinite(y)
    # A point at the taper's end has next to no weight, and would still count as a third point.
    used = np.flatnonzero(weight > 1e-3)
    if len(used) < 3:
        return None
    root = np.sqrt(weight[used])
    target = root * y[used]
    low, high = x[neighbours[0]], x[neighbours[1]]
    # Counted from the centre, so that of a parabola the minimum is found exactly.
    first, last = math.floor((low - centre) / step) + 1, math.ceil((high - centre) / step)
    trials = centre + step * np.arange(first, last)
    best, residual = None, math.inf
    for power in reversed(POWERS):
        design = root[:, None] * _columns(x[used], trials, power)
        normal = np.swapaxes(design, -1, -2)
        # The ridge is far below every entry; it lets a side without points pass, to be refused.
        gram = normal @ design + 1e-12 * np.eye(3)
        coefficients = np.linalg.solve(gram, (normal @ target)[..., None])[..., 0]
        fitted = (design @ coefficients[..., None])[..., 0]
        squares = ((fitted - target) ** 2).sum(-1)
        squares = np.where((coefficients[:, 1:] > 1e-9).all(-1), squares, math.inf)
        # A tie goes to the minimum next to the centre, and to the rounder valley: three points fix
        # neither.
        tied = squares <= squares.min() + 1e-15
        i = int(np.where(tied, np.abs(trials - centre), math.inf).argmin())
        if squares[i] < residual * (1 - 1e-9) - 1e-15:
            row = np.zeros(len(x))
            row[used] = np.linalg.solve(gram[i], normal[i])[0] * root
            residual = float(squares[i])
            best = float(trials[i]), power, coefficients[i], row
    return best


def _columns(x: Array, minima: Array, power: float) -> Array:
    """1, and |u|^p on the left and on the right of trial minima, (minima, points, 3)."""
    u = x - minima[:, None]
    rise = np.abs(u) ** power
    return np.stack([np.ones_like(u), rise * (u < 0), rise * (u > 0)], axis=-1)
