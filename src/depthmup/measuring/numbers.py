"""Numbers of a tensor: its mean square, and a sample that is compared with a later one."""

import torch
from torch import Tensor

SAMPLE = 4096
"""Entries that are kept of a tensor: the root mean square of their change has a relative error of
1/sqrt(2 * SAMPLE)."""


def sample(value: Tensor) -> Tensor:
    """At most ``SAMPLE`` entries, the same ones of every tensor of this size."""
    flat = reals(value).reshape(-1)
    if len(flat) <= SAMPLE:
        return flat.float().clone()
    # A stride would alias with the layout of the tensor; evenly spaced fractions do so less.
    generator = torch.Generator().manual_seed(len(flat))
    return flat[torch.randint(len(flat), (SAMPLE,), generator=generator).to(flat.device)].float()


def mean_square(value: Tensor) -> float:
    """The mean over all entries of their squares."""
    return float(reals(value).float().square().mean())


def reals(value: Tensor) -> Tensor:
    """A tensor's numbers without a gradient: two of a complex one, and zeros of a sparse one."""
    value = value.detach()
    value = value.to_dense() if value.is_sparse else value
    return torch.view_as_real(value) if value.is_complex() else value
