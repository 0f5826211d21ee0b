"""What a model's batch(generator) returns: inputs and targets."""

from collections.abc import Mapping
from typing import Any

_TARGETS = ("labels", "label", "targets", "target", "y")


def check_batch(drawn: Any) -> tuple[Any, Any]:
    """The inputs and targets of a batch, if it has both."""
    if isinstance(drawn, tuple | list) and len(drawn) == 2:
        return drawn[0], drawn[1]
    came, remedy = type(drawn).__name__, "Return inputs, targets."
    if isinstance(drawn, Mapping):
        # One dict, as collators of transformers give it: its keys are arguments of forward.
        came = f"one {came} of {', '.join(map(str, drawn)) or 'nothing'}"
        key = next((key for key in _TARGETS if key in drawn), None)
        remedy = f'Return batch, batch["{key or "labels"}"]: the dict holds arguments of forward.'
    elif isinstance(drawn, tuple | list):
        came += f" of {len(drawn)}"
        remedy = "Return (x, z), targets where the model takes several inputs."
    raise TypeError(
        f"Expected batch(generator) to give a pair, (inputs, targets); got {came}. {remedy}"
    )
