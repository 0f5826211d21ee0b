"""Residual networks trained by plain SGD, however wide: updates are kept as factors.

Weights are drawn and multiplied like any other, by code that shares nothing with ``limits``. Width
8192 at depth 64 has 4e9 weights, but T steps of SGD move each matrix by rank T B only:
``W_t = W_0 - sum_s w_ts a L^-gamma (1/n) d_s x_s^T``. So the gradients' factors are stored, W_0 is
drawn again from its seed whenever it is needed, and as many matrices as fit are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from depthmup import limits
from depthmup.rules import Exponent, exponent

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "relu": torch.relu,
    "abs": torch.abs,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "softplus": torch.nn.functional.softplus,
}


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The blocks of a network of any size, and how SGD trains them.

    ``x^l = x^{l-1} + a L^-alpha MS(phi(W^l x^{l-1}))`` or, with ``block_depth=2``,
    ``x^{l-1} + a L^-alpha W2 phi(W1 x^{l-1})`` with ``width_ratio`` times as many hidden neurons as
    the width. With the identity there is no MS. A matrix moves by ``lr a L^-gamma (1/n) d x^T``;
    with ``sign`` by the sign of every entry of it (signSGD), of one sample per step.

    ``multiplier`` is a, ``lr_second`` the learning rate of W2, the same as W1's unless given.

    Attributes:
        alpha, gamma: exponents of depth.
        activation: phi, by its name.

    >>> Blocks(lr=0.5, block_depth=2, lr_second=0.25).rates
    (0.5, 0.25)

    *Source:* arXiv 2310.02244, Definition 6.1; blocks with two matrices: docs/studies/limits.md.
    """

    lr: float = 1.0
    multiplier: float = 1.0
    alpha: Exponent = "1/2"
    gamma: Exponent = "1/2"
    activation: str = "identity"
    block_depth: int = 1
    lr_second: float | None = None
    width_ratio: float = 1.0
    sign: bool = False

    def __post_init__(self) -> None:
        if self.activation != "identity" and self.activation not in _ACTIVATIONS:
            raise ValueError(
                f"activation must be identity or one of {', '.join(_ACTIVATIONS)}; got "
                f"{self.activation!r}."
            )
        if self.block_depth not in (1, 2):
            raise ValueError(f"block_depth is 1 or 2 matrices per block; got {self.block_depth}.")
        if self.block_depth == 1 and (self.lr_second is not None or self.width_ratio != 1.0):
            raise ValueError("lr_second and width_ratio are of blocks with two matrices.")

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rate of every matrix of a block, from the first to multiply the stream."""
        second = self.lr if self.lr_second is None else self.lr_second
        return (self.lr, second)[: self.block_depth]

    def shapes(self, width: int) -> tuple[tuple[int, int], ...]:
        """(fan_out, fan_in) of every matrix of a block."""
        if self.block_depth == 1:
            return ((width, width),)
        hidden = round(width * self.width_ratio)
        return (hidden, width), (width, hidden)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One trained network: ``outputs`` (N, d_out) of every training vector at its own step, and
    ``rms`` (depth + 1, N) of x at every layer."""

    outputs: np.ndarray
    rms: np.ndarray


class _Matrix:
    """One matrix of one block: initial weights from a seed, and the factors of its updates.

    ``below`` and ``above`` are lists of (batch, fan_in) and (batch, fan_out): what it multiplied
    and the gradients with respect to what came out.
    """

    def __init__(
        self, draw: Callable[[], Tensor], fan_in: int, kick: float, *, in_memory: bool, sign: bool
    ) -> None:
        self.draw, self.fan_in, self.kick, self.sign = draw, fan_in, kick, sign
        self.weight = draw() if in_memory else None  # times sqrt(fan_in)
        self.below: list[Tensor] = []
        self.above: list[Tensor] = []

    def _initial(self) -> Tensor:
        return self.draw() if self.weight is None else self.weight

    def forward(self, x: Tensor) -> Tensor:
        out = x @ self._initial().T / math.sqrt(self.fan_in)
        if self.below:
            out -= self.kick * (x @ torch.cat(self.below).T) @ torch.cat(self.above)
        return out

    def backward(self, x: Tensor, gradient: Tensor) -> Tensor:
        """The gradient below, through the weights before the update that is recorded here."""
        out = gradient @ self._initial() / math.sqrt(self.fan_in)
        if self.below:
            out -= self.kick * (gradient @ torch.cat(self.above).T) @ torch.cat(self.below)
        # With one sample the sign of a gradient is the product of its factors' signs.
        self.below.append(x.sign() if self.sign else x)
        self.above.append(gradient.sign() if self.sign else gradient)
        return out


def train_factored(
    steps: Sequence[limits.Step],
    blocks: Blocks,
    *,
    width: int,
    depth: int,
    seed: int,
    memory: int = 4 * 2**30,
    dtype: torch.dtype = torch.float32,
) -> Trained:
    """Train one network by SGD; weights are random matrices, updates are kept as factors.

    ``x^0 = U xi, f = V^T x^L``, U and V frozen, with ``blocks`` between them.

    Example:
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> train_factored(steps, Blocks(lr=0.5), width=32, depth=2, seed=0).outputs.shape
        (2, 1)

    *Source:* networks of TP6 (arXiv 2310.02244) Section 4; keeping updates as factors is this
    package's.
    """
    if not steps:
        raise ValueError("Expected at least one step to train on; got none.")
    for name, size in (("width", width), ("depth", depth)):
        if size < 1:
            raise ValueError(f"Expected {name} to be at least 1; got {size!r}.")
    if blocks.sign and max(len(step.inputs) for step in steps) > 1:
        raise ValueError(
            "Signs of gradients are kept as factors for one sample per step only; got a minibatch."
        )
    branch = blocks.multiplier * depth ** -float(exponent(blocks.alpha, name="alpha"))
    kick = blocks.multiplier * depth ** -float(exponent(blocks.gamma, name="gamma")) / width
    shapes = blocks.shapes(width)
    d_in, d_out = steps[0].inputs.shape[1], steps[0].loss.shape[1]

    def draw(stream: int, *shape: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed * 100_003 + stream)
        return torch.randn(*shape, generator=generator, dtype=dtype)

    u, v = draw(0, width, d_in), draw(1, width, d_out)  # v is n V
    fit = int(memory // (shapes[0][0] * shapes[0][1] * u.element_size()))
    matrices = [
        [
            _Matrix(
                partial(draw, 2 + layer * blocks.block_depth + i, *shape),
                shape[1],
                blocks.rates[i] * kick,
                in_memory=layer * blocks.block_depth + i < fit,
                sign=blocks.sign,
            )
            for i, shape in enumerate(shapes)
        ]
        for layer in range(depth)
    ]
    outputs, rms = [], []
    for index, step in enumerate(steps):
        x = torch.tensor(step.inputs, dtype=dtype) @ u.T
        stream, ways_back = [x], []
        for block in matrices:
            out, back = _block(block, blocks.activation, x)
            x = x + branch * out
            stream.append(x)
            ways_back.append(back)
        f = (x @ v / width).double().numpy()
        outputs.append(f)
        rms.append(torch.stack([s.double().square().mean(1).sqrt() for s in stream]).numpy())
        chi = torch.tensor(step.loss.gradient(f), dtype=dtype)
        d = chi @ v.T
        if index == len(steps) - 1:
            break
        for back in reversed(ways_back):
            d = d + branch * back(d)
    return Trained(outputs=np.concatenate(outputs), rms=np.concatenate(rms, axis=1))


def _block(
    matrices: Sequence[_Matrix], activation: str, x: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """What a block adds to x, and what takes gradients back through it and updates it."""
    first = matrices[0]
    out, slope = _activate(activation, first.forward(x), centered=len(matrices) == 1)
    if len(matrices) == 1:
        return out, lambda d: first.backward(x, slope(d))
    second = matrices[1]
    return second.forward(out), lambda d: first.backward(x, slope(second.backward(out, d)))


def _activate(name: str, h: Tensor, *, centered: bool) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """phi(h), less its mean over entries if ``centered``, and what takes gradients back."""
    if name == "identity":
        return h, lambda d: d
    with torch.enable_grad():
        leaf = h.detach().requires_grad_()
        out = _ACTIVATIONS[name](leaf)
        if centered:
            out = out - out.mean(1, keepdim=True)

    def back(d: Tensor) -> Tensor:
        return torch.autograd.grad(out, leaf, d)[0]

    return out.detach(), back
