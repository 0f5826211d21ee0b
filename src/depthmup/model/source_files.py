"""A person's own source files: which code is theirs, and which of their files import which."""

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

PACKAGE = Path(__file__).parents[1].resolve()
STANDARD = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})
INSTALLED = {"site-packages", "dist-packages"}


class Walk:
    """The code collected for a fingerprint: pairs of a name and a text, which are hashed."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []
        self.files: dict[Path, str] = {}
        # Objects by id: while they are referenced, no new object can get the same id.
        self.visited: dict[int, Any] = {}


def contents(files: Iterable[Path]) -> dict[str, str]:
    """A hash of each file, and of the names beside it, where a new file may be imported instead."""
    found = {}
    for file in files:
        found[str(file)] = hashlib.sha256(file.read_bytes()).hexdigest()
        beside = sorted(path.name for path in file.parent.glob("*") if _may_be_imported(path))
        found[str(file.parent)] = hashlib.sha256(repr(beside).encode()).hexdigest()
    return found


def unchanged(before: Mapping[str, str]) -> bool:
    """Whether files have the contents that ``contents`` found."""
    try:
        files = [path for name in before if (path := Path(name)).is_file()]
        return contents(files) == before
    except OSError:
        return False


def _may_be_imported(path: Path) -> bool:
    return path.suffix == ".py" or (path.is_dir() and path.name.isidentifier())


def origin_of(thing: Any) -> tuple[str, Path | None]:
    """The module that defines a function, class or object, and its file; None for a session."""
    thing = getattr(thing, "__func__", thing)
    if isinstance(thing, FunctionType):  # __module__ may be that of what it wraps
        space, code = thing.__globals__, Path(thing.__code__.co_filename)
        file = code if code.is_file() else space.get("__file__")
    elif isinstance(thing, ModuleType):
        space, file = vars(thing), getattr(thing, "__file__", None)
    else:
        # The module of this name may have been replaced since by that of another file.
        for member in own_functions(thing) if isinstance(thing, type) else ():
            module, file = origin_of(member)
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


def is_library(module: str, file: Path | None) -> bool:
    """Whether a module belongs to Python, an installed package or this package."""
    if file is None:
        return module.partition(".")[0] in sys.stdlib_module_names
    return any(
        not INSTALLED.isdisjoint(path.parts)
        or any(path.is_relative_to(folder) for folder in (PACKAGE, *STANDARD))
        for path in (file.absolute(), file.resolve())  # a package may consist of links
    )


def root_of(module: str, path: Path) -> Path:
    """The folder from which a module's package is imported."""
    names = module.split(".")
    module_path = path.parent if path.name == "__init__.py" else path.with_suffix("")
    fits = list(module_path.parts[-len(names) :]) == names
    return module_path.parents[len(names) - 1] if fits else path.parent


def home_of(top: str) -> Path | None:
    """The folder from which one of the person's own modules is imported; None for libraries."""
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
        return None if is_library(top, path) else root_of(top, path.absolute())
    for location in getattr(spec, "submodule_search_locations", None) or ():
        path = Path(location)  # a folder without __init__.py
        return None if is_library(top, path) else path.absolute().parent
    return None


def add_file(walk: Walk, path: Path, root: Path) -> str:
    """Add a file, the packages that contain it, and what they import of the person's own files."""
    if path in walk.files:
        return walk.files[path]
    raw = path.read_bytes()
    tree: ast.AST = ast.Module(body=[], type_ignores=[])
    try:
        tree = ast.parse(raw)
        raw = ast.dump(tree).encode()
    except (SyntaxError, ValueError):  # compiled, or of another Python
        pass
    # With a hash, as files in different folders may have the same relative path.
    name = f"{path.relative_to(root).as_posix()} {hashlib.sha256(raw).hexdigest()}"
    walk.files[path] = name
    walk.texts.append(("file", name))
    for folder in path.relative_to(root).parents[:-1]:
        if (package := root / folder / "__init__.py").is_file():
            add_file(walk, package, root)
    for level, names in imported(tree):
        if level > len(path.parents):
            continue
        if level:
            add_import(walk, path.parents[level - 1], names, root)
            continue
        beside = _find(root, names) or _find(root, names[:1])
        if home := root if beside else home_of(names[0]):
            add_import(walk, home, names, home)
    return name


def add_import(walk: Walk, start: Path, names: list[str], root: Path) -> None:
    """Add the file of a module ``names`` below ``start``, if it is there and below ``root``."""
    path = _find(start, names)
    if path and path.is_relative_to(root):
        add_file(walk, path, root)


def _find(start: Path, names: list[str]) -> Path | None:
    target = start.joinpath(*names)
    paths = (target.with_name(target.name + ".py"), target / "__init__.py")
    return next(filter(Path.is_file, paths), None)


def imported(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """The modules that code may import: levels of relative imports, and the parts of names."""
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


def own_functions(kind: type) -> Iterator[FunctionType]:
    """The functions defined in the body of a class."""
    for member in vars(kind).values():
        plain = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(plain, FunctionType):
            yield plain
