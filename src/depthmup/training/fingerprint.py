"""Which code makes a model: a hash that changes when the code does.

Of a function in a file, the file and the files beside it that it imports are hashed, without
comments; of a function typed into a session (a notebook, the script that is running), its own
source and that of the functions and classes it uses. Installed libraries are not: their versions
stand in the environment of a sweep.
"""

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

PACKAGE = Path(__file__).parents[1]


def fingerprint(functions: Iterable[Callable[..., Any]]) -> str:
    """A hash of the source code of functions.

    Raises:
        ValueError: the source of one cannot be found.
    """
    texts: dict[str, str] = {}
    for function in functions:
        if not hasattr(function, "__qualname__"):  # an object with values of its own, or a partial
            raise _no_source(function)
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        if module is not None and file and module.__name__ != "__main__":
            path = Path(file).resolve()
            if not path.is_relative_to(PACKAGE):  # what is ours has a version of its own
                _add_file(path, _root(module, path), texts)
        else:
            _add_object(function, texts)
    digest = hashlib.sha256(repr(sorted(texts.items())).encode())
    return digest.hexdigest()[:16]


def _root(module: ModuleType, path: Path) -> Path:
    """The folder from which a module's package is imported."""
    levels = module.__name__.count(".") + (path.name == "__init__.py")
    return path.parents[levels]


def _add_file(path: Path, root: Path, texts: dict[str, str]) -> None:
    name = str(path.relative_to(root))
    if name in texts:
        return
    tree = ast.parse(path.read_bytes())
    texts[name] = ast.dump(tree)
    for imported in _imported(tree, path, root):
        packages = (folder / "__init__.py" for folder in (imported, *imported.parents))
        for found in (imported.with_suffix(".py"), *packages):
            if found.is_relative_to(root) and found.is_file():
                _add_file(found, root, texts)


def _imported(tree: ast.AST, path: Path, root: Path) -> Iterator[Path]:
    """Where the modules that a file imports would lie, if they were its owner's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield root.joinpath(*alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            start = path.parents[node.level - 1] if node.level else root
            module = start.joinpath(*(node.module or "").split("."))
            yield module
            for alias in node.names:
                yield module / alias.name


def _add_object(thing: Any, texts: dict[str, str]) -> None:
    """The source of a function or class of the session, and of those that it uses."""
    if not isinstance(thing, FunctionType | type):
        raise _no_source(thing)
    name = thing.__qualname__
    if name in texts:
        return
    texts[name] = ""  # not yet read; ends recursion
    if isinstance(thing, type):
        for base in thing.__bases__:
            if base.__module__ == thing.__module__:
                _add_object(base, texts)
        for key, member in vars(thing).items():
            plain = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(plain, FunctionType):
                _add_object(plain, texts)
            elif not key.startswith("__"):
                texts[f"{name}.{key}"] = repr(member)
        return
    try:
        texts[name] = inspect.getsource(thing)
    except (OSError, TypeError):
        raise _no_source(name) from None
    for key in _names(thing.__code__):
        used = thing.__globals__.get(key)
        if isinstance(used, FunctionType | type):
            if used.__module__ == thing.__module__:
                _add_object(used, texts)
        elif isinstance(used, int | float | str | bool | tuple):
            texts[key] = repr(used)


def _no_source(thing: Any) -> ValueError:
    return ValueError(
        f"The source of {thing} cannot be found, so nothing would show that a stored run is of "
        "other code. Write a function in a file, or name the version of your code: version='1'."
    )


def _names(code: Any) -> Iterator[str]:
    """Global names that a function uses, inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from _names(constant)
