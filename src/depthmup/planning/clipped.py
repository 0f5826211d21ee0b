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

import torch
from torch import Tensor, nn

from depthmup.planning.adapters import planned_parameters
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
    """Of all gradients before a step: their norm, their largest entry, and whether parameters whose
    gradients are of different sizes by the plan have the same largest one.
    """

    norm: float
    largest: float
    shared: bool


@dataclass(kw_only=True)
class SeenGradients:
    """Parameters with the plan's sizes of their gradients, and what the last looks saw.

    Attributes:
        by_norm, by_entry: what is still looked for.
    """

    planned: Sequence[tuple[Tensor, float]]
    by_norm: bool
    by_entry: bool
    step: int = 0
    seen: list[GradientSizes] = field(default_factory=list)

    def look(self, step: int) -> None:
        """Warn, once, where the last looks show a threshold. Optimizers of one model share it."""
        if step not in LOOKS or step == self.step or not (self.by_norm or self.by_entry):
            return
        self.step = step
        each = [(p.grad, size) for p, size in self.planned if p.grad is not None and p.numel()]
        if not each or any(g.is_sparse or is_sharded(g) for g, _ in each):
            return
        self.seen = [*self.seen, sizes_of(each)][-ENOUGH:]
        norms, largest = ([getattr(s, name) for s in self.seen] for name in ("norm", "largest"))
        if self.by_norm and _kept(norms, largest):
            self._warn(of_norm(norms[-1]))
        elif self.by_entry and _kept(largest, norms) and all(s.shared for s in self.seen):
            self._warn(of_entries(largest[-1]))

    def _warn(self, sentence: str) -> None:
        self.by_norm = self.by_entry = False
        warnings.warn(sentence, stacklevel=6)


def seen_by(plan: PlanContent, model: nn.Module) -> SeenGradients:
    """What is looked for: nothing where an update forgets the size of its gradient."""
    tensors = planned_parameters(plan, model)
    raw = [p for p in plan.prescriptions if p.family is Family.RAW and p.name in tensors]
    # Of updates that are gradients, epsilon's factor is the gradient's size, in any scheme.
    planned = [(tensors[p.name], p.epsilon) for p in raw]
    return SeenGradients(
        planned=planned,
        by_norm=any(p.folded != 1 for p in raw),
        by_entry=any(size != planned[0][1] for _, size in planned),
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
        f"The largest entry of gradients of different sizes was {largest:.3g} before each of "
        f"{ENOUGH} steps: they are clipped by a raw number, below which gradients fall with size. "
        "Measured under SGD, clipping at 0.001 moved the best rate by -0.6 octaves per doubling of "
        f"width. Clip by plan.clip_grad_value_(model, {largest:.3g}), which moved it by 0.0."
    )


def _kept(values: Sequence[float], beside: Sequence[float]) -> bool:
    """Whether one measure stayed, before every look, while the other one moved."""
    if len(values) < ENOUGH or not all(0 < value < math.inf for value in (*values, *beside)):
        return False
    stays = all(abs(b - a) <= ALIKE * a for a, b in pairwise(values))
    return stays and all(abs(b - a) > OTHER * a for a, b in pairwise(beside))


def sizes_of(each: Sequence[tuple[Tensor, float]]) -> GradientSizes:
    """The sizes of gradients, wherever they lie."""
    gradients = [gradient.detach() for gradient, _ in each]
    norms = torch.stack([norm.double().cpu() for norm in torch._foreach_norm(gradients)])
    entries = [float(entry) for entry in torch._foreach_norm(gradients, math.inf)]
    largest = max(entries)
    as_large = {
        size
        for entry, (_, size) in zip(entries, each, strict=True)
        if entry >= largest * (1 - ALIKE)
    }
    return GradientSizes(norm=float(norms.norm()), largest=largest, shared=len(as_large) > 1)
