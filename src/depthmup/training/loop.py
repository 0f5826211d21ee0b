"""The plain loop: one network trained step by step, readable from top to bottom."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from depthmup.training.backend import Progress

if TYPE_CHECKING:
    from depthmup.planning import Plan

Batch = Any
"""Tensors, or tuples, lists and mappings of them."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A network at its initial weights and what its steps need, whichever engine takes them.

    ``cost(network, batch)`` is the loss, and ``ceiling(loss)`` that at which a run is stopped, from
    the one it began at. A ``plan`` clips gradients to the norm ``clip``.
    """

    network: nn.Module
    cost: Callable[[Callable[..., Any], Batch], Tensor]
    batch: Callable[[], Batch]
    device: str
    seed: int
    optimizers: Sequence[torch.optim.Optimizer]
    factors: Sequence[float]
    ceiling: Callable[[float], float]
    plan: "Plan | None" = None
    clip: float | None = None


def losses_of(training: Training) -> Iterator[float]:
    """The loss of every step; the step itself is taken when the next loss is asked for."""
    network, optimizers = training.network, training.optimizers
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    rates = [(group, group["lr"]) for group in groups]
    for step, factor in enumerate(training.factors):
        loss = training.cost(network, moved(training.batch(), training.device))
        if step == 0:
            check_loss(loss)
        yield float(loss.detach())
        for group, base in rates:
            group["lr"] = base * factor
        network.zero_grad(set_to_none=True)
        loss.backward()
        if training.plan is not None and training.clip is not None:
            training.plan.clip_grad_norm_(network, training.clip)
        for optimizer in optimizers:
            optimizer.step()


def trained_alone(
    training: Training,
    *,
    on_progress: Progress = lambda fraction: None,
    on_loss: Callable[[int, float], None] = lambda step, loss: None,
) -> tuple["array[float]", float | None]:
    """The losses of a run, and that above its ceiling at which it was stopped, if it was."""
    losses, steps = array("f"), len(training.factors)
    for step, value in enumerate(losses_of(training)):
        if step:
            on_progress(step / steps)
        else:
            limit = training.ceiling(value)
        check_sign(value)
        if not value <= limit:  # also true of NaN
            return losses, value
        losses.append(value)
        on_loss(step, value)
    on_progress(1.0)
    return losses, None


def check_loss(loss: Any) -> None:
    """Refuse a loss that has no gradient, or no logarithm to judge it by."""
    check_gradient(loss)
    check_sign(float(loss.detach()))


def check_gradient(loss: Any) -> None:
    """Refuse a loss that is no number with a gradient."""
    if not isinstance(loss, Tensor) or loss.dim() or not loss.is_floating_point():
        came = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise TypeError(
            f"Expected loss(outputs, targets) to give one number, a tensor without dimensions; got "
            f"{came}. Average it: loss.mean()."
        )
    if not loss.requires_grad:
        raise ValueError(
            "The loss does not depend on the model's parameters: it has no gradient. Compute it "
            "with torch from the model's outputs, without detach() or item()."
        )


def check_sign(loss: float) -> None:
    """Refuse a loss that has no logarithm."""
    if loss < 0:
        raise ValueError(
            f"Expected losses that are never negative; got {loss:.4g}. Curves are compared by "
            "the logarithm of the loss: add its lower bound."
        )


def moved(thing: Any, device: str) -> Any:
    """Tensors on a device, wherever they lie in tuples, lists and mappings."""
    if isinstance(thing, Tensor):
        return thing.to(device)
    if isinstance(thing, Mapping):
        return {key: moved(value, device) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        items = [moved(value, device) for value in thing]
        return type(thing)(*items) if hasattr(thing, "_fields") else type(thing)(items)
    return thing
