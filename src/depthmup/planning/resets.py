"""Resets: what modules draw by themselves, by their own ``reset_parameters`` run once more."""

from contextlib import suppress
from typing import Any

import torch
from torch import nn

from depthmup.planning.initializers import Drawn, InitRecorder


def by_default(model: nn.Module) -> dict[str, Drawn]:
    """What each module's own ``reset_parameters`` would draw: a hypothesis, not a fact.

    Runs on copies without values, once for modules of one class, settings and shapes. Where an
    outer module resets what an inner one has, the outer one counts; parameters that have several
    owners are left out.
    """
    owners: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    shared = {n for n, p in model.named_parameters() if owners[id(p)] > 1}
    result: dict[str, Drawn] = {}
    alike: dict[object, dict[str, Drawn]] = {}
    for prefix, module in reversed(list(model.named_modules())):
        names = ("reset_parameters", "_reset_parameters")
        reset = next((name for name in names if hasattr(module, name)), None)
        if reset is None:
            continue
        described = _description(module)
        own = alike.get(described) if described is not None else None
        if own is None:
            own = alike[described or module] = _reset(module, reset)
        for name, drawn in own.items():
            result[f"{prefix}.{name}" if prefix else name] = drawn
    return {name: drawn for name, drawn in result.items() if name not in shared}


def _reset(module: nn.Module, how: str) -> dict[str, Drawn]:
    copied = _without_values(module)
    # A person's reset may need anything; where it does not run, there is no hypothesis.
    with suppress(Exception):
        with InitRecorder() as recorder, torch.device("meta"):
            getattr(copied, how)()
        # Outside, where nobody watches the sums over what was drawn: half of a reset's time.
        return recorder.drawn(copied)
    return {}


_OF_EVERY_MODULE = vars(nn.Module()).keys()


def _description(module: nn.Module) -> tuple[object, ...] | None:
    """Class, settings and shapes, of which a reset is made; None where a setting is no number."""
    settings = {k: v for k, v in vars(module).items() if k not in _OF_EVERY_MODULE}
    children = {k: m if m is None else _description(m) for k, m in module._modules.items()}
    if not all(map(_is_plain, settings.values())) or any(
        children[k] is None for k, m in module._modules.items() if m is not None
    ):
        return None
    tensors = {**module._parameters, **module._buffers}
    shapes = {k: t if t is None else (t.shape, t.dtype) for k, t in tensors.items()}
    return type(module), repr(settings), *shapes.items(), *children.items()


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, complex, str, torch.dtype)


def _without_values(module: nn.Module) -> Any:
    # Not ``module.__class__.__new__``: that of fully_shard's classes constructs a module anew.
    copied: Any = object.__new__(module.__class__)
    copied.__dict__ = dict(module.__dict__)
    copied._parameters = {
        # Not ``p.to("meta")``: shards stand for whole parameters.
        k: p
        if p is None
        else nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta"), p.requires_grad)
        for k, p in module._parameters.items()
    }
    copied._buffers = {
        k: b if b is None else b.detach().to("meta") for k, b in module._buffers.items()
    }
    copied._modules = {
        k: m if m is None else _without_values(m) for k, m in module._modules.items()
    }
    return copied
