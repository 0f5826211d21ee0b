"""The default loss of a custom model."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(outputs: Any, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the last dimension of logits.

    Logits are ``outputs`` themselves, ``outputs.logits`` or ``outputs["logits"]``.
    """
    logits = getattr(outputs, "logits", outputs)
    if isinstance(logits, Mapping) and "logits" in logits:
        logits = logits["logits"]
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"Expected outputs that are logits, or have them as .logits; got "
            f"{type(logits).__name__}. Pass a loss(outputs, targets) for these outputs."
        )
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())
