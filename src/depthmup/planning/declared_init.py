"""A model's own initialization as a person declares it, checked against the values at hand."""

import math
from collections.abc import Mapping, Sequence

from depthmup.planning.measured import FEW, Measured
from depthmup.planning.own_init import (
    SIGMAS,
    OwnInit,
    OwnLaw,
    UnrecognizedInit,
    exact_law,
    fan_in_beside,
)
from depthmup.planning.prescribe import Prescription
from depthmup.rules import Power
from depthmup.tracing import matches, pattern_of


def declared_law(
    p: Prescription, own_init: OwnInit, fan_in: float, constant: bool
) -> OwnLaw | None:
    """The law declared for a parameter, if any; ``fan_in`` is the ratio of its matrix."""
    law: str | Power | None
    if isinstance(own_init, Mapping):
        law = next((law for key, law in own_init.items() if _means(key, p.name)), None)
    else:
        law = own_init
    if law is None:
        return None
    if isinstance(law, Power):
        return OwnLaw(law=str(law), ratio=law.at(p.ratios))
    if law not in ("fixed", "fan_in"):
        raise ValueError(
            f"Expected own_init to be 'fixed' (the same at every size), 'fan_in' (1/sqrt(fan-in), "
            f"as torch's layers) or a depthmup.rules.Power; got {law!r}."
        )
    if law == "fixed" or constant:
        return OwnLaw(law="1", ratio=1.0)
    return OwnLaw(law="m_in^-1/2", ratio=fan_in**-0.5)


def declared(
    prescriptions: Sequence[Prescription],
    own_init: OwnInit | None,
    model: Mapping[str, Measured],
    base: Mapping[str, Measured],
) -> dict[str, OwnLaw]:
    """The laws that the caller declared, by name of parameter."""
    if own_init is None:
        return {}
    _check_patterns(own_init, [p.name for p in prescriptions])
    fans = fan_in_beside(prescriptions)
    result = {}
    for p in prescriptions:
        measured, base_measured = model.get(p.name), base.get(p.base_name)
        constant = measured is not None and measured.constant is not None
        law = declared_law(p, own_init, fans[p.name], constant)
        if law is None:
            continue
        if measured is not None and base_measured is not None:
            # Numbers that are known say it better, unless they are zero, which is so under any law.
            known = measured.exact and base_measured.exact
            if constant and known and measured.constant and base_measured.constant:
                law = exact_law(p, measured, base_measured, ((), ()))
            _check_declared(p, law, measured, base_measured)
        result[p.name] = law
    return result


def _check_declared(p: Prescription, law: OwnLaw, measured: Measured, base: Measured) -> None:
    few = min(measured.count, base.count) < FEW and not (measured.exact and base.exact)
    if few or measured.rms == 0 or base.rms == 0:
        return  # numbers that tell nothing; rescaled or not, zero it is
    error = math.hypot(measured.error, base.error, 1e-3)
    ratio = measured.rms / base.rms
    if abs(math.log(ratio / law.ratio)) > SIGMAS * error:
        raise UnrecognizedInit(
            f"own_init says that {p.name} starts {law.ratio:.4g} times as large as in the base "
            f"({law.law}), but it starts {ratio:.4g} times as large (+- {error:.1%}). Declare what "
            "its code does, or leave it out of own_init to have it measured. If a checkpoint was "
            "loaded, the model needs no initialization: plan.attach(model) is enough."
        )


def _check_patterns(own_init: OwnInit, names: Sequence[str]) -> None:
    """Refuse patterns of ``own_init`` that name no parameter."""
    if not isinstance(own_init, Mapping):
        return
    for pattern in own_init:
        if not any(_means(pattern, name) for name in names):
            raise ValueError(
                f"No parameter matches {pattern!r} of own_init. Patterns are names of parameters "
                "with * for one segment, and '*' alone for all the rest; this model has "
                f"{', '.join(list(dict.fromkeys(map(pattern_of, names)))[:8])}, ..."
            )


def _means(pattern: str, name: str) -> bool:
    return pattern == "*" or matches(pattern, name) is not None
