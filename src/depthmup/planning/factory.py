"""A plan of a factory: sizes are told apart, as models that are larger along one axis are at hand.

``make(**base)`` has values; the target is built without memory where it is large, and so are the
models that only shapes are read of. What grows with which axis then shows: the plan of the target
must be the product of the plans along each axis alone, and is proven along each of them.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, TypeAlias, TypeVar

import torch
from torch import nn

from depthmup._isolated import isolated
from depthmup.planning.content import PlanContent
from depthmup.planning.initializers import Drawn, recorded
from depthmup.planning.matching import UnrelatedModels
from depthmup.planning.options import PlanOptions
from depthmup.planning.prescribe import Prescription
from depthmup.planning.roles import NotUnderstood
from depthmup.planning.starts import numbers_of
from depthmup.rules import fold
from depthmup.tracing import ExampleInputs, Facts, TraceError, parameters, read, unwrapped

Factory: TypeAlias = Callable[..., nn.Module]
Size: TypeAlias = Mapping[str, int]
_P = TypeVar("_P", bound=PlanContent)
_Built: TypeAlias = tuple[nn.Module, Mapping[str, Drawn]]

LARGEST = 20_000_000
"""Parameters up to which the target is built with values, for starts that nothing else tells."""

_GROWTHS = (4, 2)
"""By how much models of a proof are larger along one axis."""

_FACTORS = ("init", "lr", "decay", "epsilon")


def of_factory(
    make: Any,
    base: Any,
    target: Any,
    plan: Callable[..., _P],
    *,
    inputs: ExampleInputs | None,
    options: PlanOptions,
    proof: str,
) -> _P:
    """The plan from ``make(**base)`` to ``make(**target)``; ``plan`` plans one model from another.

    Sizes that are none, an axis that the factory ignores, a factory that fails or gives other parts
    each time are refused, with the size.
    """
    small, large = _sizes(make, base, target)
    base_built = _built(make, small)
    _refuse_chance(make, small, base_built[0])
    target_built = _built(make, large, "meta")
    if sum(p.numel() for p in target_built[0].parameters()) <= LARGEST:
        target_built = _built(make, large)
    grown = [axis for axis in small if large[axis] != small[axis]]
    along = {axis: {**small, axis: large[axis]} for axis in grown}
    shapes = {axis: _built(make, size, "meta") for axis, size in along.items()}
    for axis, size in along.items():
        _refuse_ignored(make, axis, (small, size), (base_built[0], shapes[axis][0]), inputs)

    of_base = inputs if options.base_inputs is None else options.base_inputs
    options = replace(options, facts=(None, _facts(base_built, of_base)))

    def planned(size: Size, built: _Built, *, proof: str = "off") -> _P:
        drawn = (built[1], base_built[1])
        try:
            return plan(built[0], base_built[0], drawn=drawn, options=options, proof=proof)
        except UnrelatedModels as error:
            raise UnrelatedModels(
                f"{_call(make, size)} is not {_call(make, small)} in another size: {error}"
            ) from None

    def shapes_alone(axis: str) -> _P:
        try:
            return planned(along[axis], shapes[axis])
        except TraceError:  # of models that read values
            return planned(along[axis], _built(make, along[axis]))

    result = planned(large, target_built)
    tried = [] if proof == "off" else _proof_sizes(make, small, large, grown)
    proven = [(size, planned(size, built, proof=proof)) for size, built in tried]
    if len(grown) > 1:
        plans = {
            axis: next((plan for of, plan in proven if of == size), None) or shapes_alone(axis)
            for axis, size in along.items()
        }
        _refuse_confusion(make, result, plans)
    return replace(result, proof=" ".join(plan.proof for _, plan in proven if plan.proof))


def _facts(built: _Built, inputs: ExampleInputs | None) -> Facts | None:
    """What a forward pass of the base shows, for all plans from it; None where none is followed."""
    model, drawn = built
    try:
        return None if inputs is None else read(model, inputs, numbers_of((drawn, drawn))[1])
    except TraceError:  # whoever plans says so
        return None


def _kind(given: Any) -> str:
    """Sizes as they are; of everything else its type."""
    return repr(given) if given is None or isinstance(given, Mapping) else type(given).__name__


def _sizes(make: Any, base: Any, target: Any) -> tuple[dict[str, int], dict[str, int]]:
    """The sizes of the base and of the target, a value for every axis of the base."""
    example = "depthmup.plan(make, base=dict(width=64, depth=2), target=dict(width=1024, depth=16))"
    of_sizes = isinstance(base, Mapping) and callable(make) and not isinstance(make, nn.Module)
    if target is None and not of_sizes:
        for each in (make, base):
            unwrapped(each)  # says what is no model
    given = isinstance(base, Mapping) and isinstance(target, Mapping)
    if not callable(make) or isinstance(make, nn.Module) or not given or not base:
        raise TypeError(
            "Expected a model and its base, or a function that makes models with base= and "
            f"target= as sizes; got {_kind(make)} with base={_kind(base)} and "
            f"target={_kind(target)}. Pass e.g. {example}."
        )
    for name, size in (("base", base), ("target", target)):
        for axis, n in size.items():
            if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
                raise ValueError(f"Expected {name} to have whole numbers; got {axis}={n!r}.")
    if unknown := [axis for axis in target if axis not in base]:
        raise ValueError(
            f"Expected target to name axes of the base; got {unknown[0]} as well. Give the base a "
            f"{unknown[0]}."
        )
    takes = inspect.signature(make).parameters
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values())
    if not free and (unknown := [axis for axis in base if axis not in takes]):
        raise ValueError(
            f"Expected {_name(make)} to take {unknown[0]}; it takes {', '.join(takes)}. Name the "
            "axes as the function does."
        )
    return dict(base), {**base, **target}


def _built(make: Factory, size: Size, device: str = "cpu") -> _Built:
    """The factory's model of a size, of one seed, and what drew its parameters."""
    try:
        with isolated(), torch.device(device):
            torch.default_generator.manual_seed(0)
            model, drawn = recorded(partial(_module, make, size))
    except _NoModule:
        raise
    except Exception as error:
        if device == "meta":  # code that reads values needs memory
            return _built(make, size)
        raise ValueError(
            f"{_call(make, size)} raises {type(error).__name__}: {str(error)[:300]}. Expected a "
            "model of this size, from its arguments alone."
        ) from error
    return model, drawn


class _NoModule(TypeError):
    """A factory that gives something else than a model."""


def _module(make: Factory, size: Size) -> nn.Module:
    model = make(**size)
    if not isinstance(model, nn.Module):
        raise _NoModule(
            f"Expected {_call(make, size)} to give a torch.nn.Module; got {type(model).__name__}."
        )
    return model


def _refuse_chance(make: Factory, size: Size, model: nn.Module) -> None:
    """Refuse a factory whose models have other parts each time."""
    for seed in (1, 2):
        with isolated(), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)
            again = make(**size)
        if _shapes(again) != _shapes(model):
            raise ValueError(
                f"{_call(make, size)} gives another model each time: {_difference(model, again)}. "
                "Expected one structure for one size; draw it once, outside of the factory."
            )


def _refuse_ignored(
    make: Factory,
    axis: str,
    sizes: tuple[Size, Size],
    models: tuple[nn.Module, nn.Module],
    inputs: ExampleInputs | None,
) -> None:
    """Refuse a factory that takes no notice of an axis, in its parameters or in its operations."""
    model, other = models
    if inputs is None or _shapes(other) != _shapes(model) or repr(other) != repr(model):
        return
    try:  # layers that share their weights are repeated in the forward pass alone
        alike = len({len(read(m, inputs).graph.nodes) for m in models}) == 1
    except TraceError:
        alike = False
    if alike:
        raise ValueError(
            f"{_name(make)} ignores {axis}: {_call(make, sizes[1])} has the parameters of "
            f"{_call(make, sizes[0])}, each of the same shape, and computes the same. Pass {axis} "
            "on to the model, or leave it out of base and target."
        )


def _refuse_confusion(make: Factory, plan: PlanContent, along: Mapping[str, PlanContent]) -> None:
    """Refuse a plan whose factors are not those along each axis alone, multiplied."""
    named = [{n: q for q in one.prescriptions for n in q.names} for one in along.values()]
    for p in plan.prescriptions:
        # A deeper model alone has the same names, a wider one those of the base.
        found = [
            next((known[n] for n in (p.name, p.base_name) if n in known), None) for known in named
        ]
        parts = [part for part in found if part is not None]
        if len(parts) < len(along):
            continue
        for factor in _FACTORS:
            whole, *each = (_unfolded(q, factor) for q in (p, *parts))
            if not math.isclose(whole, math.prod(each), rel_tol=1e-6):
                raise NotUnderstood(
                    f"The plan's {factor} of {p.name} is {whole:.6g}, but "
                    f"{' times '.join(f'{one:.6g}' for one in each)} along "
                    f"{', '.join(along)} one by one: what grows there with which of them was "
                    f"misread. Declare the parameter, or plan from one model of {_name(make)} to "
                    "another, along one axis at a time."
                )


def _unfolded(p: Prescription, factor: str) -> float:
    """A factor without the multiplier that the parameter carries.

    That may be another layer's, where the model is as deep as the base.
    """
    return float(getattr(p, factor) / getattr(fold(p.folded, p.family), factor))


def _proof_sizes(
    make: Factory, base: Size, target: Size, grown: list[str]
) -> list[tuple[Size, _Built]]:
    """Models that are larger along one axis, as few times as shows an exponent."""
    found: list[tuple[Size, _Built]] = []
    for axis in grown:
        ratio = target[axis] / base[axis]
        growths = [k for k in _GROWTHS if k <= ratio] if ratio > 1 else []
        for n in [*(k * base[axis] for k in growths), target[axis]]:
            size = {**base, axis: n}
            try:
                built = _built(make, size)
            except (ValueError, TypeError):
                continue
            found.append((size, built))
            break
    return found


def _shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in parameters(model).items()}


def _difference(model: nn.Module, other: nn.Module) -> str:
    """The first parameter that only one of two models has, or has in another shape."""
    one, two = _shapes(model), _shapes(other)
    name = next(name for name in {**one, **two} if one.get(name) != two.get(name))
    return f"{name} is {one.get(name, 'absent')} once and {two.get(name, 'absent')} once"


def _name(make: Any) -> str:
    return str(getattr(make, "__name__", type(make).__name__))


def _call(make: Any, size: Size) -> str:
    return f"{_name(make)}({', '.join(f'{axis}={n}' for axis, n in size.items())})"
