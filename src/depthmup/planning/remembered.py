"""Measurements that are remembered: made once in a process for a class, its code and settings."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from depthmup.planning.likeness import at_base, is_wrapped
from depthmup.planning.settings import RATES
from depthmup.planning.several import holders

_MEASURED: WeakKeyDictionary[type, dict[object, Any]] = WeakKeyDictionary()


def remembered(
    optimizer: Any, group: Mapping[str, Any], of: object, measure: Callable[[], Any]
) -> Any:
    """A measurement of a class, made once in a process for its code and these settings."""
    known = _MEASURED.setdefault(type(optimizer), {})
    key = (of, _signature(optimizer, group))
    if key not in known:
        known[key] = measure()
    return known[key]


def _signature(optimizer: Any, group: Mapping[str, Any]) -> object:
    held = holders(optimizer)
    codes = tuple(code for h in held for code in _codes(type(h)))
    read = {text for code in codes for text in _texts(code)}
    defaults = {key: None for one in held for key in getattr(one, "defaults", ())}
    settings = {
        key: bool(value) if key == "weight_decay" else _stated(value)
        for key, value in at_base(group).items()
        if key not in RATES and (key in read or key in defaults or isinstance(value, bool))
    }
    attributes = [
        (name, _stated(value))
        for holder in held
        for name, value in vars(holder).items()
        if name not in _of_torch() and not is_wrapped(holder, name)
    ]
    named = [sorted(each, key=lambda part: part[0]) for each in (settings.items(), attributes)]
    return codes, *map(tuple, named)


@cache
def _of_torch() -> frozenset[str]:
    """What every optimizer of torch holds, some only with a scheduler: no setting is among it.

    Made when it is asked for: building one loads torch's compiler.
    """
    return frozenset({"_step_count", "_opt_called"} | vars(torch.optim.SGD([Tensor()])).keys())


def _stated(value: object, depth: int = 0) -> object:
    """What decides what a setting does; functions by their code and what they close over."""
    if depth > _DEPTH:
        return type(value)
    if isinstance(value, partial):
        value = (value.func, value.args, value.keywords)
    elif isinstance(value, FunctionType):
        cells = tuple(cell.cell_contents for cell in value.__closure__ or () if cell != CellType())
        value = (value.__code__, cells, value.__defaults__, value.__kwdefaults__)
    elif is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, each.name) for each in fields(value)]
    elif isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, dict):
        value = tuple(value.items())
    elif isinstance(value, set | frozenset):
        value = sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return tuple(_stated(part, depth + 1) for part in value)
    return (type(value), value) if isinstance(value, _SIMPLE) else type(value)


_SIMPLE = (bool, int, float, complex, str, bytes, Enum, type, CodeType, torch.dtype, torch.device)


_DEPTH = 4
"""Functions that hold functions, lists of lists: how deep settings are compared."""


def _codes(cls: type) -> Sequence[CodeType]:
    return tuple(
        f.__code__
        for base in cls.__mro__
        for value in vars(base).values()
        if isinstance(f := inspect.unwrap(value) if callable(value) else value, FunctionType)
    )


def _texts(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _texts(constant)
        elif isinstance(constant, tuple):
            yield from (part for part in constant if isinstance(part, str))
