"""Activations of the built-in networks, by name."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "relu": torch.relu,
    "identity": lambda h: h,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "softplus": functional.softplus,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The elementwise function of this name.

    Raises:
        ValueError: no such activation.

    Example:
        >>> activation("relu")(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    try:
        return ACTIVATIONS[name]
    except KeyError:
        raise ValueError(
            f"Expected an activation ({', '.join(ACTIVATIONS)}); got {name!r}."
        ) from None
