"""Frozen dataclasses as strict JSON, and back.

Strict JSON has no NaN and no infinities. ``encode`` writes NaN as null and infinities as the texts
"Infinity" and "-Infinity", which ``decode`` reads back. Where another program draws or tabulates
the values and never reads them back, ``strict`` writes null for all three: Vega has no infinity.

A file may hold anything, so ``decode`` checks every field against its type: what does not fit is
refused with its location and with what was expected there, before anything is computed from it.
"""

import hashlib
import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from depthmup.records.printable import printable

T = TypeVar("T")

LARGEST = 64 * 2**20
"""Characters of a file; the longest certificates have some hundred thousand, so a longer text would
only fill memory."""


def parse(text: str, what: str) -> Any:
    """The value of a JSON text."""
    if len(text) > LARGEST:
        raise ValueError(f"Expected {what} of at most {LARGEST:,} characters; got {len(text):,}.")
    try:
        return json.loads(text)
    # The parser's own stack ends before Python has seen a value.
    except RecursionError:
        raise ValueError(f"Expected {what}; got JSON that is nested too deeply.") from None
    except ValueError as error:
        raise ValueError(f"Expected {what}, as JSON; got something else: {error}.") from None


def encode(value: Any) -> Any:
    """The value in types that strict JSON has, at any nesting; ``decode`` reads it back.

    Dataclasses become objects, sequences lists, enumerations their values. Anything else (a path, a
    fraction, a version) becomes its text.

    Args:
        value: a record, a dataclass, or what JSON has.

    Returns:
        Values that strict JSON holds.

    Example:
        >>> encode({"a": (math.inf, math.nan, 1.5)})
        {'a': ['Infinity', None, 1.5]}
        >>> from depthmup.records import Estimate
        >>> encode(Estimate(value=0.5, low=-math.inf, high=1.0))
        {'value': 0.5, 'low': '-Infinity', 'high': 1.0, 'unit': ''}
    """
    return _encoded(value, {math.inf: "Infinity", -math.inf: "-Infinity"})


def strict(value: Any) -> Any:
    """As ``encode``, with null for infinities too: for charts, tables and summaries.

    Args:
        value: a record, a dataclass, or what JSON has.

    Returns:
        Values that strict JSON holds.

    Example:
        >>> strict({"loss": float("inf"), "depths": (8, 16)})
        {'loss': None, 'depths': [8, 16]}
    """
    return _encoded(value, {})


SCHEMA = 1
"""Version of the layout of JSON documents that have none of their own."""


def versioned(document: Any) -> Any:
    """A document of named fields with the version of its layout, for programs.

    Example:
        >>> versioned({"why": "Round 2."}), versioned({"schema": 4}), versioned([1])
        ({'schema': 1, 'why': 'Round 2.'}, {'schema': 4}, [1])
    """
    named = isinstance(document, dict) and not {"schema", "depthmup_plan"} & document.keys()
    return {"schema": SCHEMA, **document} if named else document


def _encoded(value: Any, infinities: Mapping[float, str]) -> Any:
    match value:
        case None | bool() | int():
            return value
        # Before sequences, of which a text is one too.
        case str():
            return str(value)  # a member of a StrEnum becomes its text
        case float():
            return value if math.isfinite(value) else infinities.get(value)
        case Mapping():
            return {str(key): _encoded(item, infinities) for key, item in value.items()}
        case Sequence() if not isinstance(value, bytes | bytearray):
            return [_encoded(item, infinities) for item in value]
        case Enum():
            return value.value
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {f.name: _encoded(getattr(value, f.name), infinities) for f in fields(value)}
        case _:
            return str(value)


def decode(kind: type[T], raw: Any, where: str) -> T:
    """A dataclass from the value that its JSON holds, every field checked by its type.

    A float may be a number, null (NaN) or "Infinity" and "-Infinity"; an enumeration is one of its
    values; a tuple is a list. Texts are made printable.
    """
    value: T = _value(kind, raw, where)
    return value


def _value(kind: Any, raw: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _dataclass(kind, raw, where)
    origin, inner = get_origin(kind), get_args(kind)
    # Of unions records have optional values, and one value or several: JSON's null and list decide.
    if origin in (Union, types.UnionType):
        if raw is None and type(None) in inner:
            return None
        options = [option for option in inner if option is not type(None)]
        several = [option for option in options if get_origin(option) is tuple]
        one = [option for option in options if option not in several]
        [only] = several if several and (isinstance(raw, list) or not one) else one
        return _value(only, raw, where)
    if origin is tuple:
        return _tuple(inner, raw, where)
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        values = inner if origin is Literal else tuple(member.value for member in kind)
        if not isinstance(raw, str) or raw not in values:
            _refuse(where, f"one of {', '.join(values)}", raw)
        return raw if origin is Literal else kind(raw)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(raw, dict):
            _refuse(where, "an object", raw)
        return {printable(k): _entry(inner[1], v, f"{where}[{k!r}]") for k, v in raw.items()}
    return _plain(kind, raw, where)


def _entry(kind: Any, raw: Any, where: str) -> Any:
    """A mapping's value; whole numbers stay integers, as they were written."""
    whole = kind is float and isinstance(raw, int) and not isinstance(raw, bool)
    return _value(int if whole else kind, raw, where)


def _plain(kind: Any, raw: Any, where: str) -> Any:
    if kind is Any or kind is object:  # settings, in whatever JSON has
        return raw
    if kind is float:
        return _float(raw, where)
    if kind is int:
        # JSON's true is an integer to Python.
        right = isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < 2**63
        return raw if right else _refuse(where, "a whole number", raw)
    if kind is str:
        return printable(raw) if isinstance(raw, str) else _refuse(where, "a text", raw)
    if kind is bool:
        return raw if isinstance(raw, bool) else _refuse(where, "true or false", raw)
    raise TypeError(f"There is no reader for fields of type {kind!r} ({where}).")


def _dataclass(kind: Any, raw: Any, where: str) -> Any:
    if not isinstance(raw, dict):
        _refuse(where, "an object", raw)
    hints, needed = _hints(kind)
    if lacking := needed - raw.keys():
        raise ValueError(f"Expected {where} to have {', '.join(sorted(lacking))}; it lacks them.")
    if unknown := raw.keys() - hints.keys():
        names = printable(", ".join(sorted(unknown))[:200])
        raise ValueError(f"Expected {where} to have {', '.join(hints)} alone; it has {names} too.")
    return kind(**{name: _value(hints[name], raw[name], f"{where}.{name}") for name in raw})


@cache
def _hints(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of a dataclass's fields, and the names of those without a default."""
    hints = get_type_hints(kind)
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    return {f.name: hints[f.name] for f in fields(kind)}, frozenset(needed)


def _tuple(inner: tuple[Any, ...], raw: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(raw, list):
        _refuse(where, "a list", raw)
    # tuple[T, ...] is of any length, tuple[A, B] of two.
    kinds = [inner[0]] * len(raw) if inner[-1:] == (Ellipsis,) else list(inner)
    if len(kinds) != len(raw):
        _refuse(where, f"a list of {len(kinds)}", raw)
    pairs = zip(kinds, raw, strict=True)
    return tuple(_value(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(pairs))


def _float(raw: Any, where: str) -> float:
    if raw is None:
        return math.nan
    if isinstance(raw, str) and raw in ("Infinity", "-Infinity"):
        return float(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        _refuse(where, "a number", raw)
    try:
        return float(raw)
    # An integer in JSON may have any number of digits.
    except OverflowError:
        _refuse(where, "a number of double precision", "one beyond it")


def _refuse(where: str, expected: str, got: Any) -> NoReturn:
    shown = type(got).__name__ if isinstance(got, list | dict) else printable(repr(got))
    raise ValueError(f"Expected {where} to be {expected}; got {shown[:100]}.")


def canonical_json(description: Mapping[str, Any]) -> str:
    """The one JSON text of a description: the same for equal ones on every machine."""
    return _CANONICAL.encode(description)


# Made once: json.dumps would make an encoder for every key.
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(text: str) -> str:
    """A stable hash of a canonical description."""
    # 128 bits: two of 10^9 results share a key with a probability of 10^-21.
    return hashlib.sha256(text.encode()).hexdigest()[:32]
