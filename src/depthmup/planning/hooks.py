"""Explicit multipliers: hooks on modules that a plan installs and removes."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from depthmup.planning.sites import Multiplier, Where
from depthmup.tracing import Hook, named_modules, unwrapped


@dataclass(frozen=True, kw_only=True, slots=True)
class Multiply:
    """One explicit multiplier: torch calls its methods, no closures, so that models pickle.

    ``holder`` is the module that holds a parameter which another one's call reads.
    """

    factor: float
    hook: Hook
    holder: nn.Module

    def output(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Multiply one tensor of what a module returns, or part of its coordinates."""
        if isinstance(output, Tensor):
            return output * self._factors(output)
        return _multiplied(output, self.hook.index, self._factors)

    def _factors(self, tensor: Tensor) -> Tensor | float:
        if not self.hook.part:
            return self.factor
        return self._on_part(tensor.new_ones(tensor.shape[-1]))

    def _on_part(self, factors: Tensor) -> Tensor:
        for start, stop in self.hook.part:
            factors[start:stop] = self.factor
        return factors

    def addition(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        """x + f(x) becomes x + factor * f(x), of a module that returns the former."""
        if not args or output is args[0] or output.shape != args[0].shape:
            raise RuntimeError(
                f"A plan multiplies what {type(module).__name__} adds to its first argument, and "
                "expected that argument by position, left as it was. Call the module as when the "
                "plan was made."
            )
        return torch.lerp(args[0].to(output.dtype), output, self.factor)

    def input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Multiply the first tensor a module is given."""
        if args and isinstance(args[0], Tensor):
            return (args[0] * self.factor, *args[1:]), kwargs
        return _multiplied((args, kwargs), self.hook.index, lambda _: self.factor)

    def parameter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """For one call, a parameter or a part of it is multiplied in the module's own eyes.

        An entry of the instance hides the parameter of the same name, which stays what it is for
        optimizers, checkpoints and every other module; ``restore`` removes the entry.
        """
        hook = self.hook
        key = hook.parameter.rpartition(".")[2]
        weight = self.holder._parameters[key]
        assert weight is not None
        factors: Tensor | float = self.factor
        if hook.part:
            shape = [1] * weight.dim()
            shape[hook.dim] = -1
            factors = self._on_part(weight.new_ones(weight.shape[hook.dim])).view(shape)
        self.holder.__dict__[key] = weight * factors

    def restore(self, module: nn.Module, args: Any, output: Any) -> None:
        """The parameter that a call hid is seen again."""
        self.holder.__dict__.pop(self.hook.parameter.rpartition(".")[2], None)


def holder_of(hook: Hook, modules: Mapping[str, nn.Module]) -> nn.Module:
    """The module that holds the parameter of a hook, be it the one whose call reads it or not."""
    return modules[".".join(filter(None, (hook.module, hook.parameter.rpartition(".")[0])))]


def _multiplied(tree: Any, index: int, factors: Callable[[Tensor], Tensor | float]) -> Any:
    leaves, spec = tree_flatten(tree)
    tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    tensor = leaves[tensors[index]]
    leaves[tensors[index]] = tensor * factors(tensor)
    return tree_unflatten(leaves, spec)


def by_hook(multipliers: Iterable[Multiplier]) -> dict[Hook, float]:
    """The factor of every hook.

    A module that runs in several branches (one dropout for two) has one hook for them all.
    """
    values: dict[Hook, dict[Where, float]] = {}
    for multiplier in multipliers:
        for hook in multiplier.hooks:
            values.setdefault(hook, {})[multiplier.where] = multiplier.value
    return {hook: math.prod(by_kind.values()) for hook, by_kind in values.items()}


def attach(model: nn.Module, multipliers: Iterable[Multiplier]) -> None:
    """Install the explicit multipliers; those of an earlier plan are removed first.

    Code that ``torch.compile`` made before knows nothing of them (it does not guard on hooks, not
    even between two models of one class), so its cache is cleared when hooks change.
    """
    detach(model)
    modules = named_modules(model)
    factors = by_hook(multipliers)
    for hook in factors:
        if hook.module not in modules:
            raise ValueError(
                f"The plan multiplies the {hook.side} of module {hook.module!r}, which this "
                "model does not have. Apply a plan to the model it was made for."
            )
    for hook, factor in factors.items():
        module = modules[hook.module]
        multiply = Multiply(factor=factor, hook=hook, holder=holder_of(hook, modules))
        if hook.side == "output":
            module.register_forward_hook(multiply.output)
        elif hook.side == "addition":
            # Before any other: that one multiplies the stream and what was added to it alike.
            module.register_forward_hook(multiply.addition, prepend=True)
        elif hook.side == "parameter":
            module.register_forward_pre_hook(multiply.parameter, with_kwargs=True)
            module.register_forward_hook(multiply.restore, always_call=True)
        else:
            module.register_forward_pre_hook(multiply.input, with_kwargs=True)
    if factors:
        torch.compiler.reset()


def detach(model: nn.Module) -> None:
    """Remove every explicit multiplier."""
    removed = False
    for module in unwrapped(model).modules():
        for table in (module._forward_hooks, module._forward_pre_hooks):
            for key, hook in list(table.items()):
                if _is_multiplier(hook):
                    del table[key]
                    removed = True
                    module._forward_pre_hooks_with_kwargs.pop(key, None)
                    module._forward_hooks_with_kwargs.pop(key, None)
                    module._forward_hooks_always_called.pop(key, None)
    if removed:
        torch.compiler.reset()


def attached(model: nn.Module) -> int:
    """How many explicit multipliers are installed."""
    return sum(
        _is_multiplier(hook) and getattr(hook, "__func__", None) is not Multiply.restore
        for module in unwrapped(model).modules()
        for table in (module._forward_hooks, module._forward_pre_hooks)
        for hook in table.values()
    )


def _is_multiplier(hook: Any) -> bool:
    return isinstance(getattr(hook, "__self__", None), Multiply)
