"""A model of the zoo: how to build it, what it is given, and what a plan must say of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn

import depthmup
from depthmup import tracing
from depthmup.planning import Plan, recorded
from depthmup.tracing import plain_name

Size = tuple[int, int]
"""Width and depth."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A model that people write, and the arguments of one call.

    ``expect``: initial scale and learning rate of the parameters whose names match a pattern, as
    multiples of the base's, from ``base`` to ``target`` under Depth-muP with AdamW; derived from
    the rules, without the library. ``refuses``: words of the refusal, where no rule covers it.
    ``silent``: whether the plan has nothing to note. ``package``: whose model it is.
    """

    name: str
    make: Callable[[int, int], nn.Module]
    inputs: Mapping[str, Tensor] | tuple[Tensor, ...]
    package: str = ""
    expect: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    refuses: str = ""
    silent: bool = False
    base: Size = (16, 2)
    target: Size = (64, 6)

    def built(self, size: Size, device: str = "cpu") -> tuple[nn.Module, Any]:
        """The model of a size, and what its factory drew: the same whenever it is asked for."""
        torch.manual_seed(0)
        with torch.device(device):
            return recorded(lambda: self.make(*size))

    def read(self, size: Size) -> tracing.Facts:
        """What a model of this size is; traced once in a session."""
        if size not in self._read:
            model, drawn = self.built(size)
            constants = {
                plain_name(n): d.constant for n, d in drawn.items() if d.constant is not None
            }
            self._read[size] = tracing.read(model, self.inputs, constants)
        return self._read[size]

    @cached_property
    def _read(self) -> dict[Size, tracing.Facts]:
        return {}

    def plan(
        self, scheme: str = "depth-mup", optimizer: str = "adamw", *, target: Size | None = None,
        base: Size | None = None, folding: bool = True, proof: str = "off",
    ) -> Plan:  # fmt: skip
        """The plan from ``base`` to ``target``; made once, without tracing them again.

        Only tests whose subject it is ask for its proof, which takes four fifths of a plan's time.
        """
        sizes = target or self.target, base or self.base
        return _planned(self, scheme, optimizer, sizes, folding, proof)


# Of the case that is tested and of the one before: tests of a case follow one another.
@lru_cache(maxsize=32)
def _planned(
    case: Case, scheme: str, optimizer: str, sizes: tuple[Size, Size], folding: bool, proof: str
) -> Plan:
    (model, drawn), (base, base_drawn) = (_compared(case, size) for size in sizes)
    return depthmup.plan(
        model, base=base, scheme=scheme, optimizer=optimizer, example_inputs=case.inputs,
        drawn=(drawn, base_drawn), folding=folding, proof=proof,
        options=depthmup.PlanOptions(facts=tuple(map(case.read, sizes))),
    )  # fmt: skip


@lru_cache(maxsize=8)
def _compared(case: Case, size: Size) -> tuple[nn.Module, Any]:
    """A model that plans only look at; what a test changes it builds for itself."""
    return case.built(size)
