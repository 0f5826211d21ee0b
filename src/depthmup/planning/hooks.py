"""Explicit multipliers: hooks on modules that a plan installs and removes."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from depthmup.planning.prescription import Multiplier
from depthmup.planning.sites import Where
from depthmup.tracing import plain_name, unwrapped


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiplyOutput:
    """Forward hook: multiply one tensor of what a module returns."""

    factor: float
    index: int = 0

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        if isinstance(output, Tensor):
            return output * self.factor
        return _multiplied(output, self.index, self.factor)


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiplyInput:
    """Forward pre-hook: multiply the first tensor a module is given."""

    factor: float
    index: int = 0

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and isinstance(args[0], Tensor):
            return (args[0] * self.factor, *args[1:]), kwargs
        return _multiplied((args, kwargs), self.index, self.factor)


def _multiplied(tree: Any, index: int, factor: float) -> Any:
    leaves, spec = tree_flatten(tree)
    tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    leaves[tensors[index]] = leaves[tensors[index]] * factor
    return tree_unflatten(leaves, spec)


def attach(model: nn.Module, multipliers: Iterable[Multiplier]) -> None:
    """Install the explicit multipliers; those of an earlier plan are removed first.

    Code that ``torch.compile`` made before knows nothing of them (it does not guard on hooks, not
    even between two models of one class), so its cache is cleared when hooks change.
    """
    detach(model)
    modules = named_modules(model)
    # A module that runs in several branches (one dropout for two) has one hook for them all.
    values: dict[tuple[str, str, int], dict[Where, float]] = {}
    for multiplier in multipliers:
        for hook in multiplier.hooks:
            if hook.module not in modules:
                raise ValueError(
                    f"The plan multiplies the {hook.side} of module {hook.module!r}, which this "
                    "model does not have. Apply a plan to the model it was made for."
                )
            at = values.setdefault((hook.module, hook.side, hook.index), {})
            at[multiplier.where] = multiplier.value
    for (name, side, index), by_kind in values.items():
        module, factor = modules[name], math.prod(by_kind.values())
        if side == "output":
            module.register_forward_hook(MultiplyOutput(factor=factor, index=index))
        else:
            module.register_forward_pre_hook(
                MultiplyInput(factor=factor, index=index), with_kwargs=True
            )
    if values:
        torch.compiler.reset()


def detach(model: nn.Module) -> None:
    """Remove every explicit multiplier."""
    removed = False
    for module in unwrapped(model).modules():
        for table in (module._forward_hooks, module._forward_pre_hooks):
            for key, hook in list(table.items()):
                if isinstance(hook, (MultiplyOutput, MultiplyInput)):
                    del table[key]
                    removed = True
                    module._forward_pre_hooks_with_kwargs.pop(key, None)
                    module._forward_hooks_with_kwargs.pop(key, None)
    if removed:
        torch.compiler.reset()


def attached(model: nn.Module) -> int:
    """How many explicit multipliers are installed."""
    return sum(
        isinstance(hook, (MultiplyOutput, MultiplyInput))
        for module in unwrapped(model).modules()
        for table in (module._forward_hooks, module._forward_pre_hooks)
        for hook in table.values()
    )


def named_modules(model: nn.Module) -> Mapping[str, nn.Module]:
    """Modules under their plain names; the wrapped ones, not their wrappers."""
    return {plain_name(name): module for name, module in unwrapped(model).named_modules()}
