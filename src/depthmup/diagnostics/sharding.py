"""Models under FSDP2: whole tensors one at a time, and shards again after a forward pass.

While a module runs, FSDP2 has put its whole parameters in place; before and after, each process
holds a shard. So hooks read parameters when they are called, and before FSDP2's own (``prepend``).
What was kept of the shards is made whole where it is used, one module at a time; every process must
take part, and does if all run the same hooks.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from depthmup.measuring import called


def whole(tensor: Tensor) -> Tensor:
    """The tensor without its gradient, and from all processes if it is sharded."""
    values = tensor.detach()
    full: Callable[[], Tensor] | None = getattr(values, "full_tensor", None)  # of a DTensor
    return values if full is None else full()


def forward(model: nn.Module, inputs: Any) -> Any:
    """Run a model for its hooks: without gradients, and with its shards put away afterwards.

    FSDP2 keeps the whole parameters of the outermost module for a backward pass, which here does
    not come.
    """
    with torch.no_grad():
        output = called(model, inputs)
    # Who has sharded a model has loaded the module that does it; some builds of PyTorch lack it.
    if fsdp := sys.modules.get("torch.distributed.fsdp"):
        for module in model.modules():
            if isinstance(module, fsdp.FSDPModule):
                module.reshard()
    return output
