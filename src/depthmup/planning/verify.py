"""Verify: is a plan really what an optimizer trains by, now and after its schedule has begun?

Schedules are written for groups of one rate: some set an absolute rate in every group
(``OneCycleLR(max_lr=x)``, loops with ``group["lr"] = x``), some have an absolute floor
(``eta_min``), some read ``optimizer.defaults["lr"]``. Each erases the plan's ratios in silence.
"""

import inspect
import math
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from depthmup.planning import hooks
from depthmup.planning.clipped import seen_by
from depthmup.planning.content import PlanContent
from depthmup.planning.initialize import PlanMismatch, initialized
from depthmup.planning.layout import TOLERANCE, of_parameters, of_ratios, places, settings
from depthmup.planning.schedule import of_schedule
from depthmup.planning.settings import LR_ORIGIN, SETTINGS, base_key, factor
from depthmup.planning.several import Optimizers, optimizers_of
from depthmup.planning.trial import of_optimizers
from depthmup.planning.watch import WatchedGroups, hooked, refusal


def verify(
    plan: PlanContent,
    model: nn.Module,
    optimizer: Optimizers,
    *,
    scheduler: LRScheduler | None = None,
    steps: int | None = None,
    initialized_by_plan: bool = True,
    independent_decay: bool = False,
    strict: bool = True,
    trust: bool = False,
) -> None:
    """Refuse an optimizer, schedule or model that does not follow the plan: ``Plan.verify``."""
    optimizers = optimizers_of(optimizer)
    placed = places(plan, model, optimizers)
    found = settings(plan, placed, independent_decay=independent_decay)
    problems = [
        *of_parameters(plan, model, placed, independent_decay=independent_decay, strict=strict),
        *of_ratios(found),
        *(p for one in optimizers for p in _of_defaults(plan, one, independent_decay)),
        *_of_model(plan, model, initialized_by_plan, strict),
    ]
    cause = None
    if not problems and not trust:
        objection = of_optimizers(plan, placed, optimizers, independent_decay=independent_decay)
        if objection is not None:
            problems, cause = [objection.text], objection.cause
    if scheduler is not None and not problems:
        problems += of_schedule(scheduler, found, steps)
    if problems:
        raise PlanMismatch(refusal(problems)) from cause


def watch(
    plan: PlanContent,
    model: nn.Module,
    optimizer: Optimizers,
    *,
    at: Iterable[int] | None = None,
    independent_decay: bool = False,
    strict: bool = True,
    trust: bool = False,
) -> list[Any]:
    """Verify now, and the groups again before every step: ``Plan.watch``."""
    verify(
        plan,
        model,
        optimizer,
        initialized_by_plan=False,
        independent_decay=independent_decay,
        strict=strict,
        trust=trust,
    )
    optimizers = optimizers_of(optimizer)
    watched = WatchedGroups(
        plan=plan,
        model=model,
        optimizers=optimizers,
        at=None if at is None else frozenset(at),
        independent_decay=independent_decay,
        strict=strict,
        gradients=seen_by(plan, model),
    )
    return [handle for one in optimizers for handle in hooked(one, watched.look)]


def _of_defaults(plan: PlanContent, optimizer: Any, independent_decay: bool) -> Iterator[str]:
    """What was given to the optimizer beside groups that have values of their own."""
    usual = inspect.signature(type(optimizer)).parameters
    # Groups that were rescaled had values of their own before: nothing was meant for them.
    groups = [g for g in optimizer.param_groups if "param_names" in g and LR_ORIGIN not in g]
    prescribed = {name: p for p in plan.prescriptions for name in p.names}
    for key in SETTINGS:
        given = getattr(optimizer, "defaults", {}).get(key)
        default = usual[key].default if key in usual else None
        # Groups hold the base's values; those of earlier releases, what schedules began with.
        keys = (key, "initial_lr", "max_lr") if key == "lr" else (key,)
        bases = [
            float(group[at]) / factor(prescribed[name], key, independent_decay=independent_decay)
            if at in keys
            else float(group[at])
            for group in groups
            for name in group["param_names"][:1]
            for at in ((base_key(key),) if base_key(key) in group else keys)
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
