"""Whether the drift along one axis depends on another: their interaction, from a crossed design.

    log2 best(x, y) = f(x) + g(y) + s x y,   x and y in doublings of the base's sizes

f and g are free: they are what the arms show, so that an arm that bends is no interaction. With one
size that grows along both,

    s = (best(x, y) - best(x, 0) - best(0, y) + best(0, 0)) / (x y).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from depthmup.records import UNKNOWN, Axis, Estimate, Place
from depthmup.records.finding import change as change_of
from depthmup.records.finding import in_percent
from depthmup.records.sizes import size_number
from depthmup.statistics.intervals import Array, around
from depthmup.statistics.law import Size
from depthmup.statistics.optimum import Optima
from depthmup.statistics.regression import Regression
from depthmup.statistics.scatter import FREE


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


def interaction(
    fitted: Optima, sizes: Sequence[Size], base: Size, axes: tuple[Axis, Axis]
) -> Estimate:
    """How much the drift along one axis changes per doubling of the other."""
    if not sizes or set(fitted.places()) != {Place.INTERIOR}:
        return UNKNOWN
    doublings = np.array([[math.log2(size[axis] / base[axis]) for axis in axes] for size in sizes])
    law = Regression(
        fitted=fitted, design=_design(sizes, base, axes), doublings=doublings, usual=FREE
    )
    row = law.rows[-1]
    return around(law.value(row), law.half(row))


def _design(sizes: Sequence[Size], base: Size, axes: tuple[Axis, Axis]) -> Array:
    """The base, one column for every other value along each axis, and the product, last."""
    columns = [np.ones(len(sizes))]
    for axis in axes:
        for value in sorted({size[axis] for size in sizes} - {base[axis]}):
            columns.append(np.array([float(size[axis] == value) for size in sizes]))
    doublings = [[math.log2(size[axis] / base[axis]) for axis in axes] for size in sizes]
    return np.column_stack([*columns, np.prod(doublings, axis=1)])


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
