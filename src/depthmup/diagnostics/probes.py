"""Probes: hooks that observe a network's forward pass and keep numbers, not activations."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from depthmup.diagnostics.effects import Effects, bare_readouts, compare_weights
from depthmup.diagnostics.labels import labels_by
from depthmup.diagnostics.observations import (
    Collector,
    Key,
    Observation,
    Points,
    shape_of,
)
from depthmup.diagnostics.sharding import forward
from depthmup.measuring import mean_square
from depthmup.planning import Plan
from depthmup.rules import Observable
from depthmup.tracing import named_modules, parameters, unwrapped
from depthmup.tracing.recorder import tensors_of


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
    """Observe one forward pass, without gradients and in evaluation mode but for batch norms.

    Args:
        model: fresh, or trained since ``initial``.
        inputs: of the forward pass.
        points: where to observe.
        plan: of the model.
        applied: whether the plan was applied, so that parameters carry its folded multipliers.
        initial: what was observed before training; None: the network as it starts.
        weights: the weights then, by name.
        paths: the lengths of the paths of gains and biases, sums over steps of the root mean square
            of each step (``Paths``): the few numbers of a bias turn back so often that their net
            change says little.

    Returns:
        Root mean squares, or with ``initial`` those of what has changed since.

    Example:
        >>> import torch
        >>> import depthmup
        >>> from depthmup.diagnostics import locate
        >>> def make(width, depth):
        ...     return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))
        >>> model, x = make(64, 1), torch.randn(8, 4)
        >>> plan = depthmup.plan(
        ...     model, make(16, 1), scheme="mup", optimizer="adam", example_inputs=x
        ... )
        >>> plan.initialize(model)
        >>> [key.observable.value for key in observe(model, x, locate(model, x), plan).values]
        ['logits', 'readout']
    """
    inner = unwrapped(model)
    modules = named_modules(inner)
    prescriptions = {name: p for p in plan.prescriptions for name in p.names}
    collector = Collector(
        labels_by(model, plan, points.apart),
        prescriptions,
        applied=applied,
        initial=initial,
        weights=weights,
        paths=paths or {},
        keys=points.keys,
        centered=points.centered,
    )
    tensors = parameters(inner)
    named = {id(p): name for name, p in tensors.items()}
    training = [m for m in inner.modules() if m.training]
    covered: set[str] = set()
    with ExitStack() as stack:
        # Dropout would make two observations differ by chance.
        inner.eval()
        for module in training:
            stack.callback(setattr, module, "training", True)
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                # By the batch, as it trains: a fresh one divides by 1 in evaluation mode.
                stack.callback(setattr, module, "track_running_stats", module.track_running_stats)
                module.training, module.track_running_stats = True, False
        for point in points.points:
            collector.attach(stack, modules[point.module], point)
        for name, module in modules.items():
            owned = dict(module.named_parameters(recurse=False))
            # Leaves alone: what a container's own parameters do is seen in no one call.
            if owned and not any(True for _ in module.children()):
                owned_names = {key: named[id(p)] for key, p in owned.items()}
                covered |= set(owned_names.values())
                effects = Effects(collector, name, owned_names)
                handle = module.register_forward_hook(effects, with_kwargs=True, prepend=True)
                stack.callback(handle.remove)
        if points.attention and initial is None:
            stack.enter_context(_attention_logits(modules, points, collector))
        logits = logits_of(forward(inner, inputs))
    collector.logits = shape_of(logits)
    collector.tensor(Key(observable=Observable.LOGITS, module="output"), logits)
    if initial is not None and weights is not None:
        compare_weights(collector, tensors, weights)
    bare_readouts(collector, tensors, covered)
    return collector.finish()


@contextmanager
def _attention_logits(
    modules: Mapping[str, nn.Module], points: Points, collector: Collector
) -> Iterator[None]:
    """Collect the scaled products of queries and keys, whichever function computes them."""
    running: list[str] = []
    wanted = set(points.attention)
    names = {id(modules[name]): name for name in wanted if name in modules}
    handles = []
    for name in names.values():

        def enter(module: nn.Module, args: Any, name: str = name) -> None:
            running.append(name)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            running.pop()

        handles.append(modules[name].register_forward_pre_hook(enter))
        handles.append(modules[name].register_forward_hook(leave))

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if running:
                logits = _logits(func, args, kwargs)
                if logits is not None:
                    label = collector.labels(running[-1])
                    key = Key(observable=Observable.ATTENTION_LOGITS, module=label)
                    collector.squares.setdefault(key, []).append(mean_square(logits))
            return func(*args, **kwargs)

    try:
        with Watch():
            yield
    finally:
        for handle in handles:
            handle.remove()


def _logits(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Tensor | None:
    name = getattr(func, "__name__", "")
    if name == "scaled_dot_product_attention":
        query, key = (
            args[i] if i < len(args) else kwargs[of] for i, of in enumerate(("query", "key"))
        )
        scale = kwargs.get("scale") or query.shape[-1] ** -0.5
        if query.ndim > 3 and key.shape[-3] != query.shape[-3]:  # grouped queries share keys
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
        # One example is enough: the entries are many.
        result: Tensor = (query[:1] @ key[:1].transpose(-1, -2)) * scale
        return result
    weighing = name in ("softmax", "_softmax", "softmax_default", "log_softmax", "sigmoid")
    if weighing and args and isinstance(args[0], Tensor) and args[0].dim() >= 3:
        first, second = args[0][:1].float(), args[0][1:2].float()
        left = first > -1e4  # by a mask
        if second.shape == first.shape:
            # What two examples have in common, a bias of positions, is no product.
            left &= second > -1e4
            apart = (first - second)[left] / math.sqrt(2)
            if apart.any():
                return apart
        return first[left] if left.any() else None
    return None


def logits_of(output: Any) -> Tensor:
    """The tensor that a model returns, or its ``logits``, or the first tensor of a structure."""
    if isinstance(output, Tensor):
        return output
    logits = output.get("logits") if isinstance(output, Mapping) else None
    logits = getattr(output, "logits", logits)
    if isinstance(logits, Tensor):
        return logits
    for tensor in tensors_of(output):
        return tensor
    raise ValueError(
        f"Expected the model to return a tensor, or something that holds one; got {type(output)}."
    )


def first_nonfinite(model: nn.Module, inputs: Any) -> str | None:
    """The name of the first module whose output is not finite; None if all are.

    Args:
        model: to be run once.
        inputs: of one forward pass.

    Returns:
        The name, or None.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> first_nonfinite(net, torch.full((1, 2), float("inf")))
        '0'
    """
    nonfinite: list[str] = []
    handles = []
    for name, module in named_modules(model).items():

        def check(module: nn.Module, args: Any, output: Any, name: str = name) -> None:
            for tensor in tensors_of(output):
                if not nonfinite and not bool(torch.isfinite(tensor).all()):
                    nonfinite.append(name or type(module).__name__)

        handles.append(module.register_forward_hook(check))
    try:
        forward(unwrapped(model), inputs)
    finally:
        for handle in handles:
            handle.remove()
    return nonfinite[0] if nonfinite else None
