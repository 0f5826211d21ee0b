"""Watch: the groups of an optimizer before each of its steps, by a hook of the step."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import truediv
from typing import Any

import torch
from torch import nn

from depthmup.planning.clipped import SeenGradients
from depthmup.planning.content import PlanContent
from depthmup.planning.initialize import PlanMismatch
from depthmup.planning.layout import TOLERANCE, Setting, of_parameters, of_ratios, places, settings
from depthmup.planning.settings import SETTINGS
from depthmup.planning.several import stepping

SELDOM = frozenset({1, 2, *(10**k for k in range(1, 12))})
"""Steps before which rates on another device are read: reading one waits for that device."""


@dataclass(kw_only=True)
class WatchedGroups:
    """What is watched, and how it looked before the last step."""

    plan: PlanContent
    model: nn.Module
    optimizers: Sequence[Any]
    at: Collection[int] | None
    independent_decay: bool
    strict: bool
    gradients: SeenGradients
    as_planned: int = 0  # the last step before which all was as planned
    found: list[Setting] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    parts: list[tuple[slice, list[float]]] = field(default_factory=list)
    tensors: bool = False
    elsewhere: bool = False

    def look(self, step: int) -> None:
        """Raise if the groups contradict the plan, at the price of a few comparisons per group."""
        if self.at is not None and step not in self.at:
            return
        self.gradients.look(step)
        groups = [group for one in self.optimizers for group in one.param_groups]
        sizes = [len(group["params"]) for group in groups]
        changed = sizes != self.sizes or any(
            a is not b for a, b in zip(groups, self.groups, strict=True)
        )
        if self.elsewhere and not changed and step not in SELDOM:
            return
        problems = self._of_layout(groups, sizes) if changed else []
        values = [setting.group[setting.key] for setting in self.found]
        if self.tensors:  # which schedules change in place
            values = list(map(float, values))
        followed = not changed and (values == self.values or self._one_schedule(values))
        if problems := problems or ([] if followed else [*of_ratios(self.found)]):
            since = f" (as planned until step {self.as_planned})" if self.as_planned else ""
            raise PlanMismatch(refusal([f"before step {step}{since}: {p}" for p in problems]))
        self.values = values
        self.as_planned = step

    def _one_schedule(self, values: list[float]) -> bool:
        """Whether all values are the planned ones times one number for each setting."""
        for part, planned in self.parts:
            shares = list(map(truediv, values[part], planned))
            low, high = min(shares), max(shares)
            if not high - low <= TOLERANCE * high:
                return False
        return bool(self.parts) and not any(values[self.parts[-1][0].stop :])

    def _of_layout(self, groups: list[dict[str, Any]], sizes: list[int]) -> list[str]:
        """Look at groups that are new: at first, after a checkpoint, after one was added."""
        self.groups, self.sizes = groups, sizes
        held = [group.get(key) for group in groups for key in SETTINGS]
        devices = {value.device.type for value in held if isinstance(value, torch.Tensor)}
        self.tensors, self.elsewhere = bool(devices), bool(devices - {"cpu"})
        placed = places(self.plan, self.model, self.optimizers)
        found = settings(self.plan, placed, independent_decay=self.independent_decay)
        self._arrange(found)
        return [
            *of_parameters(
                self.plan,
                self.model,
                placed,
                independent_decay=self.independent_decay,
                strict=self.strict,
            )
        ]

    def _arrange(self, found: list[Setting]) -> None:
        """By setting, zeros at the end; in no parts if the base of some value is not known."""
        by_key = [[s for s in found if s.key == key and s.planned] for key in SETTINGS]
        self.found = [*(s for part in by_key for s in part), *(s for s in found if not s.planned)]
        ends = list(accumulate(map(len, by_key)))
        known = all(setting.base is not None for setting in found)
        self.parts = [
            (slice(end - len(part), end), [setting.planned for setting in part])
            for part, end in zip(by_key, ends, strict=True)
            if part and known
        ]


def refusal(problems: Sequence[str]) -> str:
    """Every problem, as a list."""
    listed = "\n".join(f"  - {problem}" for problem in problems)
    return f"What trains this model is not what the plan prescribes:\n{listed}"


def hooked(optimizer: Any, look: Callable[[int], None]) -> list[Any]:
    """Look before every step of an optimizer, whoever takes it: handles that end this."""
    return [inner.register_step_pre_hook(_counted(look)) for inner in stepping(optimizer)] or [
        _Wrapped(optimizer, _counted(look))
    ]


def _counted(look: Callable[[int], None]) -> Callable[..., None]:
    steps = 0

    def before(*_: Any) -> None:
        nonlocal steps
        steps += 1
        look(steps)

    return before


class _Wrapped:
    """The step of a wrapper that holds no torch optimizer, with a look before it."""

    def __init__(self, optimizer: Any, before: Callable[..., None]) -> None:
        if not callable(getattr(optimizer, "step", None)):
            raise ValueError(
                f"Expected an optimizer with a step, to look before it; got "
                f"{type(optimizer).__name__}. Pass the inner optimizer, whose step is taken."
            )
        self._optimizer = optimizer
        step = optimizer.step

        def looked(*args: Any, **kwargs: Any) -> Any:
            before()
            return step(*args, **kwargs)

        optimizer.step = looked

    def remove(self) -> None:
        """The step of its class again."""
        vars(self._optimizer).pop("step", None)
