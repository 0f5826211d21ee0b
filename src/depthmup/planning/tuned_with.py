"""Plans for one optimizer whose learning rate was tuned with another.

The rate is right at the base: there each parameter takes steps of the same size under both, and
from there the plan's own factors lead to the model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from depthmup.planning.content import PlanContent
from depthmup.planning.measured import Measured
from depthmup.planning.prescribe import Prescription, served_by
from depthmup.rules import Family, named, step_size


def tuned_with(
    prescriptions: Sequence[Prescription],
    given: str,
    wanted: str,
    base_init: Mapping[str, Measured],
) -> tuple[Prescription, ...]:
    """Prescriptions whose rates are multiples of the given optimizer's, at the base."""
    return tuple(_converted(p, given, wanted, base_init.get(p.base_name)) for p in prescriptions)


def rate_of_matrices(plan: PlanContent, p: Prescription) -> bool:
    """Whether a parameter takes the rate of an optimizer that trains matrices only."""
    trained = named(plan.tuned_with)[1] if plan.tuned_with else plan.family
    return served_by(trained, p).matrices_only


def rates_apart(plan: PlanContent) -> bool:
    """Whether one optimizer takes rates of two: those of matrices, and AdamW's for the rest."""
    tuned = bool(plan.tuned_with) and named(plan.tuned_with)[1].matrices_only
    return tuned and not plan.family.matrices_only


def _converted(p: Prescription, given: str, wanted: str, start: Measured | None) -> Prescription:
    before, after = _trained_by(p, given), _trained_by(p, wanted)
    if before == after:
        return p
    norm = None
    if Family.SPHERE in (named(before)[1], named(after)[1]):
        if start is None or not start.rms:
            state = "has no values (meta)" if start is None else "starts at zero"
            raise ValueError(
                f"A step of {given} or {wanted} has the norm of the weight, and {p.base_name} of "
                f"the base {state}. Build a base with values other than zero, or tune the rate of "
                f"{wanted} by itself."
            )
        norm = start.rms * math.sqrt(math.prod(p.base_shape))
    size = tuple(p.base_shape) or (1,)
    factor = step_size(before, size, norm=norm) / step_size(after, size, norm=norm)
    return replace(p, lr=p.lr * factor, decay=p.decay / factor, converted=factor)


def _trained_by(p: Prescription, optimizer: str) -> str:
    """The optimizer that trains a parameter: AdamW beside one of matrices."""
    family = named(optimizer)[1]
    return "adamw" if family.matrices_only and not served_by(family, p).matrices_only else optimizer
