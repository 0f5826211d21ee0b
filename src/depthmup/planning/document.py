"""A plan as JSON: exact exponents, a version, and a checksum."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from depthmup.planning.content import PlanContent
from depthmup.planning.own_init import LAWS, OwnInit
from depthmup.rules import Power

VERSION = 1

_LATER = frozenset({"converted", "tuned_with", "ratios", "narrows", "on_stream", "proof", "times"})
"""Fields that plans of older releases lack: nothing was converted; ratios of multipliers; whether a
matrix narrows or a vector acts on the stream, whose factors stand beside it; what was measured of
the plan."""

LARGEST = 64 * 2**20
"""Characters of a file: plans of models with 10,000 tensors have 10 million."""


class PlanDocumentError(ValueError):
    """A text that is no plan, is of another version, or was changed."""


def dumps(plan: PlanContent) -> str:
    """The plan as JSON text."""
    content = _plain(plan)
    return json.dumps(
        {"depthmup_plan": VERSION, "sha256": _checksum(content), "plan": content}, indent=1
    )


def loads(text: str) -> dict[str, Any]:
    """The fields of the plan that ``dumps`` wrote."""
    if len(text) > LARGEST:
        raise PlanDocumentError(
            f"Expected a plan of at most {LARGEST:,} characters; got {len(text):,}. Make the plan "
            "again."
        )
    try:
        document = json.loads(text)
        version, checksum, content = (document[key] for key in ("depthmup_plan", "sha256", "plan"))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PlanDocumentError(
            "Expected JSON written by plan.save; got something else. Make the plan again."
        ) from None
    if version != VERSION:
        raise PlanDocumentError(
            f"This plan has format version {version!r}, and this release reads version {VERSION}. "
            "Make the plan again from the model and its base."
        )
    if not isinstance(content, dict) or checksum != _checksum(content):
        raise PlanDocumentError(
            "The plan was changed after it was saved: its checksum does not match its content. "
            "Make the plan again; to prescribe other numbers, define a scheme."
        )
    try:
        return _fields(content)
    except Exception as error:  # whoever wrote it computed a checksum, of whatever it is
        raise PlanDocumentError(
            f"The file is no plan of this release: {type(error).__name__}: "
            f"{str(error)[:300]}. Make the plan again from the model and its base."
        ) from None


def _checksum(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Dataclasses as objects, exponents as text such as "-1/2"."""
    if isinstance(value, Power):
        return {
            f.name: str(getattr(value, f.name)) for f in fields(value) if getattr(value, f.name)
        }
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def read(path: Path) -> dict[str, Any]:
    """The fields of the plan in a file; a large one is not even read."""
    if path.stat().st_size > LARGEST:
        raise PlanDocumentError(
            f"Expected a plan of at most {LARGEST:,} bytes; {path} has {path.stat().st_size:,}."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise PlanDocumentError(
            f"Expected JSON written by plan.save; {path} is no text. Make the plan again."
        ) from None
    return loads(text)


def _fields(content: dict[str, Any]) -> dict[str, Any]:
    _check_texts(content)
    plan = _value(PlanContent, content, "plan")
    return {f.name: getattr(plan, f.name) for f in fields(plan)}


def _check_texts(value: Any) -> None:
    """Refuse control characters: names are printed, and a terminal would obey them."""
    if isinstance(value, str) and not value.replace("\n", " ").isprintable():
        raise ValueError(f"expected texts that can be printed; got {value!r}")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_texts(key)
            _check_texts(item)
    elif isinstance(value, list):
        for item in value:
            _check_texts(item)


def _value(kind: Any, content: Any, name: str) -> Any:
    """What JSON holds of a field of this type; a factor that is a text fails when it is used."""
    parts = get_args(kind)
    if kind == OwnInit | None:
        return _own_init(content)
    if kind is Power:  # exponents are texts, and those of zero are left out
        return Power(**content)
    if is_dataclass(kind):
        cls: Any = kind
        hints = _hints(cls)
        if hints.keys() - _LATER != content.keys() - _LATER:
            raise ValueError(f"expected {name} to have the fields {', '.join(sorted(hints))}")
        return cls(**{field: _value(hints[field], content[field], field) for field in content})
    if get_origin(kind) is UnionType:
        return None if content is None else _value(parts[0], content, name)
    if get_origin(kind) is Mapping:
        return {key: _value(parts[1], item, name) for key, item in content.items()}
    if get_origin(kind) is tuple:
        if type(content) is not list:
            raise ValueError(f"expected {name} to be a list; got {content!r}")
        kinds = parts[:1] * len(content) if parts[-1] is ... else parts
        return tuple(_value(k, item, name) for k, item in zip(kinds, content, strict=True))
    if issubclass(kind, Enum):
        return kind(content)
    if kind is float:
        number = isinstance(content, int | float) and not isinstance(content, bool)
        if not (number and math.isfinite(content)):
            raise ValueError(f"expected {name} to be a finite number; got {content!r}")
    elif type(content) is not kind:
        raise ValueError(f"expected {name} to be of {kind.__name__}; got {content!r}")
    return content


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _own_init(content: Any) -> OwnInit | None:
    """A name, a power (an object of exponents), or either per pattern."""
    if content is None or isinstance(content, str):
        return content
    if all(isinstance(value, str) and value not in LAWS for value in content.values()):
        return Power(**content)
    return {k: v if isinstance(v, str) else Power(**v) for k, v in content.items()}
