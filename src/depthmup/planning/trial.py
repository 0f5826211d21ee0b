"""Trial: does an optimizer, as measured, do what a plan assumes of it?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from depthmup.planning.content import PlanContent
from depthmup.planning.growth import NEAR, differing, spread, two_digits
from depthmup.planning.growth import expected as exponents_of
from depthmup.planning.layout import Place
from depthmup.planning.prescribe import Prescription
from depthmup.planning.probe import Probe, probe
from depthmup.planning.twins import RATE, Unmeasured
from depthmup.rules import Family
from depthmup.rules.optimizers import no_rule


@dataclass(frozen=True, kw_only=True, slots=True)
class Objection:
    """Why an optimizer does not follow a plan; the error of its own that is the cause, if any."""

    text: str
    cause: Exception | None = None


def of_optimizers(
    plan: PlanContent,
    placed: Sequence[Place],
    optimizers: Sequence[Any],
    *,
    independent_decay: bool,
) -> Objection | None:
    """What each optimizer does to small parameters, compared with the plan: the first objection."""
    seen = set()
    for p, group, number in placed:
        one = optimizers[number]
        dimensions = max(len(p.shape), 1)
        key = (id(group), dimensions, p.family, p.role.kind)
        if key in seen:
            continue
        seen.add(key)
        if (reason := no_rule(type(one))) and plan.optimizer not in {*Family}:
            return Objection(text=reason)
        try:
            measured = probe(one, group, dimensions=dimensions)
        except Unmeasured as error:
            return Objection(
                text=f"{str(error).rstrip('.')}. What it does is not known: use another one, or "
                f"pass trust=True to believe that it is what the plan is for ({plan.optimizer}).",
                cause=error.__cause__ if isinstance(error.__cause__, Exception) else error,
            )
        if problem := _contradiction(plan, p, measured, group, dimensions, independent_decay):
            return Objection(
                text=f"The plan, for {plan.optimizer}, has {p.name} trained by an optimizer of the "
                f"family {p.family}; here it is in a group of {_words(one, measured)}: {problem}"
            )
    return None


def _words(optimizer: Any, measured: Probe) -> str:
    family = "no family" if measured.family is None else f"{measured.family}"
    return f"{type(optimizer).__name__.lower()}, {family}"


def _contradiction(
    plan: PlanContent,
    p: Prescription,
    measured: Probe,
    group: Mapping[str, Any],
    dimensions: int,
    independent_decay: bool,
) -> str:
    """What was measured and does not agree, with the number that was expected."""
    wanted, flat = exponents_of(p.family, p.role.kind, dimensions)
    exponents = {key: getattr(measured, key) for key in wanted}
    unlike = [*differing(exponents, wanted)]
    if flat is not None and flat != measured.orthogonal:
        unlike.append(spread(measured.flatness, flat))
    if unlike:
        said, value = unlike[0]
        return (
            f"{said}, and the plan assumes {value}. Plan with that optimizer, or put the parameter "
            "into the other one. depthmup.family_of(optimizer) measures which family it is of."
        )
    moved = (plan.one_minus_beta, plan.log_beta2) != (1.0, 1.0)
    if moved and group.get("betas") is not None and not measured.betas:
        return (
            "its updates are the same whatever betas its groups hold, and the plan moves betas at "
            "this batch size and duration. Use an optimizer that reads them."
        )
    others = [key for key, value in group.items() if "decay" in key and value and key not in _READ]
    held = f" They hold {' and '.join(others)} as well." if others else ""
    if measured.ignored:
        return (
            f"{measured.ignored}. Use another optimizer, or settings of its groups with which it "
            f"does not.{held}"
        )
    return _of_decay(measured, independent_decay, held) if group.get("weight_decay") else ""


_READ = ("weight_decay", "weight_decay_base", "decoupled_weight_decay")
"""Keys of decay that are accounted for."""


_NOTHING = 10 * RATE
"""Of lr * weight_decay, that a step removes: decay by lr**2 removes a tenth of it from a twin."""

# What the part that decay removes of a weight must not depend on.
_STAYS = {"decay_in_size": "fan_in", "decay_in_weight": "weight", "decay_in_gradient": "gradient"}


def _of_decay(measured: Probe, independent: bool, held: str) -> str:
    if math.isnan(measured.decay):
        return (
            "without a gradient its steps are not finite, so what its weight decay removes could "
            "not be measured. Use weight_decay=0, or pass trust=True if it subtracts "
            "lr * weight_decay * w."
        )
    beside = measured.decay_beside * (measured.decay or 1.0)
    if max(abs(measured.decay), abs(beside)) <= _NOTHING:
        return (
            f"its weight decay removes {beside:.2g} lr * weight_decay of a weight in a step, and "
            "the plan assumes 1. Use weight_decay=0, or an optimizer that decays by it."
        )
    if not abs(measured.decay_in_decay - 1) <= NEAR:
        follows = f"follows weight_decay^{two_digits(measured.decay_in_decay)}"
        if abs(measured.decay_in_weight) <= NEAR:  # a part of the weight, whatever weight_decay is
            return (
                f"what its weight decay removes of a weight {follows}, and the plan assumes 1. Use "
                f"weight_decay=0, or an optimizer that subtracts lr * weight_decay * w.{held}"
            )
        return (
            f"its weight decay is not decoupled: what it removes {follows} without a gradient, and "
            f"beside one it removes {two_digits(measured.decay_beside)} of that, where the plan "
            "assumes 1 and 1. Decay that is normalized with the gradient cannot be made to "
            "transfer (Tensor Programs V, Appendix B.3). Use AdamW, another optimizer with "
            "decoupled decay, or weight_decay=0."
        )
    if not abs(measured.decay_beside - 1) <= NEAR:
        return (
            "what its weight decay removes depends on the gradient: beside one it removes "
            f"{two_digits(measured.decay_beside)} of what it removes without one, and the plan "
            "assumes 1. Use AdamW, another optimizer with decoupled decay, or weight_decay=0."
        )
    wanted = 0.0 if independent else 1.0
    if not abs(measured.decay_in_rate - wanted) <= NEAR:
        other = abs(measured.decay_in_rate - (1.0 - wanted)) <= NEAR
        return (
            f"what its weight decay removes follows lr^{two_digits(measured.decay_in_rate)}, and "
            f"the plan assumes lr^{wanted:g}. "
            + (
                f"Pass independent_decay={not independent}."
                if other
                else "Use an optimizer that subtracts lr * weight_decay * w, or weight_decay=0."
            )
        )
    for of, name in _STAYS.items():
        if not abs(value := getattr(measured, of)) <= NEAR:
            return (
                f"the part that its weight decay removes follows {name}^{two_digits(value)}, and "
                "the plan assumes 0. Use another optimizer, or weight_decay=0."
            )
    return ""
