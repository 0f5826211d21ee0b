"""The scaled products of queries and keys, seen whichever function computes them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from depthmup.diagnostics.observations import Collector, Key, Points, mean_square
from depthmup.rules import Observable


@contextmanager
def attention_logits(
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
        query, key = (*args, kwargs.get("query"), kwargs.get("key"))[:2]
        if kwargs.get("query") is not None:
            query, key = kwargs["query"], kwargs["key"]
        scale = kwargs.get("scale") or query.shape[-1] ** -0.5
        if key.shape[1] != query.shape[1]:  # grouped queries share keys
            key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        # One example is enough: the entries are many.
        result: Tensor = (query[:1] @ key[:1].transpose(-1, -2)) * scale
        return result
    weighing = name in ("softmax", "_softmax", "softmax_default", "log_softmax", "sigmoid")
    if weighing and args and isinstance(args[0], Tensor) and args[0].dim() >= 3:
        entries = args[0][:1].flatten().float()
        entries = entries[entries > -1e4]  # what a mask leaves
        return entries if len(entries) else None
    return None
