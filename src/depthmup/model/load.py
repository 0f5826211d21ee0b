"""``--model module:factory``: how commands are given a person's model.

The module defines ``factory(width, depth)``, which returns a model; ``batch(generator)``, which
returns ``(inputs, targets)``; and, unless the loss is cross-entropy, ``loss(outputs, targets)``.
"""

import importlib
import importlib.util
import os
import re
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def load_functions(model: str, *, batch: str = "batch", loss: str = "") -> dict[str, Any]:
    """Import what ``module:factory`` names, and the functions beside it, by their names."""
    where, colon, factory = model.partition(":")
    if not colon or not where or not factory:
        raise ValueError(
            f"Expected --model module:factory, such as mine:make or path/to/mine.py:make; got "
            f"{model!r}. factory(width, depth) makes the model; the module also has "
            "batch(generator) -> (inputs, targets)."
        )
    module = _module(where)
    functions: dict[str, Any] = {
        "make": _function(module, where, factory, "factory(width, depth)"),
        "batch": _function(module, where, batch, "batch(generator) -> (inputs, targets)"),
    }
    if loss:
        functions["loss"] = _function(module, where, loss, "loss(outputs, targets)")
    elif hasattr(module, "loss"):
        functions["loss"] = module.loss
    if callable(optimizers := getattr(module, "optimizers", None)):
        functions["optimizers"] = optimizers
    return functions


def find_function(reference: str) -> Callable[..., Any]:
    """The function that ``module:function`` or ``path/to/file.py:function`` names."""
    where, colon, name = reference.rpartition(":")
    if not (colon and where and name):
        raise ValueError(
            f"Expected a function as module:function or path/to/file.py:function; got "
            f"{reference!r}."
        )
    return _function(
        _loaded(where) or _module(where), where, name, "a function at the top of the module"
    )


def private_name(path: Path) -> str:
    """The module name under which a file is loaded, which no other module has.

    Under its own name, a file ``random.py`` would replace the standard library's module for all
    later imports, and ``my.model.py`` would be part of a package ``my``.

    Example:
        >>> private_name(Path("/home/me/my.model.py"))
        '_depthmup_file_my_model_cc32586a'
    """
    full = str(path.resolve())
    stem = re.sub(r"\W", "_", path.stem)
    # A checksum of the path: files of the same name differ, and every process gets the same.
    return f"_depthmup_file_{stem}_{zlib.crc32(os.fsencode(full)):08x}"


def _loaded(name: str) -> ModuleType | None:
    """The module that was loaded from this file before, so that its functions share it."""
    path = Path(name)
    if path.suffix != ".py":
        return None
    for known in (private_name(path), path.stem):
        module = sys.modules.get(known)
        file = getattr(module, "__file__", None)
        if file and Path(file).resolve() == path.resolve():
            return module
    return None


def _module(name: str) -> ModuleType:
    path = Path(name)
    if path.suffix == ".py":
        if not path.is_file():
            raise ValueError(f"There is no file {name!r} (from {Path.cwd()}).")
        # First: with its folder on the path a file that is called torch.py would be taken for it.
        import torch  # noqa: F401

        private, content = private_name(path), hash(path.read_bytes())
        # Once, so that two functions of a file are of one module, which workers import by its name.
        before = sys.modules.get(private)
        if before is not None and getattr(before.__spec__, "loader_state", None) == content:
            return before
        spec = importlib.util.spec_from_file_location(private, path)
        assert spec is not None
        assert spec.loader is not None
        spec.loader_state = content
        module = importlib.util.module_from_spec(spec)
        sys.modules[private] = module
        # As for a script that is run: what lies beside the file can be imported.
        sys.path.insert(0, str(path.parent.resolve()))
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[private]  # half of a module is none
            raise
        finally:
            sys.path.pop(0)
        return module
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(
            f"Expected a module such as mine or mine.parts, or the path of a file such as "
            f"path/to/mine.py; got {name!r}."
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0] and error.name != name:
            raise
        raise ValueError(
            f"There is no module {name!r} that Python can import from {Path.cwd()}. Name a module "
            "such as mine (for mine.py), or give the path of a file: path/to/mine.py:make."
        ) from None
    finally:
        sys.path.pop(0)


def _function(module: ModuleType, where: str, name: str, shape: str) -> Callable[..., Any]:
    other, colon, function = name.partition(":")
    if colon:
        return _function(_module(other), other, function, shape)
    candidate = getattr(module, name, None)
    if not callable(candidate):
        raise ValueError(
            f"{where} has no function {name!r}. Expected {shape}: define it there, or name another "
            "one."
        )
    result: Callable[..., Any] = candidate
    return result
