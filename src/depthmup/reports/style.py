"""What charts share: colours, axes and the place of labels.

Axes are fixed over all windows, so that a slider moves the curves and never the frame.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from depthmup.records import Study
from depthmup.reports import theme
from depthmup.reports.study_rows import optimum_rows, point_rows, sizes, transfers


def size_colours(study: Study) -> dict[float, str]:
    """A colour per depth (or width), small light to large dark."""
    measured = sizes(study)
    return dict(zip(measured, theme.ramp(len(measured)), strict=True))


def scheme_colours(study: Study) -> dict[str, str]:
    """A colour per scheme, by its name; colours repeat after seven."""
    names = [t.scheme for t in transfers(study)]
    return dict(zip(names, theme.palette(len(names)), strict=True))


def scheme_shapes(study: Study) -> dict[str, str]:
    """A shape per scheme, by its name; shapes repeat after seven."""
    names = [t.scheme for t in transfers(study)]
    return dict(zip(names, theme.shapes(len(names)), strict=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A value axis: what may be drawn lies in [low, high], labelled at ``ticks``.

    ``log`` axes need positive values; a quantity that can be negative gets a linear one.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def at(self, fraction: float) -> float:
        """The value at a fraction of the axis' length."""
        if self.log:
            result: float = self.low * (self.high / self.low) ** fraction
            return result
        return self.low + (self.high - self.low) * fraction

    def where(self, value: float) -> float:
        """The fraction of the axis' length at a value."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def clamp(self, value: float) -> float:
        return min(max(value, self.low), self.high)


def loss_axis(
    values: Iterable[float], *, must_show: Iterable[float] = (), reach: float = math.inf
) -> Axis:
    """An axis that a few exploded runs cannot squash.

    It ends at ``reach`` or 25 times the best loss, whichever is less, but above all values that
    must be visible; larger losses are drawn as leaving the panel.

    Args:
        values: all losses.
        must_show: losses that the axis has to include.
        reach: the loss up to which the axis is of interest.
    """
    finite = sorted(v for v in values if math.isfinite(v))
    needed = [v for v in must_show if math.isfinite(v)]
    if not finite:
        return Axis(low=0.1, high=1.0, ticks=(0.1, 1.0), log=True)
    best, worst = finite[0], finite[-1]
    if best > 0:
        # The minimum of a steep valley lies below every loss that was measured.
        low = min([best, *(v for v in needed if v > 0)]) / 1.12
        high = 1.12 * max(min(worst, 25 * best, max(reach, 4 * best)), *needed, best * 1.5)
        return Axis(low=low, high=high, ticks=_log_ticks(low, high), log=True)
    usual = finite[len(finite) // 2] - best
    high = max(min(worst, best + 4 * usual), *needed, best + 1e-6)
    pad = 0.06 * (high - best)
    return Axis(low=best - pad, high=high + pad, ticks=_ticks(best - pad, high + pad))


def study_loss_axis(study: Study) -> Axis:
    """The loss axis that every panel shares.

    Learning rates that are too small leave a network as it was; those that are too large make it
    worse without bound. So the losses at the smallest rates say how far the axis has to reach.
    """
    slow = [
        curve.points[0].loss.value
        for window in study.windows
        for curve in window.curves
        if curve.points and curve.points[0].loss.known
    ]
    return loss_axis(
        [row["loss"] for row in point_rows(study)],
        must_show=[row["loss"] for row in optimum_rows(study)],
        reach=1.5 * median(slow) if slow else math.inf,
    )


def best_loss_axis(study: Study) -> Axis:
    """The axis of the best losses alone, with as much of their intervals as leaves them legible.

    Two seeds give intervals over many decades; those are drawn to the axis' ends.
    """
    rows = optimum_rows(study)
    best = [row["loss"] for row in rows if math.isfinite(row["loss"])]
    ends = [row[end] for row in rows for end in ("loss_low", "loss_high")]
    if best and min(best) > 0:
        ends = [min(max(v, min(best) / 2), 2 * max(best)) for v in ends if math.isfinite(v)]
    return loss_axis([*best, *ends], must_show=[*best, *ends])


AROUND = 3.0
"""Octaves beyond the optima that are drawn of a search."""


def rate_axis(study: Study) -> Axis:
    """The log2 learning rates of the grid, half a step of air on each side.

    Of a search, which may have begun far away, those within ``AROUND`` octaves of an optimum.
    """
    rates = sorted({row[study.tuned.column] for row in point_rows(study)})
    best = [v for r in optimum_rows(study) if math.isfinite(v := r[study.tuned.column])]
    if study.search is not None and best:
        rates = [k for k in rates if min(best) - AROUND <= k <= max(best) + AROUND]
    if not rates:
        rates = sorted(v for r in optimum_rows(study) if math.isfinite(v := r[study.tuned.column]))
    low, high = (rates[0], rates[-1]) if rates else (-1.0, 1.0)
    step = (high - low) / max(len(rates) - 1, 1) or 1.0
    air = min(step, 1.0) / 2
    every = max(1, math.ceil((high - low) / 10))
    ticks = tuple(float(t) for t in range(math.ceil(low), math.floor(high) + 1, every))
    return Axis(low=low - air, high=high + air, ticks=ticks or (low, high))


def optimum_axis(study: Study) -> Axis:
    """The axis of the best learning rates: their range with half an octave, within the grid."""
    grid, rows = rate_axis(study), optimum_rows(study)
    values = [row[key] for row in rows for key in (study.tuned.column, "low", "high")]
    values = [grid.clamp(v) for v in values if math.isfinite(v)]
    if not values:
        return grid
    low, high = grid.clamp(min(values) - 0.5), grid.clamp(max(values) + 0.5)
    if high - low < 2:
        low, high = grid.clamp(low - 1), grid.clamp(high + 1)
    return Axis(low=low, high=high, ticks=tuple(t for t in grid.ticks if low <= t <= high))


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Positions moved apart to at least ``gap`` in the same order, by as little as possible.

    Example:
        >>> [round(p, 3) for p in spread([0.5, 0.9, 0.5], 0.1)]
        [0.45, 0.9, 0.55]
    """
    order = sorted(range(len(positions)), key=lambda i: (positions[i], i))
    # Blocks of labels that touch: (indices, centre). A block that would overlap the one before is
    # merged with it around the mean of all labels' centres, the least squares of their shifts.
    blocks: list[tuple[list[int], float]] = []
    for index in order:
        members, centre = [index], positions[index]
        while blocks:
            before, previous_centre = blocks[-1]
            if previous_centre + gap * (len(before) + len(members)) / 2 <= centre + 1e-12:
                break
            total = len(before) + len(members)
            centre = (previous_centre * len(before) + centre * len(members)) / total
            members = before + members
            blocks.pop()
        blocks.append((members, centre))
    moved = [0.0] * len(positions)
    for members, centre in blocks:
        for rank, index in enumerate(members):
            moved[index] = centre + gap * (rank - (len(members) - 1) / 2)
    return moved


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """1, 2, 5 of every decade; powers of ten alone over many decades."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits: tuple[float, ...] = (1, 2, 5) if high / low < 1e4 else (1,)
    if high / low < 4:
        digits = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    marks = [float(f"{d}e{k}") for k in decades for d in digits]
    return tuple(m for m in marks if low <= m <= high)


def _ticks(low: float, high: float) -> tuple[float, ...]:
    """About five round numbers."""
    raw = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = unit * next(m for m in (1, 2, 5, 10) if m * unit >= raw)
    first, last = math.ceil(low / step), math.floor(high / step)
    return tuple(round(k * step, 12) for k in range(first, last + 1))
