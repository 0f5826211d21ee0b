"""A person's own functions, and how a worker process finds them again."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from depthmup.planning.user_model import cross_entropy, find_function
from depthmup.training.fingerprint import fingerprint

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Functions:
    """What a person gives: either ``make``, ``batch`` and ``loss``, or ``train``.

    ``make(width, depth)`` gives a model; ``batch(generator)`` gives ``(inputs, targets)``;
    ``loss(outputs, targets)`` gives a scalar; ``plan(model, base, trial)`` gives a plan, where
    ``depthmup.plan`` must be told more than a scheme. ``train(trial)`` does everything and gives
    the loss of every step.

    Each is the function itself, or a reference ``module:function`` or ``path/to/file.py:function``,
    by which another process finds it: functions are never copied by value.
    """

    make: Function | str | None = None
    batch: Function | str | None = None
    loss: Function | str = cross_entropy
    plan: Function | str | None = None
    train: Function | str | None = None

    @property
    def given(self) -> dict[str, Function | str]:
        """Those that are there, by name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.train is not None:
            del values["loss"]
        return {name: value for name, value in values.items() if value is not None}

    @property
    def main(self) -> str:
        """The name of the one that makes or trains the model."""
        function = resolved(self).make or resolved(self).train
        return getattr(function, "__name__", type(function).__name__)

    @property
    def code(self) -> str:
        """The fingerprint of the source code."""
        return fingerprint(resolved(self).given.values())  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def resolved(functions: Functions) -> Functions:
    """The functions themselves; references are imported once per process."""
    found = {
        name: find_function(value) if isinstance(value, str) else value
        for name, value in functions.given.items()
    }
    return replace(functions, **found)


def by_reference(functions: Functions) -> Functions:
    """The same by references, which can be sent to other processes.

    Raises:
        ValueError: one of them cannot be found from elsewhere, and why.
    """
    found = {
        name: value if isinstance(value, str) else _reference(value)
        for name, value in functions.given.items()
    }
    return replace(functions, **found)


def _reference(function: Function) -> str:
    name = getattr(function, "__qualname__", "")
    module = inspect.getmodule(function)
    if not name.isidentifier():
        raise ValueError(
            f"{name or function!r} is not at the top of a module, so other processes cannot import "
            "it"
        )
    if module is None or module.__name__ == "__main__":
        raise ValueError(
            f"{name} is defined in the session that is running (__main__), which other processes "
            "cannot import"
        )
    if getattr(module, name, None) is not function:
        raise ValueError(
            f"{module.__name__}.{name} is another function now, so other processes would import "
            "that one"
        )
    file = getattr(module, "__file__", None)
    if file and file.endswith(".py") and "." not in module.__name__ and not _installed(module):
        return f"{Path(file).resolve()}:{name}"
    return f"{module.__name__}:{name}"


def _installed(module: Any) -> bool:
    """Whether a module is a package, whose own imports need its name."""
    return hasattr(module, "__path__") or module.__name__ in sys.stdlib_module_names
