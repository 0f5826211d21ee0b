"""The single rules of a scheme that a plan has: those by which a factor of it is not 1."""

from dataclasses import fields, replace

from depthmup.planning.content import PlanContent
from depthmup.planning.prescribe import GROUPS
from depthmup.rules import Family, Laws, RunLaws, Scheme, scheme


def factors_of(plan: PlanContent) -> tuple[str, ...]:
    """The rules without which a plan would be another one, by their names.

    Args:
        plan: of a model that is larger than its base.

    Returns:
        Names as of ``Scheme.factors``: each acts on a parameter or a multiplier of the model.

    Example:
        >>> import torch, depthmup
        >>> from torch import nn
        >>> def make(width):
        ...     return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))
        >>> plan = depthmup.plan(make(64), base=make(16), scheme="mup", optimizer="sgd",
        ...                      example_inputs=torch.randn(8, 4))
        >>> tuple(name for name in factors_of(plan) if not name.endswith("decay"))
        ('input.lr', 'readout.start', 'readout.lr', 'vector.lr', 'readout.multiplier')

    *Source:* the scheme's own laws.
    """
    whole = scheme(plan.scheme)
    return tuple(name for name in whole.factors if _acts(plan, whole, name))


def _acts(plan: PlanContent, whole: Scheme, name: str) -> bool:
    """Whether leaving a rule out changes a factor of the plan."""
    less = replace(whole, name="", left_out=whole.left_out | {name})
    if any(GROUPS.get(site.where) == name for site in plan.multipliers):
        return True
    run = [one.run_laws(whole.run) for one in (whole, less)]
    if any(getattr(run[0], f.name) != getattr(run[1], f.name) for f in fields(RunLaws)):
        return True
    return any(
        getattr(whole.laws(p.role, p.family), law.name).at(p.ratios)
        != getattr(less.laws(p.role, p.family), law.name).at(p.ratios)
        for p in plan.prescriptions
        for law in fields(Laws)
        if law.name != "epsilon" or p.family is not Family.RAW  # which has none
    )
