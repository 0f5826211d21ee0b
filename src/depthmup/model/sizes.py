"""How a model's functions are given a size: each takes the axes that it names.

``make(width, depth, experts)`` and ``batch(generator, batch, context)`` are called by name,
whatever the axes are; no axis is known here but width and depth, which may be called anything else
in ``make``, and the batch, which may be called ``size`` or ``batch_size`` in ``batch``.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from depthmup.model.command import check_axes_of
from depthmup.model.model import Functions
from depthmup.records.study import RUN_AXES, Axis

_BY_POSITION = ("width", "depth")
_BATCH_NAMES = ("size", "batch_size")

_Parameters = Mapping[str, inspect.Parameter]


def network_at(own: Functions, size: Mapping[Axis, int]) -> Any:
    """What the factory makes of a size."""
    names, unnamed = _of_make(own, size), _unnamed(own, size)
    by_position = [size[axis] for axis in _BY_POSITION if axis in unnamed]
    return own.make(*by_position, **{axis: size[axis] for axis in names})


def batches_at(own: Functions, size: Mapping[Axis, int]) -> Callable[[Any], Any]:
    """The function that draws a batch of a size from a generator."""
    given = {name: size[axis] for name, axis in _of_batch(own, size).items()}
    return partial(own.batch, **given) if given else own.batch


def check_axes(own: Functions, axes: Iterable[Axis]) -> None:
    """Refuse axes of which the model takes no notice, and arguments that no axis gives."""
    if own.command is not None:
        check_axes_of(own.command, axes)
    if own.whole:
        return
    size = dict.fromkeys(axes, 1)
    taken = {*_of_make(own, size), *_unnamed(own, size), *_of_batch(own, size).values()}
    make, batch = (getattr(f, "__name__", str(f)) for f in (own.make, own.batch))
    for axis in size:
        if axis in taken or axis in ("steps", "tokens"):
            continue
        takes = f"{batch}(generator, {axis})"
        if axis not in RUN_AXES:
            takes = f"{make}({', '.join([*_names(own.make), axis])}), or {takes}"
        raise ValueError(
            f"Expected the model to take every axis of the base; neither {make} nor {batch} has a "
            f"parameter {axis}. Write {takes}, or leave {axis} out of the base."
        )
    _check_given(own.make, make, {*_of_make(own, size)}, skip=len(_unnamed(own, size)))
    _check_given(own.batch, f"{batch}(generator, ...)", {*_of_batch(own, size)}, skip=1)


def ignored(
    axis: Axis, base: Mapping[Axis, int], size: Mapping[Axis, int], same: str
) -> ValueError:
    """The refusal of a factory that ignores an axis: at both sizes ``same`` holds."""
    return ValueError(
        f"The factory ignores its {axis}: at {axis} {base[axis]} and {size[axis]} {same}. "
        f"Expected make({axis}) to pass it on to the model: use it, or leave {axis} out."
    )


def _of_make(own: Functions, size: Mapping[Axis, int]) -> list[Axis]:
    """The axes that the factory is given by name."""
    names, unnamed = _names(own.make), _unnamed(own, size)
    anything = any(p.kind is p.VAR_KEYWORD for p in _parameters(own.make).values())
    return [
        axis
        for axis in size
        if axis not in unnamed and (axis in names or (anything and axis not in RUN_AXES))
    ]


def _unnamed(own: Functions, size: Mapping[Axis, int]) -> set[Axis]:
    """Width and depth where they are the factory's first arguments under other names."""
    names = _names(own.make)
    # Of make(width, layers) the second one is the depth; of make(depth, heads) nothing is the
    # width.
    misplaced = any(axis in names and names.index(axis) != i for i, axis in enumerate(_BY_POSITION))
    anything = any(p.kind is p.VAR_KEYWORD for p in _parameters(own.make).values())
    if not set(_BY_POSITION) <= set(size) or set(_BY_POSITION) <= set(names) or misplaced:
        return set()
    return set() if anything and len(names) < len(_BY_POSITION) else {*_BY_POSITION}


def _of_batch(own: Functions, size: Mapping[Axis, int]) -> dict[str, Axis]:
    """The axes that the batch function takes, by the names of its parameters."""
    taken: dict[str, Axis] = {}
    for name, parameter in list(_parameters(own.batch).items())[1:]:
        axis = "batch" if name in _BATCH_NAMES and name not in size else name
        # ``batch(generator, width=16)`` may mean the width of its data: only what it cannot do
        # without is given.
        own_default = axis in _BY_POSITION and parameter.default is not parameter.empty
        if axis in size and not own_default:
            taken[name] = axis
    return taken


def _check_given(function: Any, name: str, given: set[str], *, skip: int) -> None:
    for parameter in list(_parameters(function).values())[skip:]:
        if (
            parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            and parameter.name not in given
        ):
            raise ValueError(
                f"Expected an axis for every argument of {name}; the base has no "
                f"{parameter.name!r}. Add it to the base of the design, such as "
                f"{{{parameter.name!r}: 1, ...}}, or give it a default."
            )


def _names(function: Any) -> list[str]:
    return [
        name
        for name, parameter in _parameters(function).items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]


def _parameters(function: Any) -> _Parameters:
    """By name; none where Python cannot tell, as for functions of compiled modules."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
