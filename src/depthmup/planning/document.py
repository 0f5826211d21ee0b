"""A plan as JSON: exact exponents, a version, and a checksum."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from depthmup.planning.content import PlanContent
from depthmup.planning.depth import StreamDepth
from depthmup.planning.experts import MixtureGrowth
from depthmup.planning.measured import Measured
from depthmup.planning.own_init import OwnInit, OwnLaw
from depthmup.planning.prescribe import Multiplier, Prescription
from depthmup.planning.sites import Where
from depthmup.rules import Family, Kind, Laws, Part, Power, Ratios, Role
from depthmup.tracing import Hook

VERSION = 1

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
            f"This plan has format version {version}, and this release reads version {VERSION}. "
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
    """The fields of the plan in a file; a large one is not even read.

    Raises:
        PlanDocumentError: the file holds no plan of this version.
    """
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
    names = {f.name for f in fields(PlanContent)}
    if content.keys() != names:
        raise ValueError(f"expected the fields {', '.join(sorted(names))}")
    values = _values(content)
    _check_types(PlanContent, values)
    hooks = [hook for part in values["multipliers"] for hook in part.hooks]
    measured = (*values["base_init"].values(), *values["own_laws"].values())
    for part in (*values["prescriptions"], *values["multipliers"], *hooks, *measured):
        _check_types(type(part), {f.name: getattr(part, f.name) for f in fields(part)})
    return values


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


def _check_types(kind: type, values: Mapping[str, Any]) -> None:
    """Refuse plain fields of another type: a factor that is a text fails when it is used."""
    hints = {f.name: f.type for f in fields(kind)}
    for name, value in values.items():
        expected = hints[name]
        if is_dataclass(expected):
            parts = {f.name: getattr(value, f.name) for f in fields(value)}
            _check_types(type(value), parts)
        elif expected is float or (expected == (float | None) and value is not None):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and math.isfinite(value)):
                raise ValueError(f"expected {name} to be a finite number; got {value!r}")
        elif expected in (str, bool, int) and not isinstance(value, expected):
            raise ValueError(f"expected {name} to be {expected}; got {value!r}")
        elif expected in _TUPLES and not all(type(item) is _TUPLES[expected] for item in value):
            raise ValueError(
                f"expected {name} to be of {_TUPLES[expected].__name__}; got {value!r}"
            )


_TUPLES: dict[Any, type] = {tuple[str, ...]: str, tuple[int, ...]: int}


def _values(content: dict[str, Any]) -> dict[str, Any]:
    return {
        **content,
        "family": Family(content["family"]),
        "prescriptions": tuple(map(_prescription, content["prescriptions"])),
        "multipliers": tuple(map(_multiplier, content["multipliers"])),
        "notes": tuple(content["notes"]),
        "own_init": _own_init(content["own_init"]),
        **{
            field: {k: Measured(**v) for k, v in content[field].items()}
            for field in ("base_init", "base_default", "model_init")
        },
        "depths": tuple(StreamDepth(**d) for d in content["depths"]),
        "mixtures": tuple(MixtureGrowth(**m) for m in content["mixtures"]),
        "own_laws": {k: OwnLaw(**v) for k, v in content["own_laws"].items()},
    }


def _prescription(content: dict[str, Any]) -> Prescription:
    role = content["role"]
    part = role["part"]
    return Prescription(
        **{
            **content,
            "names": tuple(content["names"]),
            "shape": tuple(content["shape"]),
            "base_shape": tuple(content["base_shape"]),
            "branches": tuple(content["branches"]),
            "role": Role(
                **{**role, "kind": Kind(role["kind"]), "part": None if part is None else Part(part)}
            ),
            "ratios": Ratios(**content["ratios"]),
            "family": Family(content["family"]),
            "laws": Laws(**{k: Power(**v) for k, v in content["laws"].items()}),
        }
    )


def _multiplier(content: dict[str, Any]) -> Multiplier:
    return Multiplier(
        **{
            **content,
            "where": Where(content["where"]),
            "law": Power(**content["law"]),
            "folds": tuple(content["folds"]),
            "hooks": tuple(
                Hook(**{**hook, "part": tuple(map(tuple, hook["part"]))})
                for hook in content["hooks"]
            ),
        }
    )


def _own_init(content: Any) -> OwnInit | None:
    """A name, a power (an object of exponents), or either per pattern."""
    if content is None or isinstance(content, str):
        return content
    powers = {f.name for f in fields(Power)}
    if set(content) <= powers:
        return Power(**content)
    return {k: v if isinstance(v, str) else Power(**v) for k, v in content.items()}
