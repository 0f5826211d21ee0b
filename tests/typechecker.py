"""What checks the shapes in the library's signatures while it is tested; see ``conftest``."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import jaxtyping
from beartype import beartype

ROOT = Path(__file__).parents[1]


def modules_with_shapes() -> list[str]:
    """The modules whose signatures have shapes; watching the calls of others triples their time."""
    return [
        ".".join(file.relative_to(top).with_suffix("").parts).removesuffix(".__init__")
        for top in (ROOT / "src", ROOT)
        for package in ("depthmup", "reproduction")
        for file in sorted((top / package).rglob("*.py"))
        if "from jaxtyping import" in file.read_text(encoding="utf-8")
    ]


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


def leave_alone_what_has_no_shapes() -> None:
    """Have jaxtyping's hook pass by functions without a shape: it binds the arguments of each call.

    Annotations may be text, whose names the function's module knows.
    """
    watched = jaxtyping.jaxtyped

    def shaped(kind: object, names: Mapping[str, object]) -> bool:
        named = [names.get(word) for word in re.findall(r"\w+", kind)] if type(kind) is str else []
        return any("jaxtyping" in str(one) for one in (kind, *named))

    def jaxtyped(function: Any = None, **options: Any) -> Any:
        if function is None:
            return partial(jaxtyped, **options)
        if isinstance(function, FunctionType):
            kinds = function.__annotations__.values()
            if not any(shaped(kind, function.__globals__) for kind in kinds):
                return function
        return watched(function, **options)

    jaxtyping.jaxtyped = jaxtyped
