"""Which code makes a model: a hash that changes when the code does, and not when it moves.

Of a function in a file, the file and the person's own files that it imports are hashed, without
comments; of a function typed into a session (a notebook, the script that is running), its own
source, its default values, and what it uses by name: functions and classes alike, values in words,
modules of the person's own by their files. Installed libraries are not read: their versions stand
in the environment of a sweep. Of a library's function that is given itself, the name and the
version are hashed.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import linecache
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property, partial, partialmethod
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import numpy as np
import torch

PACKAGE = Path(__file__).parents[1].resolve()
STANDARD = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})
INSTALLED = {"site-packages", "dist-packages"}

# Values whose repr says all of them, and the same in every run.
PLAIN = (
    *(str, bytes, int, float, complex, NoneType, range, slice, Fraction),
    *(np.generic, torch.dtype, torch.device),
)


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """What was met of a person's code: pairs of a name and a text, which are what is hashed.

    ``seen`` holds the objects by id, so that no other object can get the id of one.
    """

    texts: list[tuple[str, str]] = field(default_factory=list)
    files: set[Path] = field(default_factory=set)
    seen: dict[int, Any] = field(default_factory=dict)


def fingerprint(functions: Iterable[Callable[..., Any]]) -> str:
    """A hash of the source code of functions, in their order.

    Raises:
        ValueError: the source of one cannot be found.
    """
    walk = _Walk()
    for position, function in enumerate(functions):
        if not hasattr(function, "__qualname__"):  # an object with values of its own, or a partial
            raise _no_source(function)
        module, file = _origin(function)
        readable = isinstance(function, FunctionType | type) or _wrapped(function)
        if not (readable or file or _is_library(module, file)):
            raise _no_source(function)
        name = _text(walk, function)
        if _is_library(module, file):
            name += _version(module)
        walk.texts.append((f"function {position}", name))
    digest = hashlib.sha256(repr(sorted(walk.texts)).encode())
    return digest.hexdigest()[:16]


# Where code lies.


def _origin(thing: Any) -> tuple[str, Path | None]:
    """The module that a thing was made in, and its file; none where a session made it."""
    thing = getattr(thing, "__func__", thing)
    if isinstance(thing, FunctionType):  # __module__ may be that of what it wraps
        space, code = thing.__globals__, Path(thing.__code__.co_filename)
        file = code if code.is_file() else space.get("__file__")
    elif isinstance(thing, ModuleType):
        space, file = vars(thing), getattr(thing, "__file__", None)
    else:
        # The module of this name may have been replaced since by that of another file.
        for member in _own_functions(thing) if isinstance(thing, type) else ():
            module, file = _origin(member)
            if module == thing.__module__ and file == Path(member.__code__.co_filename):
                return module, file
        name = getattr(thing, "__module__", None) or ""
        space = vars(sys.modules[name]) if name in sys.modules else {"__name__": name}
        file = space.get("__file__")
    name = str(space.get("__name__", ""))
    if name == "__main__":
        return name, None
    # Modules inside a compiled one have no file of their own.
    file = file or getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
    return name, Path(file) if file else None


def _is_library(module: str, file: Path | None) -> bool:
    """Whether a module is none of the person's own."""
    if file is None:
        return module.partition(".")[0] in sys.stdlib_module_names
    return any(
        not INSTALLED.isdisjoint(path.parts)
        or any(path.is_relative_to(folder) for folder in (PACKAGE, *STANDARD))
        for path in (file.absolute(), file.resolve())  # a package may consist of links
    )


def _version(module: str) -> str:
    top = module.partition(".")[0]
    found = importlib.metadata.packages_distributions().get(top, ())
    return "".join(f" {name} {importlib.metadata.version(name)}" for name in sorted({*found}))


def _root(module: str, path: Path) -> Path:
    """The folder from which a module's package is imported."""
    names = module.split(".")
    place = path.parent if path.name == "__init__.py" else path.with_suffix("")
    fits = list(place.parts[-len(names) :]) == names
    return place.parents[len(names) - 1] if fits else path.parent


def _home(top: str) -> Path | None:
    """The folder from which a module of the person's own is imported; none for others."""
    module = sys.modules.get(top)
    spec = getattr(module, "__spec__", None)
    if module is None:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return None
    file = spec.origin if spec and spec.has_location else None
    if origin := getattr(module, "__file__", None) or file:
        path = Path(origin)
        return None if _is_library(top, path) else _root(top, path.absolute())
    for place in getattr(spec, "submodule_search_locations", None) or ():
        path = Path(place)  # a folder without __init__.py
        return None if _is_library(top, path) else path.absolute().parent
    return None


# Files.


def _add_file(walk: _Walk, path: Path, root: Path) -> str:
    """A file, the packages that it is in, and what they import of the person's own; its name."""
    name = path.relative_to(root).as_posix()
    if path in walk.files:
        return name
    walk.files.add(path)
    raw = path.read_bytes()
    try:
        tree = ast.parse(raw)
    except (SyntaxError, ValueError):  # compiled, or of another Python
        walk.texts.append((name, hashlib.sha256(raw).hexdigest()))
        return name
    walk.texts.append((name, ast.dump(tree)))
    for folder in path.relative_to(root).parents[:-1]:
        if (package := root / folder / "__init__.py").is_file():
            _add_file(walk, package, root)
    for level, names in _imported(tree):
        if level > len(path.parents):
            continue
        if level:
            _add_import(walk, path.parents[level - 1], names, root)
            continue
        beside = _find(root, names) or _find(root, names[:1])
        if home := root if beside else _home(names[0]):
            _add_import(walk, home, names, home)
    return name


def _add_import(walk: _Walk, start: Path, names: list[str], root: Path) -> bool:
    """Adds the file of a module, if it lies there; whether it does."""
    path = _find(start, names)
    if path is None or not path.is_relative_to(root):
        return False
    _add_file(walk, path, root)
    return True


def _find(start: Path, names: list[str]) -> Path | None:
    place = start.joinpath(*names)
    paths = (place.with_name(place.name + ".py"), place / "__init__.py")
    return next(filter(Path.is_file, paths), None)


def _imported(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """The modules that code may import: how many folders up they start, and their names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield 0, alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            names = node.module.split(".") if node.module else []
            if names:
                yield node.level, names
            for alias in node.names:
                yield node.level, [*names, alias.name]


# Objects of a session.


def _text(walk: _Walk, value: Any, inside: tuple[int, ...] = ()) -> str:
    """A value in words that are the same in every run; the code in it is added.

    Of an object of another kind than those below, its class is all that is said.
    """
    if isinstance(value, Enum):
        return f"{_text(walk, type(value))}.{value.name} = {_text(walk, value.value, inside)}"
    if isinstance(value, PLAIN):
        return repr(value)
    if id(value) in inside:
        return "itself"
    if isinstance(value, type | FunctionType | ModuleType):
        return _add(walk, value)
    inside = (*inside, id(value))

    def every(values: Iterable[Any]) -> list[str]:
        return [_text(walk, each, inside) for each in values]

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
        return f"{kind} {every(getattr(value, each.name, None) for each in fields(value))}"
    if isinstance(getattr(value, "__qualname__", None), str):  # made in C, or a cached function
        return f"{kind} {_add(walk, value)}"
    return kind


def _wrapped(thing: Any) -> list[Any]:
    return [vars(thing)["__wrapped__"]] if "__wrapped__" in getattr(thing, "__dict__", {}) else []


def _add(walk: _Walk, thing: Any) -> str:
    """The name of a function, class or module; the code of it, if the person's own, is added."""
    module, file = _origin(thing)
    code = getattr(thing, "__code__", None)  # its name is right where __qualname__ is another's
    name = getattr(code, "co_qualname", getattr(thing, "__qualname__", ""))
    new = id(thing) not in walk.seen
    walk.seen[id(thing)] = thing
    if _is_library(module, file):
        place = "depthmup" if file and file.resolve().is_relative_to(PACKAGE) else module
        name = f"{place}:{name}:{getattr(thing, '__name__', '')}"
    elif file:
        path = file.absolute()
        name = f"{_add_file(walk, path, _root(module, path))}:{name}"
    elif new and isinstance(thing, FunctionType):
        _add_function(walk, thing)
    elif new and isinstance(thing, type):
        _add_class(walk, thing)
    for inner in _wrapped(thing) if new else ():
        walk.texts.append((f"{name} wraps", _text(walk, inner)))
    return name


def _add_function(walk: _Walk, function: FunctionType) -> None:
    """A function's source, and by their names the values that it starts from and those it uses."""
    code, space = function.__code__, function.__globals__
    name = code.co_qualname
    source = _source(code)
    if not source:
        raise _no_source(name)
    walk.texts.append((name, source))
    held = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    used = {key: cell.cell_contents for key, cell in held.items() if not _is_empty(cell)}
    names = set(_names(code))
    used |= {key: space[key] for key in names if key in space and not key.startswith("__")}
    used |= {"default values": (function.__defaults__, function.__kwdefaults__)}
    for key, value in sorted(used.items(), key=lambda pair: pair[0]):
        walk.texts.append((f"{name} uses {key}", _text(walk, value)))
        if isinstance(value, ModuleType):
            _add_parts(walk, value, names)
    _add_imports(walk, source, space.get("__package__") or "")


def _add_parts(walk: _Walk, module: ModuleType, names: set[str]) -> None:
    """The modules inside one of the person's own that may be used of it: ``mine.layers``."""
    if _is_library(*_origin(module)):
        return
    for key in sorted(names & vars(module).keys()):
        part = vars(module)[key]
        if isinstance(part, ModuleType) and id(part) not in walk.seen:
            _text(walk, part)
            _add_parts(walk, part, names)


def _add_imports(walk: _Walk, source: str, package: str) -> None:
    """The person's own modules that a function imports when it is called."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:  # a part of a line, which imports nothing
        return
    for level, names in _imported(tree):
        try:
            full = importlib.util.resolve_name("." * level + ".".join(names), package).split(".")
        except ImportError:
            continue
        if home := _home(full[0]):
            _add_import(walk, home, full, home)


def _add_class(walk: _Walk, made: type) -> None:
    """A class's source, its members, its bases and what makes it."""
    name = made.__qualname__
    source = _class_source(made)
    walk.texts.append((name, source))
    for base in (*made.__bases__, type(made)):
        walk.texts.append((f"{name} is a", _text(walk, base)))
    has_generated = bool(source) or is_dataclass(made) or hasattr(made, "_fields")
    for key, member in vars(made).items():
        code = getattr(inspect.unwrap(member), "__code__", None) if callable(member) else None
        generated = code and has_generated and code.co_filename == "<string>"
        if not generated and (code or not key.startswith("__")):
            walk.texts.append((f"{name}.{key}", _text(walk, member)))


def _own_functions(made: type) -> Iterator[FunctionType]:
    for member in vars(made).values():
        plain = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(plain, FunctionType):
            yield plain


def _lines(file: str) -> list[str]:
    """Those of a file, or of a notebook's cell, which is known by a name like that of a file."""
    linecache.checkcache(file)
    return linecache.getlines(file)


def _source(code: CodeType) -> str:
    """The lines of a function; of one without a name, to the last that it was compiled from."""
    lines = _lines(code.co_filename)[code.co_firstlineno - 1 :]
    if code.co_name == "<lambda>":
        last = max((end or 0 for _, end, _, _ in code.co_positions()), default=0)
        return "".join(lines[: max(last - code.co_firstlineno, 0) + 1])
    return "".join(inspect.getblock(lines)) if lines else ""


def _class_source(made: type) -> str:
    """A class without comments; empty in a notebook, if no method tells in which cell it is.

    Where a file has several classes of this name, it is all of them.
    """
    files = [function.__code__.co_filename for function in _own_functions(made)]
    files.append(getattr(sys.modules.get(made.__module__), "__file__", None) or "")
    for file in files:
        try:
            tree = ast.parse("".join(_lines(file)))
        except SyntaxError:
            continue
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        if found := [ast.dump(node) for node in nodes if node.name == made.__name__]:
            return "".join(found)
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
        f"The source of {thing} cannot be found, so nothing would show that a stored run is of "
        "other code. Write a function in a file, or name the version of your code: version='1'."
    )
