"""Whether the drift along one axis depends on another: their interaction, from a crossed design.

    log2 best(x, y) = f(x) + g(y) + s x y,   x and y in doublings of the base's sizes

f and g are free: they are what the arms show, so that an arm that bends is no interaction. With one
size that grows along both,

    s = (best(x, y) - best(x, 0) - best(0, y) + best(0, 0)) / (x y).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from depthmup.posterior.intervals import Array
from depthmup.posterior.law import Size
from depthmup.records import UNKNOWN, Axis, Estimate, Place
from depthmup.records.finding import change as change_of
from depthmup.records.finding import in_percent
from depthmup.records.sizes import size_number
from depthmup.statistics.runs import Runs


def crossed(sizes: Sequence[Size], base: Size, axes: tuple[Axis, Axis]) -> tuple[Size, ...]:
    """The sizes that tell how two axes interact: those that grow along both, and their arms."""
    measured = {tuple(sorted(size.items())) for size in sizes}
    one, other = axes

    def along(size: Size, axis: Axis) -> Size:
        return {**base, axis: size[axis]}

    def complete(size: Size) -> bool:
        within = {**base, one: size[one], other: size[other]} == dict(size)
        arms = (along(size, one), along(size, other), base)
        return within and all(tuple(sorted(arm.items())) in measured for arm in arms)

    corners = [s for s in sizes if s[one] != base[one] and s[other] != base[other] and complete(s)]
    needed = [size for c in corners for size in (base, along(c, one), along(c, other), c)]
    return tuple({tuple(sorted(size.items())): size for size in needed}.values())


def interaction(runs: Runs, sizes: Sequence[Size], base: Size, axes: tuple[Axis, Axis]) -> Estimate:
    """How much the drift along one axis changes per doubling of the other."""
    at = [runs.sizes.index(size) for size in sizes]
    places = runs.optima.places()
    if not at or any(places[i] is not Place.INTERIOR for i in at):
        return UNKNOWN
    row = np.zeros(len(runs.sizes))
    row[at] = np.linalg.pinv(_design(sizes, base, axes))[-1]
    return runs.estimate(row)


def _design(sizes: Sequence[Size], base: Size, axes: tuple[Axis, Axis]) -> Array:
    """The base, one column for every other value along each axis, and the product, last."""
    columns = [np.ones(len(sizes))]
    for axis in axes:
        for value in sorted({size[axis] for size in sizes} - {base[axis]}):
            columns.append(np.array([float(size[axis] == value) for size in sizes]))
    doublings = [[math.log2(size[axis] / base[axis]) for axis in axes] for size in sizes]
    return np.column_stack([*columns, np.prod(doublings, axis=1)])


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """How the drift along one axis depends on others, by slices of a table.

    Attributes:
        changes: of the drift per doubling of each other axis.
        middle: log2 of the values in the middle, to which the drift belongs.
        ends: the least and the most of each axis.
    """

    changes: Mapping[Axis, Estimate] = field(default_factory=dict)
    middle: Mapping[Axis, float] = field(default_factory=dict)
    ends: Mapping[Axis, tuple[float, float]] = field(default_factory=dict)

    @property
    def certain(self) -> tuple[Axis, ...]:
        """The axes on which the drift certainly depends."""
        return tuple(axis for axis, change in self.changes.items() if change.outside(0.0, 0.0))

    def steeper(self, at: Mapping[Axis, float]) -> float:
        """By how much the drift at values of other axes differs from that in their middle."""
        changes = self.changes.items()
        return sum(c.value * (math.log2(at[a]) - self.middle[a]) for a, c in changes if a in at)

    def at_ends(self, other: Axis, drift: Estimate) -> dict[float, float]:
        """The drift at the least and the most of another axis."""
        return {v: drift.value + self.steeper({other: v}) for v in self.ends[other]}

    def everywhere(self, drift: Estimate) -> list[Estimate]:
        """The drift in the middle of the other axes, and at the ends of those it depends on."""
        ends = [d for other in self.certain for d in self.at_ends(other, drift).values()]
        low, high = drift.low - drift.value, drift.high - drift.value
        return [drift, *(replace(drift, value=d, low=d + low, high=d + high) for d in ends)]


def interaction_sentence(
    axis: Axis, other: Axis, change: Estimate, ends: Mapping[float, float] | None = None
) -> str:
    """What an interaction says of the drift along one axis, to stand behind a verdict's reason.

    With the drifts at the ``ends`` of the other axis.
    """
    if not change.known:
        return f" Whether the drift with {axis} depends on {other} was not measured."
    per = f"per doubling of {other} it changes by {in_percent(change)}."
    if not change.outside(0.0, 0.0):
        return f" That the drift with {axis} depends on {other} was not seen: {per}"
    at = [f"{change_of(d)} at {other} {size_number(v)}" for v, d in (ends or {}).items()]
    listed = f" It is {' and '.join(at)}." if at else ""
    return f" The drift with {axis} depends on {other}: {per}{listed}"
