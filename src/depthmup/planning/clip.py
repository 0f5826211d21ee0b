"""Gradient clipping that does not depend on how multipliers are expressed."""

import math
from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from depthmup.planning.adapters import planned_parameters
from depthmup.planning.content import PlanContent
from depthmup.planning.initialize import check
from depthmup.planning.prescribe import Prescription
from depthmup.planning.sharded import is_sharded
from depthmup.rules import scheme as scheme_named


def clip_grad_norm_(
    plan: PlanContent,
    model: nn.Module,
    max_norm: float,
    *,
    norm_type: float = 2.0,
    strict: bool = True,
    group: "dist.ProcessGroup | None" = None,
) -> Tensor:
    """Clip gradients by the norm of the *unfolded* gradients: ``Plan.clip_grad_norm_``.

    A parameter that carries a multiplier A has 1/A times the gradient it would have were A in the
    forward pass, so the usual global norm depends on the form, and with it on width and depth.
    """
    tensors = check(plan, model) if strict else planned_parameters(plan, model)
    folded = {p.name: p.folded for p in plan.prescriptions}
    gradients = {name: t.grad for name, t in tensors.items() if t.grad is not None}
    if not gradients and group is None:
        return torch.tensor(0.0)
    with torch.no_grad():
        parts: dict[Any, list[tuple[Tensor, float]]] = defaultdict(list)
        for name, gradient in gradients.items():
            where, local = _shard(gradient)
            parts[where].append((local, folded.get(name, 1.0)))
        norms = [_norm(shards, norm_type, where) for where, shards in parts.items()]
        norms = norms or [next(iter(tensors.values())).new_zeros(())]
        device = norms[0].device
        total = torch.linalg.vector_norm(torch.stack([n.to(device) for n in norms]), norm_type)
        if group is not None:
            total = _over(total, norm_type, group)
        scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
        by_device: dict[torch.device, list[Tensor]] = defaultdict(list)
        for gradient in gradients.values():
            by_device[gradient.device].append(_local(gradient))
        for place, own in by_device.items():
            torch._foreach_mul_(own, scale.to(place))
    result: Tensor = total
    return result


def clip_grad_value_(
    plan: PlanContent, model: nn.Module, clip_value: float, *, strict: bool = True
) -> None:
    """Clip entries at a number times their gradient's planned size: ``Plan.clip_grad_value_``."""
    if not clip_value > 0:
        raise ValueError(f"Expected a positive clip_value; got {clip_value!r}.")
    tensors = check(plan, model) if strict else planned_parameters(plan, model)
    sizes = {p.name: gradient_size(plan, p) for p in plan.prescriptions}
    with torch.no_grad():
        for p in plan.prescriptions:
            tensor = tensors.get(p.name)
            if tensor is not None and tensor.grad is not None:
                if is_sharded(tensor.grad) and any(q.is_partial() for q in tensor.grad.placements):
                    raise ValueError(
                        f"Expected gradients that are summed over processes; that of {p.name} is "
                        "not. Clip after they are reduced."
                    )
                most = clip_value * sizes[p.name]
                _local(tensor.grad).clamp_(-most, most)


def gradient_size(plan: PlanContent, planned: Prescription) -> float:
    """The size of an entry of a parameter's gradient, as a multiple of the base's."""
    try:
        of_scheme = scheme_named(plan.scheme)
    except ValueError:
        raise ValueError(
            "Expected a plan under a named scheme, by which gradients' sizes are known; got "
            f"{plan.scheme!r}. Clip by plan.clip_grad_norm_(model, ...), which needs none."
        ) from None
    return float(of_scheme.gradient(planned.role).at(planned.ratios)) / planned.folded


def _shard(gradient: Tensor) -> tuple[Any, Tensor]:
    """Where a gradient's shards lie, the same for those that are summed at once, and its own."""
    if not is_sharded(gradient):
        return (gradient.device, None, ()), gradient
    if any(placement.is_partial() for placement in gradient.placements):
        return (gradient.device, None, ()), gradient.full_tensor()
    sharded = [i for i, place in enumerate(gradient.placements) if not place.is_replicate()]
    return (gradient.device, gradient.device_mesh, tuple(sharded)), gradient.to_local()


def _norm(shards: list[tuple[Tensor, float]], norm_type: float, where: Any) -> Tensor:
    """The norm of gradients times their factors: all in a few launches, and one sum per mesh."""
    device, mesh, sharded = where
    shards = [(shard, factor) for shard, factor in shards if shard.numel()]
    norms = list(torch._foreach_norm([shard for shard, _ in shards], norm_type)) if shards else []
    torch._foreach_mul_(norms, [factor for _, factor in shards])
    stacked = torch.stack(norms) if norms else torch.zeros(1, device=device)
    total: Tensor = torch.linalg.vector_norm(stacked, norm_type)
    for dimension in sharded:
        total = _over(total, norm_type, mesh.get_group(dimension))
    return total


def _over(norm: Tensor, norm_type: float, group: "dist.ProcessGroup") -> Tensor:
    """The norm of what all processes of a group hold parts of."""
    if math.isinf(norm_type):
        dist.all_reduce(norm, dist.ReduceOp.MAX, group)
        return norm
    power = norm**norm_type
    dist.all_reduce(power, dist.ReduceOp.SUM, group)
    return power ** (1 / norm_type)


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if is_sharded(gradient) else gradient
