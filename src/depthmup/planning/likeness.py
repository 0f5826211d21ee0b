"""Likeness: an optimizer like a person's own for small parameters, with nothing of the person's."""

import copy
import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from depthmup._uncompiled import uncompiled
from depthmup.planning.settings import LR_FACTOR, LR_ORIGIN, SETTINGS, base_key
from depthmup.planning.several import holders, parts_of

MakeOptimizer: TypeAlias = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def twin_of(optimizer: Any, group: Mapping[str, Any]) -> MakeOptimizer:
    """A function from small parameters to an optimizer like this one, as it is set up now.

    Everything that the optimizer holds is copied; its parameters, state and hooks are left out.
    """
    return lambda parameters: _copy(optimizer, {**at_base(group), "params": parameters})


def rebuilt(optimizer: Any, group: Mapping[str, Any]) -> MakeOptimizer:
    """The same by the constructor of its class, from what the optimizer shows of its settings."""
    cls: Any = type(optimizer)
    first, *known = inspect.signature(cls).parameters
    shown = {**vars(optimizer), **getattr(optimizer, "defaults", {}), **at_base(group)}
    settings = {
        key: value
        for key, value in shown.items()
        if key in known and not any(map(_of_the_person, parts_of(value)))
    }
    wrapped = shown.get(first)  # a wrapper is given its optimizer where others are parameters
    make = rebuilt(wrapped, group) if hasattr(wrapped, "param_groups") else list
    return lambda parameters: cls(make(parameters), **settings)


def at_base(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group's settings before a plan scaled them, without what a plan or a schedule adds."""
    left_out = {LR_FACTOR, LR_ORIGIN, "params", "param_names", *map(base_key, SETTINGS)}
    bases = {key: group[base_key(key)] for key in SETTINGS if base_key(key) in group}
    kept = {key: value for key, value in group.items() if key not in left_out}
    return {**kept, **{key: _like(kept.get(key), base) for key, base in bases.items()}}


def _like(value: Any, base: Any) -> Any:
    """A base's value in the form that the optimizer has it: a rate may have to be a tensor."""
    return torch.full_like(value, base) if isinstance(value, Tensor) else base


def _copy(optimizer: Any, group: dict[str, Any]) -> Any:
    group = {key: v.clone() if isinstance(v, Tensor) else v for key, v in group.items()}
    held = holders(optimizer)
    memo: dict[int, Any] = {id(h): object.__new__(_class_of(h)) for h in held}
    for holder in held:
        for real in vars(holder).get("param_groups", ()):
            memo[id(real)] = group
            memo |= {id(p): group["params"][0] for p in real["params"]}
    for holder in held:
        own = vars(holder)
        if "param_groups" in own:
            memo.setdefault(id(own["param_groups"]), [group])
        if "state" in own:
            memo.setdefault(id(own["state"]), defaultdict(dict))
    for holder in held:
        twin = memo[id(holder)]
        for name, value in vars(holder).items():
            if is_wrapped(holder, name):
                continue
            if any(_of_the_model(part, memo) for part in parts_of(value)):
                continue
            if name.startswith("_optimizer_") and name.endswith("_hooks"):
                vars(twin)[name] = OrderedDict()
                continue
            try:
                vars(twin)[name] = copy.deepcopy(value, memo)
            except Exception:  # a process group, a lock: as it is
                vars(twin)[name] = value
    return memo[id(optimizer)]


def is_wrapped(holder: object, name: str) -> bool:
    """Whether an attribute is a method that something has wrapped, as schedules do."""
    return callable(vars(holder)[name]) and hasattr(type(holder), name)


def _of_the_person(value: object) -> bool:
    """Whether something trains or is trained, so that a twin which got it would touch it."""
    trains = isinstance(value, nn.Module) or hasattr(value, "param_groups")
    return trains or (isinstance(value, Tensor) and value.numel() > 1)


def _of_the_model(value: object, memo: Mapping[int, Any]) -> bool:
    """Whether something is a model, or as large as one: neither copied nor shared with a twin."""
    if isinstance(value, Tensor):
        return value.numel() > _LARGE and id(value) not in memo
    return isinstance(value, nn.Module)


_LARGE = 2**20
"""Numbers of a tensor that an optimizer may hold beside its state, and that are copied."""


def _class_of(holder: object) -> Any:
    cls: Any = type(holder)
    return uncompiled(cls) if cls.__module__.split(".")[:2] == ["torch", "optim"] else cls
