"""The paper's residual network: an input matrix, L residual branches, a readout."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
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


class MLPBranch(nn.Module):
    """k matrices in series, each with its nonlinearity.

    post:  u <- phi(W_i u)      pre:  u <- W_i phi(u)      for i = 1 .. k,

    on u = x or its LayerNorm (without gains), minus the mean over features if asked for.
    """

    def __init__(
        self,
        width: int,
        *,
        block_depth: int,
        phi: Callable[[Tensor], Tensor],
        nonlinearity: Literal["post", "pre"],
        mean_subtraction: bool,
        layer_norm: bool,
    ) -> None:
        super().__init__()
        self.matrices = nn.ModuleList(
            nn.Linear(width, width, bias=False) for _ in range(block_depth)
        )
        self.phi = phi
        self.nonlinearity = nonlinearity
        self.mean_subtraction = mean_subtraction
        self.layer_norm = layer_norm

    def forward(self, x: Tensor) -> Tensor:
        u = functional.layer_norm(x, x.shape[-1:]) if self.layer_norm else x
        for matrix in self.matrices:
            u = self.phi(matrix(u)) if self.nonlinearity == "post" else matrix(self.phi(u))
        return u - u.mean(-1, keepdim=True) if self.mean_subtraction else u


MOST_BRANCHES = 10_000_000
# A matrix of this width has more entries than memory has addresses.
WIDEST = 2**31


class ResidualMLP(nn.Module):
    """x^0 = U xi;  x^l = x^(l-1) + multiplier * branch_l(x^(l-1));  f = V^T x^L.

    It knows no exponent: ``multiplier`` is a number, initialization is the caller's (by default
    torch's own). Inputs are (batch, inputs), outputs (batch, outputs).

    Example:
        >>> import torch
        >>> ResidualMLP(inputs=8, width=16, depth=4, outputs=3)(torch.ones(2, 8)).shape
        torch.Size([2, 3])

    *Source:* TP6 (arXiv 2310.02244) Equation 1 and Section 6.3; without biases, as there.
    """

    def __init__(
        self,
        *,
        inputs: int,
        width: int,
        depth: int,
        outputs: int,
        multiplier: float = 1.0,
        block_depth: int = 1,
        activation_name: str = "abs",
        nonlinearity: Literal["post", "pre"] = "post",
        mean_subtraction: bool = True,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        if min(inputs, width, depth, outputs, block_depth) < 1:
            raise ValueError(
                "Every size must be at least 1; got "
                f"{inputs=}, {width=}, {depth=}, {outputs=}, {block_depth=}."
            )
        if max(inputs, width, outputs) > WIDEST:
            raise ValueError(f"Expected sizes of at most {WIDEST:,}; got a larger one.")
        if depth > MOST_BRANCHES:  # which no memory holds: it would be filled branch by branch
            raise ValueError(f"Expected depth to be at most {MOST_BRANCHES:,}; got more.")
        if nonlinearity not in ("post", "pre"):
            raise ValueError(
                f"Expected nonlinearity 'post', phi(W x), or 'pre', W phi(x); got {nonlinearity!r}."
            )
        self.input = nn.Linear(inputs, width, bias=False)
        self.branches = nn.ModuleList(
            MLPBranch(
                width,
                block_depth=block_depth,
                phi=activation(activation_name),
                nonlinearity=nonlinearity,
                mean_subtraction=mean_subtraction,
                layer_norm=layer_norm,
            )
            for _ in range(depth)
        )
        self.readout = nn.Linear(width, outputs, bias=False)
        self.multiplier = multiplier

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.input(inputs)
        for branch in self.branches:
            x = x + self.multiplier * branch(x)
        out: Tensor = self.readout(x)
        return out
