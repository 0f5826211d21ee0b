"""Factors: the single rules that a scheme is made of, each of which can be left out.

A factor is one quantity of one group, such as ``readout.lr``. Left out, the quantity has what
standard practice gives it: its own start, and a factor of 1. A law has a part of width, which is
its kind's (``input``, ``hidden``, ``readout``, ``vector``), and a part of depth, which is the
branches'; what follows batch and duration is the run's.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from depthmup.rules.power import ONE, Power
from depthmup.rules.role import Kind

BRANCH, LOGITS, RUN = "branch", "attention", "run"
"""Groups beside the kinds of parameters."""

_WORDS = MappingProxyType(
    {"start": "start", "multiplier": "multiplier", "lr": "rate", "epsilon": "epsilon",
     "decay": "decay", "averages": "averages"}
)  # fmt: skip

_OF_PARAMETERS = ("start", "lr", "epsilon", "decay")

FACTORS: Mapping[str, str] = MappingProxyType(
    {
        f"{group}.{quantity}": f"{group} {_WORDS[quantity]}"
        for group, quantities in (
            *((kind.value, _OF_PARAMETERS) for kind in Kind),
            (Kind.READOUT.value, ("multiplier",)),
            (BRANCH, ("multiplier", "lr", "epsilon", "decay")),
            (LOGITS, ("multiplier",)),
            (RUN, ("lr", "epsilon", "decay", "averages")),
        )
        for quantity in quantities
    }
)
"""Every factor that a scheme may have, by name, and in words."""

_QUANTITIES = MappingProxyType(
    {"init": "start", "forward": "multiplier", "lr": "lr", "epsilon": "epsilon", "decay": "decay"}
)
"""The quantity of a factor, by the law of a parameter that it is a part of."""


def checked(names: Iterable[str], there: Iterable[str], of: str) -> tuple[str, ...]:
    """Factors by their names, in the order of ``FACTORS``; refused where ``of`` has no such one."""
    there = [name for name in FACTORS if name in set(there)]
    asked = [str(name).strip().lower() for name in names]
    for name in asked:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(
                f"Expected rules of {of}: {', '.join(there) or 'it has none'}; got {name!r}.{meant}"
            )
    return tuple(name for name in there if name in asked)


def laws_without(
    laws: Mapping[str, Power], kind: Kind, left_out: frozenset[str], start: Power
) -> dict[str, Power]:
    """The laws of a parameter of some kind, less the factors that are left out.

    ``start`` is the law of the start in standard practice. A decay that keeps lr * decay goes on
    keeping it: it loses what the rate loses.
    """
    kept = {name: _split(law) for name, law in laws.items()}
    followed = [a == ONE / b for a, b in zip(kept["decay"], kept["lr"], strict=True)]
    for name, quantity in _QUANTITIES.items():
        width, depth = kept[name]
        if f"{kind}.{quantity}" in left_out:
            width = start if name == "init" else ONE
        if f"{BRANCH}.{quantity}" in left_out:
            depth = ONE
        kept[name] = width, depth
    decay = [
        ONE / rate if follows and own != ONE else own
        for rate, own, follows in zip(kept["lr"], kept["decay"], followed, strict=True)
    ]
    kept["decay"] = decay[0], decay[1]
    return {name: width * depth for name, (width, depth) in kept.items()}


def _split(law: Power) -> tuple[Power, Power]:
    """The parts of width and of depth."""
    return replace(law, depth=Fraction(0)), Power(depth=law.depth)
