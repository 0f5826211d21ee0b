"""A model under other names: what a plan says must not depend on how its author called things."""

from typing import Any

from torch import nn

NUMBERED = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
"""Containers that look their parts up by key; torch's recurrent layers do, too."""


def disguised(model: nn.Module) -> dict[str, str]:
    """Rename the parts and parameters of a model in place; the new names of its tensors, by old."""
    before = _names(model)
    for module in list(model.modules()):
        if not isinstance(module, (*NUMBERED, nn.RNNBase)):
            _rename(module)
    return dict(zip(before, _names(model), strict=True))


def _names(model: nn.Module) -> list[str]:
    kinds = (
        model.named_parameters(remove_duplicate=False),
        model.named_buffers(remove_duplicate=False),
    )
    return [name for kind in kinds for name, _ in kind]


def _rename(module: nn.Module) -> None:
    """Keys alone change; code that asks for the old name still finds what it named."""
    old = [*module._modules, *module._parameters]
    new = dict(zip(old, (f"part{i}" for i in range(len(old))), strict=True))
    module._modules = {new[name]: part for name, part in module._modules.items()}
    module._parameters = {new[name]: p for name, p in module._parameters.items()}
    known = type(module)

    def __getattr__(self: nn.Module, name: str) -> Any:
        return known.__getattr__(self, new.get(name, name))

    module.__class__ = type("Part", (known,), {"__getattr__": __getattr__})
