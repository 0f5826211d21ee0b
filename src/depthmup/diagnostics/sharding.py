"""Models under FSDP2: whole tensors one at a time, and shards again after a forward pass.

While a module runs, FSDP2 has put its whole parameters in place; before and after, each process
holds a shard. So hooks read parameters when they are called, and before FSDP2's own (``prepend``).
What was kept of the shards is made whole where it is used, one module at a time; every process must
take part, and does if all run the same hooks.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from depthmup.training.loop import called


def whole(tensor: Tensor) -> Tensor:
    """The tensor without its gradient, and from all processes if it is sharded."""
    values = tensor.detach()
    return values.full_tensor() if isinstance(values, DTensor) else values


def forward(model: nn.Module, inputs: Any) -> Any:
    """Run a model for its hooks: without gradients, and with its shards put away afterwards.

    FSDP2 keeps the whole parameters of the outermost module for a backward pass, which here does
    not come.
    """
    with torch.no_grad():
        output = called(model, inputs)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    return output
