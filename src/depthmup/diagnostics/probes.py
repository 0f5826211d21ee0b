"""Probes: hooks that look at a network's forward pass and keep numbers, not activations."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from depthmup.diagnostics.attention import attention_logits
from depthmup.diagnostics.effects import Effects, bare_readouts, compare_weights
from depthmup.diagnostics.observations import Key, Observation, Points, Seen, labels_of, mean_square
from depthmup.diagnostics.sharding import look
from depthmup.planning import Plan
from depthmup.planning.hooks import named_modules
from depthmup.rules import Observable
from depthmup.tracing import parameters, unwrapped


def observe(
    model: nn.Module,
    inputs: Any,
    points: Points,
    plan: Plan,
    *,
    applied: bool = True,
    initial: Observation | None = None,
    weights: Mapping[str, Tensor] | None = None,
    paths: Mapping[str, float] | None = None,
) -> Observation:
    """Look at one forward pass, without gradients and in evaluation mode.

    Without ``initial``: the network as it starts. With ``initial`` and the initial ``weights``
    (by name): what has changed since. ``paths`` are the lengths of the paths of gains and biases,
    sums over steps of the root mean square of each step (``Paths``): the few numbers of a bias
    turn back so often that their net change says little.
    """
    inner = unwrapped(model)
    modules = named_modules(inner)
    seen = Seen(initial=initial, labels=labels_of(model))
    prescriptions = {name: p for p in plan.prescriptions for name in p.names}
    named = {id(p): name for name, p in parameters(inner).items()}
    training = [m for m in inner.modules() if m.training]
    covered: set[str] = set()
    with ExitStack() as stack:
        inner.eval()
        for module in training:
            stack.callback(setattr, module, "training", True)
        for point in points.points:
            seen.attach(stack, modules[point.module], point)
        for name, module in modules.items():
            owned = dict(module.named_parameters(recurse=False))
            if owned and not any(True for _ in module.children()):
                owned_names = {key: named[id(p)] for key, p in owned.items()}
                covered |= set(owned_names.values())
                effects = Effects(
                    name=name,
                    names=owned_names,
                    prescriptions=prescriptions,
                    applied=applied,
                    weights=weights,
                    paths=paths or {},
                    seen=seen,
                )
                handle = module.register_forward_hook(effects, with_kwargs=True, prepend=True)
                stack.callback(handle.remove)
        if points.attention and initial is None:
            stack.enter_context(attention_logits(modules, points, seen))
        logits = logits_of(look(inner, inputs))
    seen.logits = mean_square(logits)
    seen.tensor(Key(observable=Observable.LOGITS, module="output"), logits)
    if initial is not None and weights is not None:
        compare_weights(seen, inner, weights, prescriptions, applied=applied)
    bare_readouts(seen, inner, covered, prescriptions, weights)
    return seen.finish()


def logits_of(output: Any) -> Tensor:
    """The tensor that a model returns, or its ``logits``, or the first tensor of a structure."""
    if isinstance(output, Tensor):
        return output
    found = getattr(output, "logits", None)
    if isinstance(found, Tensor):
        return found
    for leaf in tree_flatten(output)[0]:
        if isinstance(leaf, Tensor):
            return leaf
    raise ValueError(
        f"Expected the model to return a tensor, or something that holds one; got {type(output)}."
    )


def first_nonfinite(model: nn.Module, inputs: Any) -> str | None:
    """The name of the first module whose output is not finite; None if all are.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> first_nonfinite(net, torch.full((1, 2), float("inf")))
        '0'
    """
    found: list[str] = []
    handles = []
    for name, module in named_modules(model).items():

        def check(module: nn.Module, args: Any, output: Any, name: str = name) -> None:
            for leaf in tree_flatten(output)[0]:
                if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or found:
                    continue
                if not bool(torch.isfinite(leaf).all()):
                    found.append(name or type(module).__name__)

        handles.append(module.register_forward_hook(check))
    try:
        look(unwrapped(model), inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None
