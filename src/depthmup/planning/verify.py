"""Verify: is a plan really what an optimizer trains by, now and after its schedule has begun?

Schedules are written for groups of one rate: some set an absolute rate in every group
(``OneCycleLR(max_lr=x)``, loops with ``group["lr"] = x``), some have an absolute floor
(``eta_min``), some read ``optimizer.defaults["lr"]``. Each erases the plan's ratios in silence.
"""

import copy
import inspect
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from depthmup.planning import hooks
from depthmup.planning.adapters import planned_parameters
from depthmup.planning.content import PlanContent
from depthmup.planning.initialize import PlanMismatch, initialized
from depthmup.planning.prescribe import Prescription
from depthmup.planning.rescale import LR_ORIGIN
from depthmup.planning.settings import factor
from depthmup.planning.tuned_with import rate_of_matrices, rates_apart
from depthmup.rules import Family, Kind

Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]

TOLERANCE = 1e-3
"""Relative difference of two ratios that counts: schedules compute in single precision at worst."""

LOOKS = (1, 2, 10, 100, 1000)
"""Optimizer steps before which ``watch`` looks: warm-ups end, floors and restarts begin."""


# One parameter in one group of an optimizer, and a key of the groups that share its base values.
_Entry: TypeAlias = tuple[Prescription, dict[str, Any], tuple[object, ...]]


def verify(
    plan: PlanContent,
    model: nn.Module,
    optimizer: Optimizers,
    *,
    scheduler: LRScheduler | None = None,
    steps: int = 0,
    initialized_by_plan: bool = True,
    independent_decay: bool = False,
    strict: bool = True,
) -> None:
    """Refuse an optimizer, schedule or model that does not follow the plan: ``Plan.verify``."""
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
    entries = list(_entries(plan, model, optimizers))
    problems = [
        *_of_parameters(plan, model, entries, strict),
        *_of_ratios(entries, independent_decay),
        *(p for one in optimizers for p in _of_defaults(plan, one, independent_decay)),
        *_of_model(plan, model, initialized_by_plan, strict),
    ]
    if scheduler is not None and not problems:
        problems += _of_schedule(plan, model, scheduler, steps, independent_decay)
    _refuse(problems)


def watch(
    plan: PlanContent,
    model: nn.Module,
    optimizer: Optimizers,
    *,
    at: Iterable[int] = LOOKS,
    independent_decay: bool = False,
    strict: bool = True,
) -> list[Any]:
    """Verify now, and the ratios again while the optimizer steps: ``Plan.watch``."""
    verify(
        plan,
        model,
        optimizer,
        initialized_by_plan=False,
        independent_decay=independent_decay,
        strict=strict,
    )
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
    steps = frozenset(at)

    def watched(one: torch.optim.Optimizer) -> Any:
        done = 0

        def verify_ratios(stepping: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            nonlocal done
            done += 1
            if done in steps:
                problems = _of_ratios([*_entries(plan, model, [one])], independent_decay)
                _refuse([f"before step {done}: {problem}" for problem in problems])

        return one.register_step_pre_hook(verify_ratios)

    return [watched(one) for one in optimizers]


def _entries(
    plan: PlanContent, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> Iterator[_Entry]:
    prescribed = {p.name: p for p in plan.prescriptions}
    names = {id(p): name for name, p in planned_parameters(plan, model).items()}
    for number, one in enumerate(optimizers):
        for group in one.param_groups:
            for tensor in group["params"]:
                p = prescribed.get(names.get(id(tensor), ""))
                if p is not None:
                    # Where the rate is Muon's and AdamW's, their groups share no base values.
                    rate = rates_apart(plan) and rate_of_matrices(plan, p)
                    yield p, group, (number, group.get(LR_ORIGIN), rate)


def _of_parameters(
    plan: PlanContent, model: nn.Module, entries: Sequence[_Entry], strict: bool
) -> Iterator[str]:
    present = planned_parameters(plan, model)
    counts = Counter(p.name for p, _, _ in entries)
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


def _of_ratios(entries: Sequence[_Entry], independent_decay: bool) -> Iterator[str]:
    """Values divided by the plan's factors, which must agree where groups share base values."""
    bases: dict[tuple[object, ...], tuple[float, str]] = {}
    told: set[str] = set()
    for p, group, shared in entries:
        for name in _RATIO_LOST:
            value = group.get(name)
            if value is None or isinstance(value, tuple | list) or name in told:
                continue
            # Muon's epsilon guards a division by a norm: muon_groups leaves it alone.
            if name == "eps" and (p.family is Family.RAW or p.family.matrices_only):
                continue
            key: tuple[object, ...] = (*shared, name, p.family)
            if name == "weight_decay":
                key = (*key, p.role.kind is Kind.VECTOR)
            base = float(value) / factor(p, name, independent_decay=independent_decay)
            before, first = bases.setdefault(key, (base, p.name))
            if not math.isclose(base, before, rel_tol=TOLERANCE, abs_tol=1e-30):
                told.add(name)
                settings, advice = _RATIO_LOST[name]
                yield (
                    f"the {settings} do not have the plan's ratios: divided by their factors, that "
                    f"of {first} is {before:.4g} and that of {p.name} {base:.4g} (it is "
                    f"{float(value):.4g}). {advice}"
                )


_RATIO_LOST = {
    "lr": (
        "learning rates",
        "A schedule that sets absolute rates erases the factors: give OneCycleLR and CyclicLR a "
        "list of one max_lr per group, give floors (eta_min, min_lr) as a fraction, and multiply "
        "in a loop of your own: group['lr'] = rate * group['lr_factor'].",
    ),
    "weight_decay": (
        "weight decays",
        "Pass the base's weight_decay to plan.param_groups, or let plan.rescale split the groups. "
        "Groups that were made with independent_decay=True are verified with it.",
    ),
    "eps": (
        "epsilons",
        "Pass the base's eps to plan.param_groups, or let plan.rescale split the groups.",
    ),
}
"""Settings of groups that have the plan's ratios: in words, and what to do where they have not."""


def _of_defaults(
    plan: PlanContent, optimizer: torch.optim.Optimizer, independent_decay: bool
) -> Iterator[str]:
    """What was given to the optimizer beside groups that have values of their own."""
    usual = inspect.signature(type(optimizer)).parameters
    # Groups that were rescaled had values of their own before: nothing was meant for them.
    groups = [g for g in optimizer.param_groups if "param_names" in g and LR_ORIGIN not in g]
    prescribed = {name: p for p in plan.prescriptions for name in p.names}
    for key in _RATIO_LOST:
        given = optimizer.defaults.get(key)
        default = usual[key].default if key in usual else None
        # Schedules move lr; what they began with is in initial_lr, or (OneCycleLR) in max_lr.
        keys = (key, "initial_lr", "max_lr") if key == "lr" else (key,)
        bases = [
            float(group[at]) / factor(prescribed[name], key, independent_decay=independent_decay)
            for group in groups
            for name in group["param_names"][:1]
            for at in keys
            if name in prescribed and isinstance(group.get(at), float | int)
        ]
        if not bases or not isinstance(given, float | int):
            continue
        if any(math.isclose(base, given, rel_tol=TOLERANCE) for base in bases):
            continue
        if key == "lr":
            yield (
                f"the optimizer's own lr is {given:.4g} and the groups' at the base "
                f"{bases[0]:.4g}: schedules that read optimizer.defaults['lr'] (polynomial decay, "
                "Trainer's min_lr) would follow the wrong one. Pass lr to the optimizer too: "
                "AdamW(plan.param_groups(model, lr=lr), lr=lr)."
            )
        elif given != default:
            yield (
                f"{key}={given:g} was given to the optimizer, which ignores it, as every group has "
                f"its own ({bases[0]:g} at the base). Pass it to plan.param_groups instead."
            )


def _of_model(plan: PlanContent, model: nn.Module, by_plan: bool, strict: bool) -> Iterator[str]:
    wanted = len(hooks.by_hook(plan.multipliers))
    attached = hooks.attached(model)
    if attached != wanted and (strict or attached > wanted):
        yield (
            f"the plan has {wanted} explicit multipliers and the model {attached}. Call "
            "plan.attach(model), after building the model anew too."
        )
    if by_plan and not initialized(model):
        yield (
            "the plan has not initialized this model. Call plan.initialize(model); where weights "
            "come from a checkpoint, plan.attach(model) and verify(initialized_by_plan=False)."
        )


def _of_schedule(
    plan: PlanContent,
    model: nn.Module,
    scheduler: LRScheduler,
    steps: int,
    independent_decay: bool,
) -> Iterator[str]:
    """The same on every step of a copy of the scheduler, on a stand-in for its optimizer."""
    real = scheduler.optimizer
    entries = list(_entries(plan, model, [real]))
    groups = [dict(group) for group in real.param_groups]
    for group in groups:
        group["params"] = [torch.zeros(0)]
    stand_in = torch.optim.SGD(groups, lr=1.0)
    tried = copy.deepcopy(scheduler, {id(real): stand_in})
    # One that reads a loss is given one that stays, so that it lowers the rates.
    step = partial(tried.step, 0.0) if isinstance(tried, ReduceLROnPlateau) else tried.step
    numbers = {id(group): i for i, group in enumerate(real.param_groups)}
    moved = [(p, stand_in.param_groups[numbers[id(group)]], shared) for p, group, shared in entries]
    for number in range(1, steps + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no optimizer steps between
            step()
        problems = [*_of_ratios(moved, independent_decay)]
        if problems:
            yield from (f"after step {number} of the schedule: {p}" for p in problems)
            return


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise PlanMismatch(f"What trains this model is not what the plan prescribes:\n{listed}")
