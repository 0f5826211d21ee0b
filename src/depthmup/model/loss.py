"""The loss of a model that says nothing else."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(outputs: Any, targets: Tensor) -> Tensor:
    """Mean cross-entropy of logits over their last dimension.

    Logits are the outputs, ``outputs.logits`` or ``outputs["logits"]``.
    """
    logits = getattr(outputs, "logits", outputs)
    if isinstance(logits, Mapping) and "logits" in logits:
        logits = logits["logits"]
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"Expected outputs that are logits, or have them as .logits; got "
            f"{type(logits).__name__}. Pass loss(outputs, targets), which takes them as they are."
        )
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())
