"""The axes of charts, and the place of labels.

Axes are fixed over all windows, so that a slider moves the curves and never the frame. Learning
rates stand on logarithmic axes in plain numbers, 1e-3 and 3e-3; tooltips have their log2.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from depthmup.records import Place, Study
from depthmup.reports.sentences import loss_word
from depthmup.reports.study_rows import optimum_rows, point_rows

RATE, PERCENT, SIZE = "rate", "percent", "size"
"""Formats of ticks beside those of d3: 3e-4 and 0.03; factors as changes, -20%; 16384 and 4B."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """An axis: what may be drawn lies in [low, high], labelled at ``ticks``.

    ``log`` axes need positive values.
    """

    title: str = ""
    low: float = 0.0
    high: float = 1.0
    ticks: tuple[float, ...] = ()  # the library's choice if there are none
    log: bool = False
    base: int = 10
    format: str = ".6~g"  # of d3, or one of those above; without digits ticks of 10 read "1e+1"
    grid: bool = True
    top: float | None = None  # the end of the scale beyond ``high``
    bottom: float | None = None
    room: bool = False  # for labels beside the ends of lines
    names: bool = False  # in place of numbers, in the order of their rows

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
    values: Iterable[float],
    *,
    must_show: Iterable[float] = (),
    reach: float = math.inf,
    title: str = "training loss",
) -> Axis:
    """An axis of losses, which are positive, that a few exploded runs cannot squash.

    It ends at ``reach`` or 25 times the best loss, whichever is less, but above all values that
    must be visible; larger losses are drawn as leaving the panel. Beyond both ends is some air.
    """
    finite = [v for v in values if 0 < v < math.inf]
    needed = [v for v in must_show if 0 < v < math.inf]
    if not finite:
        return Axis(title=title, low=0.1, high=1.0, ticks=(0.1, 1.0), log=True, format=".3~g")
    best, worst = min(finite), max(finite)
    # The minimum of a steep valley lies below every loss that was measured.
    low, high = min([best, *needed]), max(min(worst, 25 * best, reach), *needed, 1.02 * best)
    air = (high / low) ** 0.08
    low, high = low / air, high * air
    ticks = round_values(low, high)
    return Axis(title=title, low=low, high=high, ticks=ticks, log=True, format=".4~g")


def study_loss_axis(study: Study) -> Axis:
    """The loss axis that every panel shares.

    Learning rates that are too small leave a network as it was; those that are too large make it
    worse without bound. So the losses at the smallest rates say how far the axis has to reach above
    the best; or most of all losses, of which half lie within a third of the axis.
    """
    losses = sorted(row["loss"] for row in point_rows(study) if 0 < row["loss"] < math.inf)
    slow = [
        curve.points[0].loss.value
        for window in study.windows
        for curve in window.curves
        if curve.points and curve.points[0].loss.known
    ]
    best = losses[0] if losses else math.inf
    above = [1.5 * (median(slow) - best)] if slow else []
    if losses:
        most = losses[math.ceil(0.85 * len(losses)) - 1]
        above.append(min(most - best, 3 * (median(losses) - best)))
    return loss_axis(
        losses,
        # Beyond an edge lies a better one: such an optimum may be as bad as it likes.
        must_show=[
            row["loss"] for row in optimum_rows(study) if row["place"] == Place.INTERIOR.value
        ],
        reach=best + max(above, default=0.0),
        title=loss_word(study),
    )


def best_loss_axis(study: Study) -> Axis:
    """The axis of the best losses alone, with as much of their intervals as leaves them legible.

    Two seeds give intervals over many decades; those are drawn to the axis' ends.
    """
    rows = optimum_rows(study)
    best = [row["loss"] for row in rows if math.isfinite(row["loss"])]
    ends = [row[end] for row in rows for end in ("loss_low", "loss_high")]
    if best:
        least, most = min(best), max(best)
        ends = [min(max(v, least / 2), 2 * most) for v in ends if math.isfinite(v)]
    return loss_axis([*best, *ends], must_show=[*best, *ends], title=f"best {loss_word(study)}")


AROUND = 3.0
"""Octaves beyond the optima that are drawn of a search."""


def log2_axis(study: Study) -> Axis:
    """The log2 of the grid's learning rates, half a step of air on each side.

    Of a search, which may have begun far away, those within ``AROUND`` octaves of an optimum.
    """
    rates = sorted({row[study.tuned.column] for row in point_rows(study)})
    best = [v for r in optimum_rows(study) if math.isfinite(v := r[study.tuned.column])]
    if study.search is not None and best:
        low, high = min(best) - AROUND, max(best) + AROUND
        rates = [k for k in rates if low <= k <= high]
    if not rates:
        rates = sorted(v for r in optimum_rows(study) if math.isfinite(v := r[study.tuned.column]))
    low, high = (rates[0], rates[-1]) if rates else (-1.0, 1.0)
    step = (high - low) / max(len(rates) - 1, 1) or 1.0
    air = min(step, 1.0) / 2
    return Axis(low=low - air, high=high + air)


def plain(low: float, high: float, title: str, *, grid: bool = True) -> Axis:
    """The axis of the values themselves, logarithmic, given the ends of their log2."""
    low, high = 2.0**low, 2.0**high
    return Axis(
        title=title,
        low=low,
        high=high,
        ticks=round_values(low, high),
        log=True,
        format=RATE,
        grid=grid,
    )


def rate_axis(study: Study) -> Axis:
    """The learning rates of the grid."""
    log2 = log2_axis(study)
    return plain(log2.low, log2.high, study.tuned.name, grid=False)


def optimum_axis(study: Study) -> Axis:
    """The axis of the best learning rates: their range with half an octave, within the grid."""
    grid, rows = log2_axis(study), optimum_rows(study)
    values = [row[key] for row in rows for key in (study.tuned.column, "low", "high")]
    values = [grid.clamp(v) for v in values if math.isfinite(v)]
    low, high = grid.low, grid.high
    if values:
        low, high = grid.clamp(min(values) - 0.5), grid.clamp(max(values) + 0.5)
        if high - low < 2:
            low, high = grid.clamp(low - 1), grid.clamp(high + 1)
    return plain(low, high, f"best {study.tuned.name}")


def size_axis(title: str, sizes: Sequence[float], *, room: bool = False) -> Axis:
    """The axis of sizes: logarithmic, with ticks at those that were measured."""
    measured = sorted(set(sizes)) or [1.0]
    octaves = max(math.log2(measured[-1] / measured[0]), 1.0)
    return Axis(
        title=title,
        low=measured[0] * 2 ** (-0.05 * octaves),
        high=measured[-1] * 2 ** (0.06 * octaves),
        ticks=tuple(measured),
        log=True,
        base=2,
        format=SIZE,
        grid=False,
        room=room,
    )


_MOST = 13
"""Ticks of an axis that a phone has room for."""

_CHANGES = (-0.99, -0.97, -0.9, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 3.0, 9.0, 31.0, 99.0)


def change_axis(low: float, high: float, title: str) -> Axis:
    """The axis of factors from 2^low to 2^high, labelled as changes in percent."""
    axis = Axis(title=title, low=2.0**low, high=2.0**high, log=True, format=PERCENT)
    # A label that is centered nearer to the end would be cut on a phone.
    least, most = axis.at(0.0), axis.at(0.96)
    ticks = tuple(1 + c for c in _CHANGES if least <= 1 + c <= most)
    for step in (2, 5, 10) if len(ticks) < 5 else ():
        fine = [1 + k / 100 for k in range(-90, 101, step)]
        ticks = tuple(factor for factor in fine if least <= factor <= most)
        if len(ticks) <= _MOST:
            break
    return replace(axis, ticks=ticks)


def round_values(low: float, high: float) -> tuple[float, ...]:
    """Round numbers on a logarithmic axis, as many as are told apart."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    best: tuple[float, ...] = ()
    for digits in _DIGITS:
        marks = (float(f"{d}e{k}") for k in decades for d in digits)
        ticks = tuple(m for m in marks if low <= m <= high)
        if len(ticks) > 6 and len(best) > 1:
            break
        best = ticks
    return best if len(best) > 2 else _even(low, high)


def _even(low: float, high: float) -> tuple[float, ...]:
    """Four to nine round numbers at equal distances, for a range that is a part of its values."""
    room = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(room))
    step = max(d * unit for d in (1, 2, 5) if d * unit <= room)
    first, last = math.ceil(low / step), math.floor(high / step)
    return tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))


_DIGITS: tuple[tuple[float, ...], ...] = (
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9),
)


def spread(positions: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Centres of labels of these heights, moved apart in their order by as little as possible.

    Within 0 and 1 where they have room there: least squares of the shifts.
    """
    order = sorted(range(len(positions)), key=lambda i: (positions[i], i))
    offsets = [0.0]
    for before, after in pairwise(order):
        offsets.append(offsets[-1] + (heights[before] + heights[after]) / 2)
    # Less their offsets labels may touch: what is left is a regression that does not decrease.
    blocks: list[tuple[float, int]] = []
    for index, offset in zip(order, offsets, strict=True):
        centre, count = positions[index] - offset, 1
        while blocks and blocks[-1][0] > centre:
            previous, members = blocks.pop()
            centre = (previous * members + centre * count) / (members + count)
            count += members
        blocks.append((centre, count))
    moved = [0.0] * len(positions)
    centres = [centre for centre, count in blocks for _ in range(count)]
    for index, offset, centre in zip(order, offsets, centres, strict=True):
        low, high = heights[order[0]] / 2, 1 - heights[order[-1]] / 2 - offsets[-1]
        moved[index] = offset + (min(max(centre, low), high) if low <= high else centre)
    return moved
