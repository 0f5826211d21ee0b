"""Sharded tensors and modules, recognized without loading what shards them, which takes a second.

Who has sharded a model has loaded it.
"""

import sys
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: object) -> "TypeGuard[DTensor]":
    """Whether a tensor is spread over processes."""
    loaded = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(tensor, loaded.DTensor)


def shards(kind: type) -> bool:
    """Whether a class is one that FSDP2 put in the place of a module's own."""
    loaded = sys.modules.get("torch.distributed.fsdp")
    return loaded is not None and issubclass(kind, loaded.FSDPModule)
