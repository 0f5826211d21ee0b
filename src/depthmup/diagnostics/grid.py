"""The sizes of a check's networks, and what is refused of those that are asked for."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, TypeAlias

from depthmup.records import RUN_AXES, Axis
from depthmup.records.grammar import either

Size: TypeAlias = Mapping[Axis, int]
"""A value for every axis."""


def grid_of(axes: Mapping[Axis, Sequence[int]]) -> list[Size]:
    """The sizes to train, the smallest first: some of width and depth, each further axis alone.

    Example:
        >>> grid_of({"width": (8,), "depth": (2, 4), "experts": (2, 4)})[1:]
        [{'width': 8, 'depth': 4, 'experts': 2}, {'width': 8, 'depth': 2, 'experts': 4}]
    """
    smallest = {axis: values[0] for axis, values in axes.items()}
    square = staircase(axes["width"], axes["depth"])
    return [
        *({**smallest, "width": width, "depth": depth} for width, depth in square),
        *({**smallest, axis: value} for axis in further(smallest) for value in axes[axis][1:]),
    ]


def staircase(widths: Sequence[int], depths: Sequence[int]) -> list[tuple[int, int]]:
    """The sizes to train: wide ones shallow, deep ones narrow, and those between.

    Both slopes follow from half of the grid, without the networks that are wide and deep, which
    take most of the time.
    """
    across, down = max(len(widths) - 1, 1), max(len(depths) - 1, 1)
    return [
        (width, depth)
        for i, width in enumerate(widths)
        for j, depth in enumerate(depths)
        if i * down + j * across <= across * down
    ]


def distinct(sizes: Sequence[int], name: str) -> tuple[int, ...]:
    """Sizes in order, if a slope follows from them."""
    ordered = tuple(sorted(sizes))
    if not ordered or ordered[0] < 1:
        raise ValueError(f"Expected {name} to be positive; got {list(sizes)}.")
    if len(set(ordered)) < len(ordered):
        raise ValueError(
            f"Expected {name} to differ, as a slope needs ratios other than 1; got {list(sizes)}."
        )
    if len(ordered) == 2:
        raise ValueError(
            f"Expected at least 3 {name}, because two points lie on any line; got {list(sizes)}. "
            "Give one size only to leave this dimension out."
        )
    return ordered


def refuse_along(axes: Mapping[Axis, Any]) -> None:
    """Refuse further axes that are none: of width and depth, and of the run."""
    if callable(axes.get("batch")):
        raise ValueError(
            "Expected a model with its batch; got batch beside it. Give "
            "depthmup.Model(make, batch=batch)."
        )
    if twice := {"width", "depth", *RUN_AXES} & {*axes}:
        raise ValueError(
            f"Expected along to name axes of the factory other than width and depth; got "
            f"{min(twice)}. Give {either('widths=..., depths=...', '--widths, --depths')}; the "
            "batch and the steps are the same at every size here."
        )


def further(size: Size) -> dict[Axis, int]:
    """The values along axes other than width and depth."""
    return {axis: n for axis, n in size.items() if axis not in ("width", "depth")}


def check_counts(**counts: int) -> None:
    """Refuse numbers of repetitions that are none."""
    if any(isinstance(n, bool) or not isinstance(n, Integral) for n in counts.values()):
        given = ", ".join(f"{name}={n!r}" for name, n in counts.items())
        raise ValueError(f"Expected {' and '.join(counts)} as whole numbers; got {given}.")
