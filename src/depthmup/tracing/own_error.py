"""Whether a forward pass fails by itself, as a person would call it, and where."""

import inspect
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from depthmup._isolated import isolated
from depthmup.tracing.names import named_tensors, with_tensors

_LIBRARIES = (Path(torch.__file__).parent, Path(__file__).parents[1])

SHOWN = 6
"""Arguments of a forward pass that a message names."""


def own_error(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Exception | None:
    """The error of one plain call, on copies of the model's tensors; none if it works."""
    tensors = dict(named_tensors(model))
    devices = {tensor.device for tensor in tensors.values()}
    if len(devices) != 1:  # where inputs would have to lie is the person's to know
        return None
    (device,) = devices

    def there(value: Any) -> Any:
        return value.detach().to(device, copy=True) if isinstance(value, Tensor) else value

    with isolated(), torch.no_grad():
        try:
            arguments, keywords = tree_map(there, (args, dict(kwargs)))
            with with_tensors(model, {name: there(tensor) for name, tensor in tensors.items()}):
                model(*arguments, **keywords)
        except Exception as error:  # whatever the person's code raises
            return error
    return None


def own_error_words(
    model: nn.Module, error: Exception, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    """The error of a forward pass: its text, its place, and arguments that were not given."""
    reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return (
        f"The forward pass of {type(model).__name__} fails on these inputs: "
        f"{type(error).__name__}: {reason}{_place(error)}. {_not_given(model, args, kwargs)}"
        "Pass the arguments of one real call as example_inputs: a tensor, a tuple of several, or "
        "a dict of keywords. A batch function returns them first: return (x, z), targets."
    )


def _place(error: Exception) -> str:
    """The last line of a person's code that an error went through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if not any(file.is_relative_to(folder) for folder in _LIBRARIES):
            return f" ({file.name}, line {frame.lineno}: {frame.line})"
    return ""


def _not_given(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Arguments of the forward pass that one call leaves out."""
    try:
        known = inspect.signature(model.forward).parameters
        given = inspect.signature(model.forward).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):  # of a call that does not fit, the error tells more
        return ""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    absent = [name for name, p in known.items() if name not in given and p.kind not in kinds]
    if not absent:
        return ""
    more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
    return f"Not given: {', '.join(absent[:SHOWN])}{more}. "
