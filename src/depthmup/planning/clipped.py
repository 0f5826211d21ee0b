"""Gradients that a raw threshold clips: as their own sizes show before the steps.

A norm over all raw gradients, or their largest entry, follows width and depth by the plan's
multipliers and ratios, which only optimizers that take gradients as they are do not forget.
Measured in docs/studies/practice.md.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from depthmup.planning.content import PlanContent
from depthmup.planning.sharded import is_sharded
from depthmup.rules import Family

LOOKS = frozenset({1, 2, 3, *(10**k for k in range(1, 12))})
"""Steps before which gradients are read: reading them waits for a GPU."""

ENOUGH = 3
"""Looks in a row that agree."""

ALIKE, OTHER = 1e-4, 1e-3
"""Relative: what is one threshold, as clipping rounds; and by what the rest of a gradient moves.

Norms of batches agree to ``ALIKE`` twice in a row by chance in one training of a million. Where
nothing else moves either, it is one batch at rates near zero.
"""


@dataclass(frozen=True, kw_only=True)
class GradientSizes:
    """Of all gradients before a step: their norm, their largest entry, how many are as large."""

    norm: float
    largest: float
    count: int


@dataclass(kw_only=True)
class SeenGradients:
    """What the looks saw, and what is still looked for: a raw norm, a raw entry."""

    by_norm: bool
    by_entry: bool
    step: int = 0
    seen: list[GradientSizes] = field(default_factory=list)

    def look(self, step: int, optimizers: Sequence[Any]) -> None:
        """Warn, once, where the last looks show a threshold. Optimizers of one model share it."""
        if step not in LOOKS or step == self.step or not (self.by_norm or self.by_entry):
            return
        self.step = step
        each = [p.grad for one in optimizers for g in one.param_groups for p in g["params"]]
        gradients = [g.detach() for g in each if g is not None and g.numel()]
        if not gradients or any(g.is_sparse or is_sharded(g) for g in gradients):
            return
        self.seen = [*self.seen, sizes_of(gradients)][-ENOUGH:]
        norms, largest = ([getattr(s, name) for s in self.seen] for name in ("norm", "largest"))
        if self.by_norm and _kept(norms, largest):
            self._warn(of_norm(norms[-1]))
        elif self.by_entry and _kept(largest, norms) and all(s.count > 1 for s in self.seen):
            self._warn(of_entries(largest[-1]))

    def _warn(self, sentence: str) -> None:
        self.by_norm = self.by_entry = False
        warnings.warn(sentence, stacklevel=6)


def seen_by(plan: PlanContent) -> SeenGradients:
    """What is looked for: nothing where an update forgets the size of its gradient."""
    raw = [p for p in plan.prescriptions if p.family is Family.RAW]
    return SeenGradients(
        by_norm=any(p.folded != 1 for p in raw),
        by_entry=any({p.ratios.fan_in, p.ratios.fan_out, p.ratios.depth} != {1} for p in raw),
    )


def of_norm(norm: float) -> str:
    """The sentence about clipping, or normalizing, by the norm of all gradients."""
    return (
        f"The norm of all gradients was {norm:.3g} before each of {ENOUGH} steps: they are clipped "
        "by a raw norm, which follows depth and width by where multipliers stand. Measured under "
        "SGD, clipping at 1 moved the best rate by +0.3 octaves per doubling of depth. Clip by "
        f"plan.clip_grad_norm_(model, {norm:.3g}), which moved it by 0.0."
    )


def of_entries(largest: float) -> str:
    """The sentence about clipping by entries."""
    return (
        f"The largest entry of all gradients was {largest:.3g} before each of {ENOUGH} steps, "
        "several times: they are clipped by a raw number, below which gradients fall with size. "
        "Measured under SGD, clipping at 0.001 moved the best rate by -0.6 octaves per doubling of "
        "width. Clip by plan.clip_grad_norm_(model, ...), in the plan's units."
    )


def _kept(values: Sequence[float], beside: Sequence[float]) -> bool:
    """Whether one measure stayed, before every look, while the other one moved."""
    if len(values) < ENOUGH or not all(0 < value < math.inf for value in (*values, *beside)):
        return False
    stays = all(abs(b - a) <= ALIKE * a for a, b in pairwise(values))
    return stays and all(abs(b - a) > OTHER * a for a, b in pairwise(beside))


def sizes_of(gradients: Sequence[Tensor]) -> GradientSizes:
    """The sizes of gradients, wherever they lie."""
    norms = torch.stack([norm.double().cpu() for norm in torch._foreach_norm(list(gradients))])
    largest = max(float(gradient.abs().max()) for gradient in gradients)
    count = sum(int((gradient.abs() >= largest * (1 - ALIKE)).sum()) for gradient in gradients)
    return GradientSizes(norm=float(norms.norm()), largest=largest, count=count)
