"""Gradient clipping that does not depend on how multipliers are expressed."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from depthmup.planning.apply import check

if TYPE_CHECKING:
    from depthmup.planning.plan import Plan


def clip_grad_norm_(
    plan: "Plan", model: nn.Module, max_norm: float, *, norm_type: float = 2.0
) -> Tensor:
    """Clip gradients so that the norm of the *unfolded* gradients is at most ``max_norm``.

    A parameter that carries a multiplier A has 1/A times the gradient it would have were A in the
    forward pass, so the usual global norm depends on the form, and with it on width and depth:

        norm = (sum_i (A_i |g_i|)^p)^(1/p),    g_i <- g_i min(1, max_norm / (norm + 1e-6)).

    Args:
        plan: of the model.
        model: with gradients.
        max_norm: the largest norm.
        norm_type: p.

    Returns:
        The norm before clipping, as ``torch.nn.utils.clip_grad_norm_`` does.
    """
    tensors = check(plan, model)
    with torch.no_grad():
        norms = [
            _whole(torch.linalg.vector_norm(grad, norm_type)) * p.folded
            for p in plan.prescriptions
            if (grad := tensors[p.name].grad) is not None
        ]
        if not norms:
            return torch.tensor(0.0)
        device = norms[0].device
        total = torch.linalg.vector_norm(torch.stack([n.to(device) for n in norms]), norm_type)
        scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
        for parameter in tensors.values():
            if parameter.grad is not None:
                parameter.grad.mul_(scale.to(parameter.grad.device))
    result: Tensor = total
    return result


def _whole(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
