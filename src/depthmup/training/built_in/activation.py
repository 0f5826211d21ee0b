"""Activations: each with its derivative, so that an engine may write its own backward pass."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Elementwise(Protocol):
    """``function(h)``, or ``function(h, out=buffer)`` where memory is at hand."""

    def __call__(self, h: Tensor, /, *, out: Tensor | None = None) -> Tensor: ...


def _with_out(function: Callable[[Tensor], Tensor]) -> Elementwise:
    """Give a function that allocates its result the ``out`` argument of the others."""

    def elementwise(h: Tensor, /, *, out: Tensor | None = None) -> Tensor:
        result = function(h)
        return result if out is None else out.copy_(result)

    return elementwise


@dataclass(frozen=True, kw_only=True)
class Activation:
    """An elementwise function and its derivative.

    ``homogeneous``: phi(s h) = s phi(h) for every s > 0, so positive factors pass through.
    """

    name: str
    function: Elementwise
    derivative: Elementwise
    homogeneous: bool = False


def _gelu_derivative(h: Tensor) -> Tensor:
    density = torch.exp(-0.5 * h * h) / math.sqrt(2 * math.pi)
    result: Tensor = torch.special.ndtr(h) + h * density
    return result


_ALL = (
    Activation(name="abs", function=torch.abs, derivative=torch.sign, homogeneous=True),
    Activation(
        name="relu",
        function=_with_out(torch.relu),
        derivative=_with_out(lambda h: (h > 0).to(h.dtype)),
        homogeneous=True,
    ),
    Activation(
        name="identity",
        function=_with_out(lambda h: h),
        derivative=_with_out(torch.ones_like),
        homogeneous=True,
    ),
    Activation(
        name="tanh",
        function=torch.tanh,
        derivative=_with_out(lambda h: 1 - torch.tanh(h) ** 2),
    ),
    Activation(
        name="gelu",
        function=_with_out(functional.gelu),
        derivative=_with_out(_gelu_derivative),
    ),
    Activation(
        name="silu",
        function=_with_out(functional.silu),
        derivative=_with_out(lambda h: torch.sigmoid(h) * (1 + h * (1 - torch.sigmoid(h)))),
    ),
    # torch's softplus is h itself beyond 20, where the sigmoid is 1 in single precision.
    Activation(name="softplus", function=_with_out(functional.softplus), derivative=torch.sigmoid),
    Activation(
        name="erf",
        function=torch.erf,
        derivative=_with_out(lambda h: torch.exp(-h * h) * (2 / math.sqrt(math.pi))),
    ),
    Activation(name="sin", function=torch.sin, derivative=torch.cos),
    Activation(name="cos", function=torch.cos, derivative=_with_out(lambda h: -torch.sin(h))),
)
ACTIVATIONS: dict[str, Activation] = {phi.name: phi for phi in _ALL}


def activation(name: str) -> Activation:
    """The activation of this name.

    Raises:
        ValueError: no such activation.

    Example:
        >>> activation("relu").homogeneous
        True
    """
    try:
        return ACTIVATIONS[name]
    except KeyError:
        raise ValueError(
            f"Expected an activation ({', '.join(ACTIVATIONS)}); got {name!r}."
        ) from None
