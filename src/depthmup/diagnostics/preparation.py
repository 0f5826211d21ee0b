"""Who makes a model of a check ready to train: the plan, or the model's own code."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from depthmup.model import Functions
from depthmup.planning import Plan
from depthmup.rules import Family
from depthmup.training.optimizers import optimizer_class, optimizers

Prepare: TypeAlias = Callable[[nn.Module, Plan, float], Sequence[torch.optim.Optimizer]]


def planned(model: nn.Module, plan: Plan, lr: float) -> list[torch.optim.Optimizer]:
    """Initialize a model by its plan, and build the optimizers that the plan is for.

    Args:
        model: fresh.
        plan: of the model.
        lr: the learning rate at the base.

    Returns:
        The optimizers that train the model.

    Example:
        >>> import depthmup
        >>> def make(width, depth):
        ...     return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
        >>> model = make(64, 1)
        >>> x = torch.zeros(1, 4)
        >>> plan = depthmup.plan(
        ...     model, make(16, 1), scheme="mup", optimizer="adam", example_inputs=x
        ... )
        >>> [optimizer] = planned(model, plan, lr=0.01)
        >>> sorted({round(group["lr"], 6) for group in optimizer.param_groups})
        [0.0025, 0.01]
    """
    plan.initialize(model)
    # One pass over all parameters takes a third of the time of one after another.
    fused = plan.optimizer in _FUSED and all(map(_plain, model.parameters()))
    return optimizers(plan, model, lr=lr, **{"fused": True} if fused else {})


_FUSED = ("adam", "adamw", str(Family.ENTRYWISE))


def _plain(parameter: nn.Parameter) -> bool:
    """Whether torch has one kernel for this parameter and others, on every version of it."""
    alone = parameter.device.type == "cpu" and not hasattr(parameter, "full_tensor")
    return alone and parameter.dtype in (torch.float32, torch.float64)


def as_is(model: nn.Module, plan: Plan, lr: float) -> list[torch.optim.Optimizer]:
    """Leave a model as its own code makes it, with one learning rate for everything.

    Args:
        model: fresh.
        plan: of the model, which names the optimizer.
        lr: of all parameters.

    Returns:
        The optimizers that train the model.

    Raises:
        ValueError: an optimizer of matrices alone.

    Example:
        >>> import depthmup
        >>> def make(width, depth):
        ...     return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
        >>> model = make(64, 1)
        >>> x = torch.zeros(1, 4)
        >>> plan = depthmup.plan(
        ...     model, make(16, 1), scheme="mup", optimizer="adam", example_inputs=x
        ... )
        >>> [optimizer] = as_is(model, plan, lr=0.01)
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.01]
    """
    if plan.family.matrices_only:
        raise ValueError(
            f"A model that is checked as it is with {plan.optimizer} must say how its parameters "
            "are divided among optimizers: give optimizers(model, lr) beside the factory."
        )
    made_by = optimizer_class(plan.optimizer)
    return [made_by(list(model.parameters()), lr=lr, weight_decay=0.0)]


def prepared_by(prepare: Prepare, own: Functions) -> Prepare:
    """How networks are prepared: a model as it is may say how it is optimized."""
    if prepare is not as_is or own.optimizers is None:
        return prepare
    given: Any = own.optimizers

    def prepare_own(model: nn.Module, plan: Plan, lr: float) -> Sequence[torch.optim.Optimizer]:
        made = given(model, lr)
        if not isinstance(made, list | tuple):
            raise TypeError(
                "Expected optimizers(model, lr) to give a list of optimizers; got "
                f"{type(made).__name__}."
            )
        return made

    return prepare_own
