"""Linearization: how far a trained branch is from its first-order expansion in the update.

For a branch F(x; W) and its update dW,

    distance = |F(x; W + dW) - F(x; W) - JF(x; W) dW| / |F(x; W + dW) - F(x; W)|,

with JF dW by forward-mode differentiation. It is small where layers are trained linearly
(Claim 7.6, for 1/2 <= alpha < 1) and of order one at alpha = 1.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from depthmup.tracing import matches


def linearization_distance(
    branch: nn.Module,
    args: Sequence[Any],
    initial: Mapping[str, Tensor],
    *,
    kwargs: Mapping[str, Any] | None = None,
) -> float:
    """The relative distance of one branch from its linearization, on the input it is given.

    NaN where the branch's output has not changed.

    Example:
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch...>
        >>> linear = nn.Linear(4, 4)
        >>> old = {name: p.detach() * 0.9 for name, p in linear.named_parameters()}
        >>> linearization_distance(linear, (torch.randn(2, 4),), old) < 1e-5
        True

    *Source:* TP6 (arXiv 2310.02244) Definition 7.7 and Section 9.2.
    """
    now = {name: p.detach() for name, p in branch.named_parameters()}
    if set(now) != set(initial):
        raise ValueError(
            f"Expected the initial values of {sorted(now)}; got those of {sorted(initial)}."
        )
    start = {name: value.detach() for name, value in initial.items()}
    update = {name: p - start[name] for name, p in now.items()}
    bare = _Bare(branch)

    def run(parameters: Mapping[str, Tensor]) -> Tensor:
        named = {f"branch.{name}": p for name, p in parameters.items()}
        output = functional_call(bare, named, tuple(args), dict(kwargs or {}))
        return output if isinstance(output, Tensor) else output[0]

    # Fused attention has no forward-mode derivative; its plain form does.
    plain = nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH)
    with torch.no_grad(), plain:
        before, linear, *_ = jvp(run, (start,), (update,))
        change = run(now) - before
    size = float(change.double().norm())
    return float((change - linear).double().norm()) / size if size else math.nan


class _Bare(nn.Module):
    """A module without its own hooks, which include ours."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.branch.forward(*args, **kwargs)


def branch_linearizations(
    model: nn.Module, inputs: Any, branches: str, initial: Mapping[str, Tensor]
) -> dict[str, float]:
    """The distance of every branch that matches, each on the input it has in this forward pass.

    One branch's input is in memory at a time: its distance is computed as the branch runs.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
        >>> initial = {name: p.detach().clone() for name, p in model.named_parameters()}
        >>> model[1][0].weight.data *= 1.01  # as if trained
        >>> distances = branch_linearizations(model, torch.randn(2, 4), "1", initial)
        >>> sorted(distances), 0 < distances["1"] < 0.01
        (['1'], True)

        *Source:* TP6 (arXiv 2310.02244) Definition 7.7 and Section 9.2.
    """
    distances: dict[str, float] = {}
    handles = []
    for name, module in model.named_modules():
        if not matches(branches, name):
            continue

        def measure(
            module: nn.Module, args: Any, kwargs: Any, output: Any, name: str = name
        ) -> None:
            prefix = f"{name}."
            own = {
                key.removeprefix(prefix): value
                for key, value in initial.items()
                if key.startswith(prefix)
            }
            distances[name] = linearization_distance(module, args, own, kwargs=kwargs)

        handles.append(module.register_forward_hook(measure, with_kwargs=True, prepend=True))
    try:
        if not handles:
            raise ValueError(
                f"No module matches {branches!r}; name the branches, e.g. 'layers.*.mlp'."
            )
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return distances
