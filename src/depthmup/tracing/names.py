"""Names of parameters and modules, whatever a model is wrapped in."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

# Segments that wrappers put into names: compile, activation checkpointing, FSDP1.
_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself inside ``torch.compile`` and data-parallel wrappers.

    Example:
        >>> import torch
        >>> linear = nn.Linear(2, 2)
        >>> unwrapped(torch.compile(linear)) is linear
        True
    """
    compiler = sys.modules.get("torch._dynamo")  # which takes a second, and what is compiled loads
    while True:
        if isinstance(model, (DistributedDataParallel, DataParallel)):
            model = model.module
        elif compiler is not None and isinstance(model, compiler.OptimizedModule):
            model = model._orig_mod
        elif isinstance(model, nn.Module):
            return model
        else:
            raise TypeError(_no_model(model))


def _no_model(given: object) -> str:
    """Why something is no model; most often it is the factory of one."""
    name = getattr(given, "__name__", type(given).__name__)
    if not callable(given):
        return f"Expected a model, a torch.nn.Module; got {type(given).__name__}."
    name = "make" if name == "<lambda>" else name
    kind = "the class" if isinstance(given, type) else "the function"
    return (
        f"Expected a model, a torch.nn.Module; got {kind} {name}, which makes one. Call it with "
        f"its sizes: {name}(...). Or pass it with sizes: depthmup.plan({name}, "
        "base=dict(width=64, depth=2), target=dict(width=1024, depth=16))."
    )


def inner(module: nn.Module) -> nn.Module:
    """The module inside compile, checkpoint and data-parallel wrappers."""
    while True:
        module = unwrapped(module)
        wrapped = getattr(module, "_checkpoint_wrapped_module", None)
        if not isinstance(wrapped, nn.Module):
            return module
        module = wrapped


def plain_name(name: str) -> str:
    """``name`` without the segments that wrappers add."""
    if "._" not in name and not name.startswith("_"):  # as nearly all names
        return name
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def named_modules(model: nn.Module) -> Mapping[str, nn.Module]:
    """Modules under their plain names; the wrapped ones, not their wrappers."""
    return {plain_name(name): module for name, module in unwrapped(model).named_modules()}


def named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers under every name they have, tied ones included."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


@contextmanager
def with_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """A model with others in the place of its own tensors, by their names.

    As ``torch.func.functional_call``, but also where a module is called as one of nn.Module's own
    methods (``parameters``).
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    own: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for name, tensor in tensors.items():
            owner, _, last = name.rpartition(".")
            module = modules[owner]
            held: dict[str, Any] = (
                module._parameters if last in module._parameters else module._buffers
            )
            own.append((held, last, held[last]))
            held[last] = tensor
        yield
    finally:
        for held, last, tensor in reversed(own):
            held[last] = tensor


def parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The distinct parameters of a model under their plain names."""
    return {plain_name(name): p for name, p in unwrapped(model).named_parameters()}


def pattern_of(name: str) -> str:
    """``name`` with every number replaced by ``*``, as repeated layers are shown.

    Example:
        >>> pattern_of("layers.3.mlp.up.weight")
        'layers.*.mlp.up.weight'
    """
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def patterns_of(names: Iterable[str], *, most: int) -> str:
    """The different patterns of names, of which a sentence lists so many.

    Example:
        >>> patterns_of(["layers.0.up", "layers.1.up", "layers.0.gate", "scale"], most=2)
        'layers.*.up, layers.*.gate and 1 more'
    """
    patterns = list(dict.fromkeys(map(pattern_of, names)))
    more = f" and {len(patterns) - most} more" if len(patterns) > most else ""
    return ", ".join(patterns[:most]) + more


def matches(pattern: str, name: str) -> re.Match[str] | None:
    """Match a name against a pattern in which ``*`` stands for one segment (or part of one).

    Example:
        >>> matches("layers.*.attn", "layers.12.attn").groups()
        ('12',)
    """
    regex = re.escape(pattern).replace(r"\*", r"([^.]*)")
    return re.fullmatch(regex, name)


def named_by(pattern: str, names: Iterable[str], problem: str) -> dict[str, re.Match[str]]:
    """The names that a person's pattern matches; where it matches none, the problem is raised."""
    names = list(names)
    if found := {name: match for name in names if (match := matches(pattern, name))}:
        return found
    listed = list(dict.fromkeys(pattern_of(name) for name in names if name))[:8]
    raise ValueError(f"{problem}; this model has {', '.join(listed)}, ...")


def filled(pattern: str, groups: tuple[str, ...]) -> str:
    """The pattern with each ``*`` replaced by what it stood for elsewhere, in order."""
    for group in groups:
        pattern = pattern.replace("*", group, 1)
    return pattern
