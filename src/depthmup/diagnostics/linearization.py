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

from depthmup.diagnostics.probes import call
from depthmup.planning.names import matches, plain_name, unwrapped


def linearization_distance(
    branch: nn.Module,
    args: Sequence[Any],
    initial: Mapping[str, Tensor],
    *,
    kwargs: Mapping[str, Any] | None = None,
) -> float:
    """The relative distance of one branch from its linearization, on the input it is given.

    ``initial`` are the branch's parameters before training, by their names in the branch.
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
    update = {name: p - initial[name] for name, p in now.items()}

    def run(parameters: Mapping[str, Tensor]) -> Tensor:
        output = functional_call(branch, dict(parameters), tuple(args), dict(kwargs or {}))
        return output if isinstance(output, Tensor) else output[0]

    # Fused attention has no forward-mode derivative; its plain form does.
    with torch.no_grad(), nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        before, linear, *_ = jvp(run, (dict(initial),), (update,))
        change = run(now) - before
    size = float(change.double().norm())
    return float((change - linear).double().norm()) / size if size else math.nan


def branch_linearizations(
    model: nn.Module, inputs: Any, branches: str, initial: Mapping[str, Tensor]
) -> dict[str, float]:
    """The distance of every branch that matches, each on the input it has in this forward pass.

    ``initial`` are the model's parameters before training, by name. One branch's input is held at
    a time: its distance is computed as the branch runs.

    Raises:
        ValueError: no module matches.
    """
    found: dict[str, float] = {}
    handles = []
    inside: list[str] = []
    for name, module in unwrapped(model).named_modules():
        plain = plain_name(name)
        if not matches(branches, plain):
            continue

        def look(module: nn.Module, args: Any, kwargs: Any, output: Any, name: str = plain) -> None:
            if inside:
                return  # our own runs of the branch
            inside.append(name)
            try:
                prefix = f"{name}."
                own = {
                    key.removeprefix(prefix): value
                    for key, value in initial.items()
                    if key.startswith(prefix)
                }
                found[name] = linearization_distance(module, args, own, kwargs=kwargs)
            finally:
                inside.pop()

        handles.append(module.register_forward_hook(look, with_kwargs=True))
    try:
        if not handles:
            raise ValueError(
                f"No module matches {branches!r}; name the branches, e.g. 'layers.*.mlp'."
            )
        with torch.no_grad():
            call(unwrapped(model), inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found
