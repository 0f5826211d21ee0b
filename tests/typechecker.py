"""What checks the shapes in the library's signatures while it is tested; see ``conftest``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
