"""What a check is made on: a factory of models, its data, its loss, and who initializes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from depthmup.diagnostics.probes import logits_of
from depthmup.planning import Plan
from depthmup.training.optimizers import optimizer_class, optimizers

Make: TypeAlias = Callable[[int, int], nn.Module]
Batch: TypeAlias = Callable[[torch.Generator], tuple[Any, Any]]
Loss: TypeAlias = Callable[[Any, Any], Tensor]
Prepare: TypeAlias = Callable[[nn.Module, Plan, float], Sequence[torch.optim.Optimizer]]


def cross_entropy(outputs: Any, targets: Tensor) -> Tensor:
    """Cross-entropy of logits whose last dimension counts the classes."""
    logits = logits_of(outputs)
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def planned(model: nn.Module, plan: Plan, lr: float) -> list[torch.optim.Optimizer]:
    """Initialize a model by its plan, and build the optimizers that the plan is for."""
    plan.initialize(model)
    return optimizers(plan, model, lr=lr)


def as_is(model: nn.Module, plan: Plan, lr: float) -> list[torch.optim.Optimizer]:
    """Leave a model as its own code makes it, with one learning rate for everything."""
    if plan.family.matrices_only:
        raise ValueError(
            f"A model that is checked as it is with {plan.optimizer} must say how its parameters "
            "are divided among optimizers: give optimizers(model, lr) beside the factory."
        )
    made_by = optimizer_class(plan.optimizer)
    return [made_by(list(model.parameters()), lr=lr, weight_decay=0.0)]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is checked: a factory of models, its data and its loss.

    ``make(width, depth)`` gives a model with its own initialization; ``batch(generator)`` gives
    inputs (a tensor, a tuple of arguments, or a dict of keywords) and targets; ``prepare(model,
    plan, lr)`` makes a model ready to train and gives its optimizers; ``applied`` says whether it
    applies the plan (then folded multipliers are allowed for).
    """

    make: Make
    batch: Batch
    loss: Loss = cross_entropy
    prepare: Prepare = planned
    applied: bool = True
    title: str = "model"
