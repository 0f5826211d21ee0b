"""The fingerprint of a model's code: a hash that changes with the code, but not if it moves.

For a function in a file, that file and the person's own files that it imports are hashed, without
comments. For a function typed into a session (a notebook, or the running script), its source, its
default values and everything it uses by name are hashed: functions and classes in the same way,
values by their text, the person's own modules by their files. Installed libraries are not read:
their versions are in the environment of a sweep. For a library's function that is passed itself,
the name and the version are hashed.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import linecache
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache, cached_property, partial, partialmethod
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import numpy as np
import torch

from depthmup.model.source_files import (
    PACKAGE,
    Walk,
    add_file,
    add_import,
    home_of,
    imported,
    is_library,
    origin_of,
    own_functions,
    root_of,
)

# Values whose repr says all of them, and the same in every run.
PLAIN = (
    *(str, bytes, int, float, complex, NoneType, range, slice, Fraction),
    *(np.generic, torch.dtype, torch.device),
)


def fingerprint(functions: Iterable[Callable[..., Any]]) -> str:
    """A hash of the source code of functions, in their order."""
    digest = hashlib.sha256(repr(sorted(_walked(functions).texts)).encode())
    return digest.hexdigest()[:16]


def files_of(functions: Iterable[Callable[..., Any]]) -> list[Path]:
    """The person's own files that a fingerprint reads."""
    return sorted(_walked(functions).files)


def _walked(functions: Iterable[Callable[..., Any]]) -> Walk:
    walk = Walk()
    for position, function in enumerate(functions):
        if not hasattr(function, "__qualname__"):  # an object with values of its own, or a partial
            raise _no_source(function)
        module, file = origin_of(function)
        readable = isinstance(function, FunctionType | type) or _wrapped(function)
        if not (readable or file or is_library(module, file)):
            raise _no_source(function)
        name = _text(walk, function)
        if is_library(module, file):
            name += _version(module)
        walk.texts.append((f"function {position}", name))
    return walk


def _version(module: str) -> str:
    names = _distributions(module.partition(".")[0])
    return "".join(f" {name} {importlib.metadata.version(name)}" for name in names)


@cache  # lists of all files of all packages are read for it
def _distributions(top: str) -> tuple[str, ...]:
    return tuple(sorted({*importlib.metadata.packages_distributions().get(top, ())}))


def _text(walk: Walk, value: Any, inside: tuple[int, ...] = ()) -> str:
    """A text for a value, the same in every run, with its code; of other types only the class."""
    if isinstance(value, Enum):
        return f"{_text(walk, type(value))}.{value.name} = {_text(walk, value.value, inside)}"
    if isinstance(value, PLAIN):
        return repr(_placeless(value))
    if id(value) in inside:
        return "itself"
    if isinstance(value, type | FunctionType | ModuleType):
        return _add(walk, value)
    inside = (*inside, id(value))

    def every(values: Iterable[Any]) -> list[str]:
        return [_text(walk, item, inside) for item in values]

    kind = _add(walk, type(value))
    match value:
        case dict():
            pairs = zip(every(value), every(value.values()), strict=True)
            return f"{kind} {[*pairs]}"
        case list() | tuple():
            return f"{kind} {every(value)}"
        case set() | frozenset():
            return f"{kind} {sorted(every(value))}"
        case staticmethod() | classmethod():
            return f"{kind} {every([value.__func__])}"
        case MethodType():
            return f"{kind} {every([value.__func__, value.__self__])}"
        case property():
            return f"{kind} {every([value.fget, value.fset, value.fdel])}"
        case cached_property():
            return f"{kind} {every([value.func])}"
        case partial() | partialmethod():
            return f"{kind} {every([value.func, value.args, value.keywords])}"
    if is_dataclass(value):
        return f"{kind} {every(getattr(value, f.name, None) for f in fields(value))}"
    if isinstance(getattr(value, "__qualname__", None), str):  # made in C, or a cached function
        return f"{kind} {_add(walk, value)}"
    return kind


def _placeless(value: Any) -> Any:
    """A value, or the CPU for a GPU: a notebook's ``device`` differs between machines."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and re.fullmatch(r"cuda(:\d+)?", value) else value


def _wrapped(thing: Any) -> list[Any]:
    return [vars(thing)["__wrapped__"]] if "__wrapped__" in getattr(thing, "__dict__", {}) else []


def _add(walk: Walk, thing: Any) -> str:
    """The name of a function, class or module; its code is added unless a library's."""
    module, file = origin_of(thing)
    code = getattr(thing, "__code__", None)  # its name is right where __qualname__ is another's
    name = getattr(code, "co_qualname", getattr(thing, "__qualname__", ""))
    new = id(thing) not in walk.visited
    walk.visited[id(thing)] = thing
    if is_library(module, file):
        package = "depthmup" if file and file.resolve().is_relative_to(PACKAGE) else module
        name = f"{package}:{name}:{getattr(thing, '__name__', '')}"
    elif file:
        path = file.absolute()
        name = f"{add_file(walk, path, root_of(module, path))}:{name}"
    elif new and isinstance(thing, FunctionType):
        _add_function(walk, thing)
    elif new and isinstance(thing, type):
        _add_class(walk, thing)
    for inner in _wrapped(thing) if new else ():
        walk.texts.append((f"{name} wraps", _text(walk, inner)))
    return name


def _add_function(walk: Walk, function: FunctionType) -> None:
    """Add a function's source, its default values, and the values it uses by name."""
    code, space = function.__code__, function.__globals__
    name = code.co_qualname
    source = _source(code)
    if not source:
        raise _no_source(name)
    walk.texts.append((name, source))
    closure = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    used = {key: cell.cell_contents for key, cell in closure.items() if not _is_empty(cell)}
    names = set(_names(code))
    used |= {key: space[key] for key in names if key in space and not key.startswith("__")}
    used |= {"default values": (function.__defaults__, function.__kwdefaults__)}
    for key, value in sorted(used.items(), key=lambda pair: pair[0]):
        walk.texts.append((f"{name} uses {key}", _text(walk, value)))
        if isinstance(value, ModuleType):
            _add_parts(walk, value, names)
    _add_imports(walk, source, space.get("__package__") or "")


def _add_parts(walk: Walk, module: ModuleType, names: set[str]) -> None:
    """Add submodules that may be used through a module, as in ``mine.layers``."""
    if is_library(*origin_of(module)):
        return
    for key in sorted(names & vars(module).keys()):
        part = vars(module)[key]
        if isinstance(part, ModuleType) and id(part) not in walk.visited:
            _text(walk, part)
            _add_parts(walk, part, names)


def _add_imports(walk: Walk, source: str, package: str) -> None:
    """Add the person's own modules that a function imports when it is called."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:  # a part of a line, which imports nothing
        return
    for level, names in imported(tree):
        try:
            full = importlib.util.resolve_name("." * level + ".".join(names), package).split(".")
        except ImportError:
            continue
        if home := home_of(full[0]):
            add_import(walk, home, full, home)


def _add_class(walk: Walk, kind: type) -> None:
    """Add a class's source, members, bases and metaclass."""
    name = kind.__qualname__
    source = _class_source(kind)
    walk.texts.append((name, source))
    for base in (*kind.__bases__, type(kind)):
        walk.texts.append((f"{name} is a", _text(walk, base)))
    has_generated = bool(source) or is_dataclass(kind) or hasattr(kind, "_fields")
    for key, member in vars(kind).items():
        code = getattr(inspect.unwrap(member), "__code__", None) if callable(member) else None
        generated = code and has_generated and code.co_filename == "<string>"
        if not generated and (code or not key.startswith("__")):
            walk.texts.append((f"{name}.{key}", _text(walk, member)))


def _lines(file: str) -> list[str]:
    """The lines of a file, or of a notebook's cell, which IPython registers like a file."""
    linecache.checkcache(file)
    return linecache.getlines(file)


def _source(code: CodeType) -> str:
    """The lines of a function's source; for a lambda, up to the last line of its code."""
    lines = _lines(code.co_filename)[code.co_firstlineno - 1 :]
    if code.co_name == "<lambda>":
        last = max((end or 0 for _, end, _, _ in code.co_positions()), default=0)
        return "".join(lines[: max(last - code.co_firstlineno, 0) + 1])
    return "".join(inspect.getblock(lines)) if lines else ""


def _class_source(kind: type) -> str:
    """The source of all classes of this name in a file; empty if a notebook cannot locate it."""
    files = [function.__code__.co_filename for function in own_functions(kind)]
    files.append(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    for file in files:
        try:
            tree = ast.parse("".join(_lines(file)))
        except SyntaxError:
            continue
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        if definitions := [ast.dump(node) for node in nodes if node.name == kind.__name__]:
            return "".join(definitions)
    return ""


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - there is no other way to ask
    except ValueError:
        return True
    return False


def _names(code: CodeType) -> Iterator[str]:
    """Global names that a function uses, inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _no_source(thing: Any) -> ValueError:
    return ValueError(
        f"The source of {thing} cannot be found, so a change of the code would go unnoticed and "
        "stored runs of other code be reused. Define the function in a file, or name the version "
        "of your code: version='1'."
    )
