"""What every module of a model gives out in one forward pass."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from depthmup.measuring.numbers import mean_square, reals, sample
from depthmup.tracing import named_modules, unwrapped
from depthmup.tracing.recorder import tensors_of

ADDED = -1

Place: TypeAlias = tuple[str, int, int]
"""A module by its name, which of its calls, and which of the tensors that the call gives.

The tensors of a call are counted for the model itself; of its modules the first one stands, and
``ADDED`` is what it adds to its first input, where both have one shape.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One tensor that a module gave: its mean square, a sample, and its shape.

    ``weights``: it holds shares, which are not negative and sum to one along a dimension.
    ``same``: places that give the same tensor have the same number here.
    """

    square: float
    entries: Tensor
    shape: tuple[int, ...]
    weights: bool
    same: int


def called(model: Callable[..., Any], inputs: Any) -> Any:
    """The outputs for a tensor, a sequence of arguments or a mapping of keywords."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(inputs) if isinstance(inputs, Tensor) else model(*inputs)


def look(model: nn.Module, inputs: Any) -> dict[Place, Seen]:
    """Run a model once, without gradients, and see what each of its modules gives out."""
    inner = unwrapped(model)
    seen: dict[Place, Seen] = {}
    runs: dict[str, int] = {}
    # With the tensor, which stays alive, or its place is given away.
    kept: dict[tuple[int, tuple[int, ...]], tuple[int, Tensor]] = {}

    def see(name: str, output: Any, args: Any = ()) -> None:
        given = [t for t in tensors_of(output) if t.is_floating_point() or t.is_complex()]
        call = runs[name] = runs.get(name, -1) + 1
        for index, value in enumerate(given if not name else given[:1]):
            if not value.numel():
                continue
            key = (value.data_ptr(), tuple(value.shape))
            same, _ = kept.setdefault(key, (len(kept), value))
            seen[name, call, index] = _seen(value, same)
            before = next(iter(tensors_of(args)), None) if name else None
            if before is not None and before.shape == value.shape and before is not value:
                seen[name, call, ADDED] = _seen(value - before, same)

    handles = [
        module.register_forward_hook(lambda m, args, output, name=name: see(name, output, args))
        for name, module in named_modules(inner).items()
        if name
    ]
    try:
        with torch.no_grad():
            see("", called(inner, inputs))
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _seen(value: Tensor, same: int) -> Seen:
    return Seen(
        square=mean_square(value),
        entries=sample(value),
        shape=tuple(value.shape),
        weights=_shares(reals(value)),
        same=same,
    )


def _shares(value: Tensor) -> bool:
    """Whether the entries are shares of one: each is smaller, the more there are."""
    if value.ndim == 0 or bool((value < 0).any()):
        return False
    sums = (value.sum(dim) for dim in {value.ndim - 1, max(value.ndim - 2, 0)})
    return any(bool(torch.allclose(s, torch.ones_like(s), atol=1e-3)) for s in sums)
