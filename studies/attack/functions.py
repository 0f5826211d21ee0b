"""Bad input to every public function and class: its own refusal, or a value; in time.

Calls that are right are taken from the examples of the docstrings; one argument of each is spoilt,
by another value of its own kind. What must not happen is an error that nobody raised: a KeyError or
a ZeroDivisionError from somewhere inside.
"""

import contextlib
import doctest
import importlib
import inspect
import io
import os
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from depthmup.model.errors import is_refusal
from depthmup.model.time_limit import time_limit

HANG = 60.0
PACKAGES = (
    *("depthmup", "data", "diagnostics", "tables", "limits", "model", "models", "planning"),
    *("records", "reports", "rules", "statistics", "sweep", "tracing", "training"),
)
DELIBERATE = (ValueError, OverflowError, MemoryError, OSError, RuntimeError)
"""Errors that say what is wrong, whoever raises them: PyTorch's are RuntimeErrors."""

# Right calls of what has no example of its own, or whose example is no doctest.
MORE = {
    "depthmup.Design": (
        "import depthmup; depthmup.Design(base=dict(width=64, depth=4, batch=32, steps=500), "
        "depth=(4, 8), batch=(32, 64), schemes=('completep',), lrs=(0.01, 0.02), seeds=3, "
        "run=('sde',), multipliers=(1.0,), weight_decays=(0.1,), window=10, optimizers=('adamw',))"
    ),
    "depthmup.sweep.Auto": (
        "from depthmup.sweep import Auto; "
        "Auto(start=0.01, precision=0.1, runs=100, seconds=60.0, work=1e9)"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Call:
    """A right call of a public function."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def attack(count: int, folder: Path, seed: int) -> Counter[str]:
    outcomes, rng = Counter[str](), random.Random(seed)
    os.chdir(folder)
    calls = list(_calls())
    outcomes["functions called"] = len(calls)
    spoilt = {call.name: list(_spoilt(call)) for call in calls}
    for arguments in spoilt.values():
        rng.shuffle(arguments)
    for number in range(count):
        call = calls[number % len(calls)]
        index = number // len(calls)
        if index >= len(spoilt[call.name]):
            continue
        args, kwargs, shown = spoilt[call.name][index]
        outcome = _outcome(call, args, kwargs)
        outcomes[outcome] += 1
        if outcome.isupper():
            print(f"{outcome}: {call.name}, {shown[:150]}", file=sys.stderr, flush=True)
    return outcomes


def _outcome(call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    quiet = io.StringIO()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(quiet),
            contextlib.redirect_stderr(quiet),
            time_limit(HANG, "A call"),
        ):
            warnings.simplefilter("ignore")
            np.seterr(all="ignore")
            call.function(*args, **kwargs)
    except TimeoutError:
        return "HUNG"
    except Exception as error:
        if is_refusal(error) or isinstance(error, DELIBERATE):
            return "refused"
        if isinstance(error, TypeError) and re.match(r"make\(\)|.*forward\(\)", str(error)):
            return "refused"  # by the model or the factory that was given, whose error it is
        return f"{type(error).__name__} OF OURS: {error}"[:150].upper()
    return "taken"


def _calls() -> Iterator[Call]:
    for name, (owner, attribute, function, text) in _public().items():
        recorded = _recorded(owner, attribute, function, text)
        if recorded is not None:
            args, kwargs = recorded
            yield Call(name=name, function=function, args=args, kwargs=kwargs)


def _public() -> dict[str, tuple[Any, str, Callable[..., Any], str]]:
    """Public functions, classes and their methods, with an example each."""
    found: dict[int, tuple[str, Any, str, Callable[..., Any], str]] = {}
    for package in PACKAGES:
        module = importlib.import_module(
            package if package == "depthmup" else f"depthmup.{package}"
        )
        for attribute in module.__all__:
            value = getattr(module, attribute)
            name = f"{module.__name__}.{attribute}"
            if not callable(value) or isinstance(value, ModuleType) or id(value) in found:
                continue
            text = MORE.get(name) or _example(value)
            if text:
                found[id(value)] = (name, module, attribute, value, text)
            for method, inner in vars(value).items() if inspect.isclass(value) else ():
                example = _example(inner) if inspect.isfunction(inner) else ""
                if example and not method.startswith("_"):
                    found[id(inner)] = (f"{name}.{method}", value, method, inner, example)
    return {name: tuple(rest) for name, *rest in found.values()}


def _example(value: Any) -> str:
    parsed = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
    return "".join(example.source for example in parsed)


def _recorded(
    owner: Any, attribute: str, function: Callable[..., Any], text: str
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of the first call of a function in its example."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    home = sys.modules[inspect.unwrap(function).__module__]
    namespace = {**vars(home)}
    if inspect.isclass(function):
        whole = function.__init__

        def begin(self: Any, *args: Any, **kwargs: Any) -> None:
            calls.append((args, kwargs))
            whole(self, *args, **kwargs)

        patched, name, new = function, "__init__", begin
    else:

        def record(*args: Any, **kwargs: Any) -> Any:
            calls.append((args, kwargs))
            return function(*args, **kwargs)

        patched, name, new = owner, attribute, record
        namespace[attribute] = record
    before = vars(patched).get(name, getattr(patched, name))
    lazy = name not in vars(patched)
    setattr(patched, name, new)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, f"<example of {attribute}>", "exec"), namespace)
    except Exception as error:
        print(f"no example of {home.__name__}.{attribute}: {error!r}"[:200], file=sys.stderr)
    finally:
        if lazy:
            delattr(patched, name)
        else:
            setattr(patched, name, before)
    return calls[0] if calls else None


def _spoilt(call: Call) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], str]]:
    for index, value in enumerate(call.args):
        for other in _others(value):
            args = (*call.args[:index], other, *call.args[index + 1 :])
            yield args, dict(call.kwargs), f"argument {index} = {other!r}"
    for name, value in call.kwargs.items():
        for other in _others(value):
            yield call.args, {**call.kwargs, name: other}, f"{name} = {other!r}"


def _others(value: Any) -> Iterator[Any]:
    """Wrong values of a value's own kind."""
    match value:
        case bool() | None | Enum():  # a text is no member of an enumeration
            return
        case int():
            yield from (-1, 0, 10**400)
        case float():
            yield from (float("nan"), float("inf"), -1.0, 0.0, 1e300)
        case Fraction():
            yield from (Fraction(-1), Fraction(10**400), Fraction(0))
        case str():
            yield from ("", "x", "\x1b[2J", "1/0", "9" * 5000, "a" * 100_000)
        case Mapping():
            yield {}
            yield {"x": 1}
            for key, inner in list(value.items())[:3]:
                for other in _others(inner):
                    yield {**value, key: other}
        case list() | tuple():
            kind = type(value) if type(value) in (list, tuple) else tuple
            yield kind()
            yield kind([*value, *value])
            for other in _others(value[0]) if value else ():
                yield kind([other, *value[1:]])
        case np.ndarray() if value.dtype.kind == "f" and value.size:
            yield value[:0]
            for bad in (np.nan, np.inf, -1.0, 1e300):
                spoilt = value.copy()
                spoilt.flat[0] = bad
                yield spoilt
        case torch.Tensor() if value.is_floating_point():
            yield value[:0]
            yield torch.full_like(value, float("nan"))
