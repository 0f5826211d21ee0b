"""The default loss of a custom model."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from depthmup.records.grammar import either

_CLASSES = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}


def _own() -> str:
    """How to give another loss, in the grammar of where it is shown."""
    given = either("give depthmup.Model another loss", "define another loss beside make")
    return f"If these are right, {given}: loss(outputs, targets)."


def cross_entropy(outputs: Any, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the last dimension of logits.

    Logits are ``outputs`` themselves, ``outputs.logits`` or ``outputs["logits"]``.
    """
    logits = getattr(outputs, "logits", outputs)
    if isinstance(logits, Mapping) and "logits" in logits:
        logits = logits["logits"]
    if not isinstance(logits, Tensor):
        pair = isinstance(logits, tuple) and len(logits) == 2
        raise TypeError(
            f"Expected outputs that are logits, or have them as .logits; got "
            f"{type(logits).__name__}. {_own()}"
            + (" Where the second output is the loss it returns outputs[1]." if pair else "")
        )
    rows = logits.shape[:-1].numel() if logits.ndim else 0
    if not isinstance(targets, Tensor) or targets.dtype not in _CLASSES or targets.numel() != rows:
        raise ValueError(
            "Expected targets to be classes, a whole number for each row of logits, because the "
            f"loss is cross-entropy unless you give one; got {_described(targets)} for logits of "
            f"shape {list(logits.shape)}. {_own()}"
        )
    try:
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.flatten())
    except IndexError as error:  # "Target 10 is out of bounds."
        raise ValueError(
            f"Expected classes below {logits.shape[-1]}, the number of logits; {error} {_own()}"
        ) from None


def _described(value: Any) -> str:
    """The type of a value, and of a tensor its shape."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    kind = str(value.dtype).removeprefix("torch.")
    article = "an" if kind[0] == "i" else "a"
    return f"{article} {kind} tensor of shape {list(value.shape)}"
