"""What a plan prescribes for one parameter, or makes of one setting, in words."""

from collections import Counter

from depthmup.planning.content import PlanContent
from depthmup.planning.prescribe import Prescription
from depthmup.planning.show import factors


def explain(plan: PlanContent, name: str) -> str:
    """What is prescribed for a parameter or made of a setting, and why, in words."""
    if name in _FACTOR_OF and all(name not in p.names for p in plan.prescriptions):
        return _of_setting(plan, name)
    p = plan[name]
    growth = (
        f"Its shape is {list(p.shape)} against {list(p.base_shape)} in the base ({p.base_name})."
    )
    position = (
        f"It is in the branch {' inside '.join(reversed(p.branches))}. The model has "
        + (
            "as many branches as the base."
            if p.ratios.depth == 1
            else f"{p.ratios.depth:g} times as many branches as the base."
        )
        if p.role.in_branch
        else "It is in no residual branch, so nothing depends on depth."
    )
    lines = [
        f"{name}: {p.role}.",
        f"{growth} Fan-in grows {p.ratios.fan_in:g}-fold, fan-out {p.ratios.fan_out:g}-fold. "
        f"{position}",
    ]
    if p.role.tied:
        lines.append(f"It is one tied parameter: {', '.join(p.names)}.")
    if p.ratios.experts != 1 or p.ratios.active != 1:
        lines.append(
            f"There are {p.ratios.experts:g} times as many experts as in the base, and "
            f"{p.ratios.active:g} times as many are active. Neither is a fan-in or a fan-out."
        )
    if p.role.shared:
        lines.append("All branches share it, so its gradient is the sum of theirs.")
    for m in plan.multipliers:
        if p.name in m.folds or p.name == m.label or m.label in p.branches:
            how = (
                f"folded into {', '.join(m.folds)}"
                if m.folds
                else f"by {'a hook' if len(m.hooks) == 1 else f'{len(m.hooks)} hooks'}, on "
                + ", ".join(
                    f"{'a part of ' if h.part else ''}{h.module}'s {h.parameter or h.side}"
                    for h in m.hooks
                )
            )
            own = f"; the model itself applies {m.own:.6g} of it" if m.own != 1 else ""
            base = f"{m.base:.6g} times " if m.base != 1 else ""
            where = str(m.where)
            lines.append(
                f"{where[:1].upper()}{where[1:]}: times {m.value:.6g} "
                f"({base}law {m.law}{own}), {how}."
            )
    if p.folded != 1:
        lines.append(
            f"It carries a multiplier A = {p.folded:.6g}: init and step are scaled by A so that it "
            "follows the trajectory of A times the unfolded parameter."
        )
    said = {name: _factor(p, *factor) for name, factor in factors(p).items() if factor}
    own_law = plan.own_laws.get(p.name)
    measured = (
        f"; the model's own is {own_law.law}, corrected by {p.init / own_law.ratio:.6g}"
        if own_law
        else ""
    )
    lines += [
        f"Initial standard deviation: the base's times {said['init']}{measured}.",
        f"Learning rate ({p.family}): times {said['lr']}.",
        f"Weight decay: times {said['decay']}.",
    ]
    if "epsilon" in said:
        lines.append(f"Epsilon: times {said['epsilon']}.")
    lines.append(f"Source: {plan.source}.")
    return "\n".join(lines)


_FACTOR_OF = {"lr": "lr", "weight_decay": "decay", "eps": "epsilon", "betas": "betas"}
"""Settings of groups and the factors on them."""


def _of_setting(plan: PlanContent, name: str) -> str:
    """By what a plan scales a setting of its groups, and where, or that it leaves it alone."""
    source = f"Source: {plan.source}."
    if name == "betas":
        if (plan.one_minus_beta, plan.log_beta2) == (1.0, 1.0):
            return f"betas: left alone.\n{source}"
        moved = (
            f"1 - beta is the base's times {plan.one_minus_beta:.6g}"
            if plan.one_minus_beta != 1.0
            else f"beta2 is the base's to the power {plan.log_beta2:.6g}"
        )
        return f"betas: {moved}.\n{source}"
    told = Counter(
        _factor(p, *factor) for p in plan.prescriptions if (factor := factors(p)[_FACTOR_OF[name]])
    )
    if not told:
        return f"{name}: {plan.optimizer} has none.\n{source}"
    if {*told} == {"1"}:
        return f"{name}: left alone.\n{source}"
    parts = [
        f"the base's times {said} for {count} parameter{'s' * (count != 1)}"
        for said, count in told.most_common()
    ]
    return f"{name}: {'; '.join(parts)}.\n{source}"


def _factor(p: Prescription, value: float, law: str) -> str:
    """A factor with its law, whose letters stand for the ratios and the folded multiplier."""
    if not law:
        return f"{value:.6g}"
    ratios = {
        "m_in": p.ratios.fan_in,
        "m_out": p.ratios.fan_out,
        "r": p.ratios.depth,
        "E": p.ratios.experts,
        "K": p.ratios.active,
        "A": p.folded,
        "c": p.converted,
    }
    letters = {word.partition("^")[0] for word in law.split()}
    where = ", ".join(f"{name} = {ratio:.6g}" for name, ratio in ratios.items() if name in letters)
    return f"{value:.6g} (law {law}{f', {where}' if where else ''})"
