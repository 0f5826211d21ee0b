"""Another draw of a model's initial weights, without the code that drew them."""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from depthmup.tracing import parameters

# Of entries of one distribution, the means of rows and columns scatter no more than this many
# times what chance lets them, and their kurtosis is at most that of an exponential distribution.
_SCATTER, _KURTOSIS = 3.0, 9.0
_FEW = 30


def redraw(model: nn.Module, generator: torch.Generator) -> None:
    """Put the entries of every matrix in another order, in place.

    Independent entries of one distribution are as likely in any order. A matrix whose entries show
    an order (an identity, the grid of a state space, a row of padding) stays as it is, and so do
    vectors.
    """
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1 and p.numel() > 1 and p.is_floating_point() and _in_no_order(p):
                order = torch.randperm(p.numel(), generator=generator, device="cpu").to(p.device)
                p.copy_(p.reshape(-1)[order].reshape(p.shape))


def offsets(model: nn.Module) -> set[str]:
    """Vectors of random numbers: few, or some of them negative."""
    return {
        name
        for name, p in parameters(model).items()
        if p.ndim == 1
        and p.numel()
        and p.is_floating_point()
        and bool((p != p[0]).any())
        and (p.numel() < _FEW or bool((p < 0).any()))
    }


def without(model: nn.Module, names: Collection[str]) -> None:
    """Set parameters to zero, in place.

    A few random numbers scatter, and in another order they are as large as before.
    """
    with torch.no_grad():
        for name, p in parameters(model).items():
            if name in names:
                p.zero_()


def _in_no_order(p: Tensor) -> bool:
    values = p.detach().float().reshape(len(p), -1)
    values = values - values.mean()
    square = values.square().mean()
    if not bool(square > 0) or bool((values.square().mean(1) < 1e-3 * square).any()):
        return False
    if bool(values.pow(4).mean() > _KURTOSIS * square.square()):
        return False
    rows, columns = values.shape
    by_chance = ((values.mean(1), columns), (values.mean(0), rows))
    return all(
        bool(means.square().mean() <= _SCATTER * square / count) for means, count in by_chance
    )
