"""Dispatch: what sees every ATen operation, and which tensors an operation reads and writes."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Watching(TorchDispatchMode):
    """Sees operations as they run, without the compiler that torch loads to be left out of it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def operands(value: Any) -> Iterator[Tensor]:
    """The tensors among what an ATen operation takes or gives, which nests in plain types alone."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from operands(item)
    elif isinstance(value, dict):
        yield from operands(list(value.values()))


def written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an ATen operation writes into, such as ``out``."""
    return [
        tensor
        for i, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
        for tensor in operands(args[i] if i < len(args) else kwargs.get(argument.name))
    ]
