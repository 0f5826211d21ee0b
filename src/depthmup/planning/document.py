"""A plan as JSON: exact exponents, a version, and a checksum."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from depthmup.planning.depth_ratios import StreamDepth
from depthmup.planning.own_init import Measured, OwnInit, OwnLaw
from depthmup.planning.prescription import Multiplier, Prescription
from depthmup.planning.sites import Where
from depthmup.rules import Family, Kind, Laws, Power, Ratios, Role
from depthmup.tracing import Hook

if TYPE_CHECKING:
    from depthmup.planning.plan import Plan

VERSION = 1


class PlanDocumentError(ValueError):
    """A text that is no plan, is of another version, or was changed."""


def dumps(plan: "Plan") -> str:
    """The plan as JSON text."""
    content = _plain(plan)
    return json.dumps(
        {"depthmup_plan": VERSION, "sha256": _checksum(content), "plan": content}, indent=1
    )


def loads(text: str) -> dict[str, Any]:
    """The fields of the plan that ``dumps`` wrote.

    Raises:
        PlanDocumentError: no plan, another version, or changed since it was written.
    """
    try:
        document = json.loads(text)
        version, checksum, content = (document[key] for key in ("depthmup_plan", "sha256", "plan"))
    except (ValueError, KeyError, TypeError):
        raise PlanDocumentError(
            "Expected JSON written by plan.save; got something else. Make the plan again."
        ) from None
    if version != VERSION:
        raise PlanDocumentError(
            f"This plan has format version {version}, and this release reads version {VERSION}. "
            "Make the plan again from the model and its base."
        )
    if checksum != _checksum(content):
        raise PlanDocumentError(
            "The plan was changed after it was saved: its checksum does not match its content. "
            "Make the plan again; to prescribe other numbers, define a scheme."
        )
    return _fields(content)


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


def _fields(content: dict[str, Any]) -> dict[str, Any]:
    return {
        **content,
        "family": Family(content["family"]),
        "prescriptions": tuple(map(_prescription, content["prescriptions"])),
        "multipliers": tuple(map(_multiplier, content["multipliers"])),
        "notes": tuple(content["notes"]),
        "own_init": _own_init(content["own_init"]),
        "base_init": {k: Measured(**v) for k, v in content["base_init"].items()},
        "depths": tuple(StreamDepth(**d) for d in content.get("depths", ())),
        "own_laws": {k: OwnLaw(**v) for k, v in content["own_laws"].items()},
    }


def _prescription(content: dict[str, Any]) -> Prescription:
    role = content["role"]
    return Prescription(
        **{
            **content,
            "names": tuple(content["names"]),
            "shape": tuple(content["shape"]),
            "base_shape": tuple(content["base_shape"]),
            "branches": tuple(content["branches"]),
            "role": Role(**{**role, "kind": Kind(role["kind"])}),
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
                Hook(**{**hook, "part": tuple(map(tuple, hook.get("part", ())))})
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
