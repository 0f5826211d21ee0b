"""Optimizers as trainers have them: one, several, and wrappers that hold one."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import torch


class HasGroups(Protocol):
    """An optimizer, or a wrapper of one: whatever has parameter groups."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups, by which it trains."""


Optimizers: TypeAlias = HasGroups | Sequence[HasGroups]
"""One optimizer or several, each of them wrapped or not."""


def optimizers_of(given: Any) -> list[Any]:
    """One optimizer or several, as a list."""
    if hasattr(given, "param_groups"):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, str | dict):
        several = list(given)
        if several and all(hasattr(one, "param_groups") for one in several):
            return several
    raise ValueError(
        "Expected an optimizer with param_groups, or several in a list; got "
        f"{type(given).__name__}. Pass the optimizer whose groups train the model."
    )


def stepping(optimizer: object) -> list[torch.optim.Optimizer]:
    """The torch optimizers that may step for one: itself, and those that it holds."""
    return [
        holder
        for holder in holders(optimizer)
        # Some wrappers are optimizers by class that were never set up as one.
        if isinstance(holder, torch.optim.Optimizer) and "_optimizer_step_pre_hooks" in vars(holder)
    ]


def holders(optimizer: object) -> list[object]:
    """An optimizer, and what it holds that has groups: inner ones, wrappers of wrappers.

    They are attributes (LARC, accelerate's, sharpness-aware ones), some in lists.
    """
    found: list[object] = []
    waiting: list[tuple[object, int]] = [(optimizer, 0)]
    while waiting:
        holder, depth = waiting.pop(0)
        if any(holder is before for before in found):
            continue
        found.append(holder)
        if depth < _DEPTH and hasattr(holder, "__dict__"):
            held = (part for value in vars(holder).values() for part in parts_of(value))
            waiting += [(part, depth + 1) for part in held if hasattr(part, "param_groups")]
    return found


_DEPTH = 4
"""Wrappers of wrappers that are looked into."""


def parts_of(value: object) -> Iterator[object]:
    """What a list, a tuple or a dictionary holds; of anything else itself."""
    if isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    else:
        yield value
