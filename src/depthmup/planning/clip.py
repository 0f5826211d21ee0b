"""Gradient clipping that does not depend on how multipliers are expressed."""

import math

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from depthmup.planning.adapters import planned_parameters
from depthmup.planning.content import PlanContent
from depthmup.planning.initialize import check


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
    with torch.no_grad():
        norms = [
            _whole(torch.linalg.vector_norm(tensor.grad, norm_type)) * folded.get(name, 1.0)
            for name, tensor in tensors.items()
            if tensor.grad is not None
        ]
        if not norms and group is None:
            return torch.tensor(0.0)
        norms = norms or [next(iter(tensors.values())).new_zeros(())]
        device = norms[0].device
        total = torch.linalg.vector_norm(torch.stack([n.to(device) for n in norms]), norm_type)
        if group is not None:
            total = _over_stages(total, norm_type, group)
        scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
        for parameter in tensors.values():
            if parameter.grad is not None:
                parameter.grad.mul_(scale.to(parameter.grad.device))
    result: Tensor = total
    return result


def _over_stages(norm: Tensor, norm_type: float, group: "dist.ProcessGroup") -> Tensor:
    if math.isinf(norm_type):
        dist.all_reduce(norm, dist.ReduceOp.MAX, group)
        return norm
    power = norm**norm_type
    dist.all_reduce(power, dist.ReduceOp.SUM, group)
    return power ** (1 / norm_type)


def _whole(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
