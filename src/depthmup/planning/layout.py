"""Layout: the groups of all optimizers that train a model, compared with its plan as a whole."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import nn

from depthmup.planning.adapters import planned_parameters
from depthmup.planning.content import PlanContent
from depthmup.planning.prescribe import Prescription
from depthmup.planning.settings import (
    LR_FACTOR,
    LR_ORIGIN,
    SETTINGS,
    base_key,
    factor,
    plain,
)
from depthmup.planning.tuned_with import rate_of_matrices, rates_apart
from depthmup.rules import Family, Kind

TOLERANCE = 1e-3
"""Relative difference of two ratios that counts: schedules compute in single precision at worst."""

_EXACT = 1e-6
"""Relative difference of values that were set to be equal, or computed by one formula."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One setting of one group: what the plan makes of the base's value.

    ``base`` is None where the group does not hold it: in groups that the plan did not make.
    ``alike`` is equal for groups whose values keep the plan's ratios under every schedule.
    """

    key: str
    group: Mapping[str, Any]
    name: str
    factor: float
    base: float | None
    family: Family
    alike: Hashable
    optimizer: int

    @property
    def value(self) -> float:
        """The value as it is now."""
        return float(self.group[self.key])

    @property
    def planned(self) -> float:
        """The value before any schedule; the factor alone where the base's is not known."""
        return self.factor * (1.0 if self.base is None else self.base)


# A parameter of the plan, its group, and the number of its optimizer.
Place: TypeAlias = tuple[Prescription, dict[str, Any], int]


def places(plan: PlanContent, model: nn.Module, optimizers: Sequence[Any]) -> list[Place]:
    """Every parameter of the plan where an optimizer trains it."""
    prescribed = {p.name: p for p in plan.prescriptions}
    names = {id(p): name for name, p in planned_parameters(plan, model).items()}
    return [
        (prescribed[name], group, number)
        for number, one in enumerate(optimizers)
        for group in one.param_groups
        for tensor in group["params"]
        if (name := names.get(id(tensor), "")) in prescribed
    ]


def settings(
    plan: PlanContent, placed: Sequence[Place], *, independent_decay: bool
) -> list[Setting]:
    """The settings of all groups that train parameters of the plan."""
    apart = rates_apart(plan)
    first: dict[int, Place] = {}
    for place in placed:
        first.setdefault(id(place[1]), place)
    return [
        Setting(
            key=key,
            group=group,
            name=p.name,
            factor=factor(p, key, independent_decay=independent_decay),
            base=_base(group, key),
            family=p.family,
            alike=(
                number,
                group.get(LR_ORIGIN),
                # Where the rate is Muon's and AdamW's, their groups share no base values.
                apart and rate_of_matrices(plan, p),
                p.family,
                key == "weight_decay" and p.role.kind is Kind.VECTOR,
            ),
            optimizer=number,
        )
        for p, group, number in first.values()
        for key in SETTINGS
        if _scaled(p, group, key)
    ]


def _scaled(p: Prescription, group: Mapping[str, Any], key: str) -> bool:
    value = group.get(key)
    if value is None or isinstance(value, tuple | list):
        return False
    # Muon's epsilon guards a division by a norm: muon_groups leaves it alone.
    return key != "eps" or not (p.family is Family.RAW or p.family.matrices_only)


def _base(group: Mapping[str, Any], key: str) -> float | None:
    base = group.get(base_key(key)) if LR_FACTOR in group else None
    return None if base is None or isinstance(base, tuple | list) else float(base)


def of_parameters(
    plan: PlanContent,
    model: nn.Module,
    placed: Sequence[Place],
    *,
    independent_decay: bool,
    strict: bool,
) -> Iterator[str]:
    """Parameters in no group or in two, and groups without the plan's factor."""
    present = planned_parameters(plan, model)
    counts = Counter(p.name for p, _, _ in placed)
    missing = [
        p.name
        for p in plan.prescriptions
        if (strict or p.name in present)
        and not counts[p.name]
        and (p.name not in present or present[p.name].requires_grad)
    ]
    if missing:
        yield (
            f"{missing[0]}{f' and {len(missing) - 1} others' if missing[1:] else ''} of the plan "
            "are in no group. Pass all optimizers, and the model as it is now: wrapping or "
            "sharding after the optimizer was built gives it other parameters."
        )
    if twice := next((name for name, count in counts.items() if count > 1), None):
        yield f"{twice} is in several groups, and would be stepped several times."
    members: defaultdict[int, list[Place]] = defaultdict(list)
    for place in placed:
        members[id(place[1])].append(place)
    for those in members.values():
        if problem := _of_group(those, independent_decay):
            yield problem
            return


def _of_group(members: Sequence[Place], independent_decay: bool) -> str:
    """What is wrong with one group by itself."""
    (p, group, _), *others = members
    for key in SETTINGS:
        if not _scaled(p, group, key) or not plain(group[key]):
            continue
        of_first = factor(p, key, independent_decay=independent_decay)
        for other, _, _ in others:
            of_other = factor(other, key, independent_decay=independent_decay)
            if _scaled(other, group, key) and not math.isclose(of_first, of_other, rel_tol=1e-9):
                return (
                    f"{p.name} and {other.name} are in one group, and the plan has factors of "
                    f"{of_first:.4g} and {of_other:.4g} on its {key}. Take the groups from "
                    "plan.param_groups, or split them by plan.rescale(model, optimizer), which "
                    "leaves groups alone that it has rescaled before."
                )
    held = group.get(LR_FACTOR)
    if held is not None and not math.isclose(held, p.lr, rel_tol=1e-9):
        return (
            f"the group of {p.name} has the factor {held:.4g} on its learning rate, and the plan "
            f"{p.lr:.4g}: groups changed places, or they are those of another plan. Load a "
            "checkpoint into groups that were made in the same order."
        )
    return ""


def of_ratios(found: Sequence[Setting]) -> Iterator[str]:
    """Values of groups that no schedule makes of the plan's, one problem for each setting."""
    for key in SETTINGS:
        # A rate of zero freezes a group, or warms it up from there.
        rows = [s for s in found if s.key == key and s.value != 0.0]
        if _proportional(rows):
            continue
        looks = (_ratio_lost, _unmarked, _one_value, _reordered, _floor)
        if problem := next((problem for look in looks if (problem := look(rows))), ""):
            yield f"{problem} {_ADVICE[key]}"


def _proportional(rows: Sequence[Setting]) -> bool:
    """Whether all groups are what one schedule makes of the plan: then nothing else is asked."""
    if not rows or any(row.base is None for row in rows):
        return not rows
    shares = [row.value / row.planned for row in rows]
    return max(shares) - min(shares) <= TOLERANCE * max(map(abs, shares))


def _ratio_lost(rows: Sequence[Setting]) -> str:
    """Groups of one origin whose values divided by their factors differ."""
    bases: dict[Hashable, tuple[float, Setting]] = {}
    for row in rows:
        share = row.value / row.planned
        before, first = bases.setdefault((row.alike, row.base is None), (share, row))
        if not math.isclose(share, before, rel_tol=TOLERANCE):
            return (
                f"the {_WORDS[row.key]} do not have the plan's ratios: expected {first.name} : "
                f"{row.name} = 1 : {row.factor / first.factor:.4g}; they are {first.value:.4g} and "
                f"{row.value:.4g}."
            )
    return ""


def _unmarked(rows: Sequence[Setting]) -> str:
    """Groups that hold no factor, and do not show by their ratios that they have it."""
    if rows and rows[0].key != "lr":  # optimizers have epsilons and decays that nobody set
        return ""
    unknown = [row for row in rows if row.base is None and LR_FACTOR not in row.group]
    for row in unknown:
        others = [other for other in rows if other.family is row.family]
        shown = any(
            not math.isclose(other.factor, row.factor, rel_tol=TOLERANCE)
            and math.isclose(other.value / other.factor, row.value / row.factor, rel_tol=TOLERANCE)
            for other in others
        )
        if not shown and not math.isclose(row.factor, 1.0, rel_tol=TOLERANCE):
            return (
                f"{row.name} is in a group without the plan's factor, {row.factor:.4g} on its "
                f"learning rate (it is {row.value:.4g}). Take the groups from plan.param_groups, "
                "or call plan.rescale(model, optimizer) for every optimizer, and after adding "
                "a group."
            )
    return ""


def _one_value(rows: Sequence[Setting]) -> str:
    """Groups whose planned values differ, and which have come to one value.

    Groups of one origin that keep their ratios show that the plan is intact there: a value that is
    also another group's is chance. Two of many groups may meet by chance as well.
    """
    factors: defaultdict[Hashable, set[float]] = defaultdict(set)
    for row in rows:
        factors[row.alike].add(row.factor)
    alone = [row for row in rows if row.base is not None and len(factors[row.alike]) == 1]
    same: defaultdict[float, list[Setting]] = defaultdict(list)
    for row in alone:
        same[float(f"{row.value:.6g}")].append(row)
    for meeting in same.values():
        first, last = (of(meeting, key=lambda row: row.planned) for of in (min, max))
        differ = not math.isclose(first.planned, last.planned, rel_tol=TOLERANCE)
        if differ and (len(meeting) > 2 or len(meeting) == len(alone)):
            return (
                f"the {_WORDS[first.key]} of {first.name} and {last.name} have come to one value, "
                f"{first.value:.4g}; the plan has {first.planned:.4g} and {last.planned:.4g}, "
                "times whatever a schedule multiplies them by. If that is meant, say so in the "
                f"groups: {base_key(first.key)} is the value at the base."
            )
    return ""


def _reordered(rows: Sequence[Setting]) -> str:
    """The planned values, times one number, in the places of each other."""
    known = [row for row in rows if row.base is not None and row.planned]
    by_optimizer = Counter(row.optimizer for row in known)
    for of in (None, *by_optimizer):
        some = known if of is None else [row for row in known if row.optimizer == of]
        if len(some) < 2:
            continue
        values, planned = sorted(r.value for r in some), sorted(r.planned for r in some)
        share = values[0] / planned[0]
        together = all(
            math.isclose(v, share * p, rel_tol=_EXACT) for v, p in zip(values, planned, strict=True)
        )
        moved = [r for r in some if not math.isclose(r.value, share * r.planned, rel_tol=TOLERANCE)]
        if together and moved:
            return (
                f"the {_WORDS[moved[0].key]} have changed places: {moved[0].name} has "
                f"{moved[0].value:.4g}, which the plan has for another group (its own would be "
                f"{share * moved[0].planned:.4g})."
            )
    return ""


def _floor(rows: Sequence[Setting]) -> str:
    """An absolute floor or start: all values are one line of the planned ones, with an offset."""
    known = sorted((row for row in rows if row.base is not None), key=lambda row: row.planned)
    distinct = {float(f"{row.planned:.6g}") for row in known}
    if len(distinct) < 3 or known[0].key != "lr":
        return ""
    low, high = known[0], known[-1]
    slope = (high.value - low.value) / (high.planned - low.planned)
    offset = low.value - slope * low.planned
    on_line = all(
        math.isclose(row.value, offset + slope * row.planned, rel_tol=_EXACT) for row in known
    )
    if on_line and slope > 0 and abs(offset) > TOLERANCE * abs(low.value):
        return (
            f"the learning rates are {offset:.4g} plus a multiple of the planned ones, the same "
            f"for all: {low.name} has {low.value:.4g}, and would have {slope * low.planned:.4g}."
        )
    return ""


_WORDS = {"lr": "learning rates", "weight_decay": "weight decays", "eps": "epsilons"}

_ADVICE = {
    "lr": (
        "A schedule that sets absolute rates erases the factors: give OneCycleLR and CyclicLR a "
        "list of one max_lr per group, give floors (eta_min, min_lr) as a fraction, and multiply "
        "in a loop of your own: group['lr'] = rate * group['lr_factor']. Where a group is meant to "
        "have a schedule of its own, give it a name: group['lr_origin'] = 'embedding'."
    ),
    "weight_decay": (
        "Pass the base's weight_decay to plan.param_groups, or let plan.rescale split the groups. "
        "Groups that were made with independent_decay=True are verified with it."
    ),
    "eps": "Pass the base's eps to plan.param_groups, or let plan.rescale split the groups.",
}
"""What to do where a setting has lost the plan's ratios."""
