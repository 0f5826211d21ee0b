"""What checks the shapes in the library's signatures while it is tested; see ``conftest``."""

from collections.abc import Callable
from typing import Any

from beartype import beartype


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check those of a function's arguments, and what it returns, whose shape is annotated.

    Plain types are left to mypy: tests hand over wrong ones on purpose, to see the library's own
    errors, and the checker would be there first.
    """
    shaped = {
        name: kind for name, kind in function.__annotations__.items() if "jaxtyping" in str(kind)
    }
    if not shaped:
        return function
    function.__annotations__ = shaped
    return beartype(function)
