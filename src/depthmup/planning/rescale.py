"""Rescale: the parameter groups that a person or a trainer has, split by a plan's factors.

Where ``param_groups`` makes groups from one learning rate, this takes those that exist: of
Trainer's own optimizers, with a base rate per group, with keys of their own, of one pipeline stage.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from depthmup.planning.adapters import planned_parameters
from depthmup.planning.content import PlanContent
from depthmup.planning.groups import check_decay, refuse_decay_on_a_sphere
from depthmup.planning.initialize import PlanMismatch, check
from depthmup.planning.prescribe import Prescription
from depthmup.planning.settings import alike, betas_at, scaled
from depthmup.rules import Family, named

Groups = list[dict[str, Any]]

LR_FACTOR, LR_ORIGIN = "lr_factor", "lr_origin"
"""Keys of a rescaled optimizer's groups: the factor, and the group that it was split from."""

# Torch marks a scheduled optimizer's step by this, in 2.9 as in 2.13.
_SCHEDULED = "_wrapped_by_lr_sched"


def rescale(
    plan: PlanContent,
    model: nn.Module,
    optimizer: "torch.optim.Optimizer | Iterable[Mapping[str, Any]]",
    *,
    defaults: Mapping[str, Any] | None = None,
    independent_decay: bool = False,
    strict: bool = True,
) -> Groups:
    """Multiply rates of groups that exist by a plan's factors: ``Plan.rescale``."""
    built = isinstance(optimizer, torch.optim.Optimizer)
    given = list(optimizer.param_groups if built else optimizer)  # type: ignore[union-attr, arg-type]
    _refuse_repetition(given, optimizer)
    names = {id(p): name for name, p in _parameters(plan, model, strict).items()}
    prescribed = {p.name: p for p in plan.prescriptions}
    groups: Groups = []
    matched = 0
    for origin, whole in enumerate(given):
        group = {**(defaults or {}), **whole} if not built else dict(whole)
        group["params"] = _tensors(group)
        parts = _parts(group, names, prescribed)
        matched += sum(len(part["params"]) for p, part in parts if p is not None)
        for p, part in parts:
            if p is not None:
                _check_family(plan, p, part, optimizer)
                _scale(part, plan, p, independent_decay)
            if built:
                part |= {LR_FACTOR: 1.0 if p is None else p.lr, LR_ORIGIN: origin}
            groups.append(part)
    if not matched:
        raise PlanMismatch(
            "None of the groups' parameters is one of the model's that the plan prescribes for. "
            "Pass the model that the optimizer was built for, after wrapping or sharding."
        )
    if built:
        optimizer.param_groups[:] = groups  # type: ignore[union-attr]
    return groups


def _parameters(plan: PlanContent, model: nn.Module, strict: bool) -> dict[str, nn.Parameter]:
    if strict:
        return check(plan, model)
    shapes = {p.name: p.shape for p in plan.prescriptions}
    return {
        name: tensor
        for name, tensor in planned_parameters(plan, model).items()
        if shapes.get(name) == tuple(tensor.shape)
    }


def _refuse_repetition(groups: Groups, optimizer: object) -> None:
    if any(LR_FACTOR in group for group in groups):
        raise ValueError(
            "These groups hold a plan's factors already (they have lr_factor): rescaling them "
            "would multiply twice. Rescale an optimizer once, after building it."
        )
    if hasattr(getattr(optimizer, "step", None), _SCHEDULED):
        raise ValueError(
            "This optimizer has a learning-rate scheduler already, which remembers the rates from "
            "before. Call plan.rescale between building the optimizer and building the scheduler."
        )


def _tensors(group: Mapping[str, Any]) -> list[Any]:
    params = group["params"]
    return [params] if isinstance(params, torch.Tensor) else list(params)


def _parts(
    group: dict[str, Any], names: Mapping[int, str], prescribed: Mapping[str, Prescription]
) -> list[tuple[Prescription | None, dict[str, Any]]]:
    """The group by factors, in the order of its parameters; None: not in the plan."""
    parts: dict[object, tuple[Prescription | None, dict[str, Any]]] = {}
    labels = group.get("param_names")
    for i, tensor in enumerate(group["params"]):
        # Groups may be made of (name, parameter) pairs, as named_parameters gives them.
        parameter = tensor[1] if isinstance(tensor, tuple) else tensor
        name = names.get(id(parameter))
        p = None if name is None else prescribed[name]
        key = None if p is None else alike(p)
        if key not in parts:
            part = {**group, "params": []}
            if labels is not None:
                part["param_names"] = []
            parts[key] = p, part
        part = parts[key][1]
        part["params"].append(tensor)
        if labels is not None:
            part["param_names"].append(labels[i])
    return list(parts.values()) or [(None, group)]


_ADJUSTED: Mapping[str | None, Family] = {
    None: Family.SPECTRAL,
    "original": Family.SPECTRAL,
    "match_rms_adamw": Family.SPECTRAL_RMS,
    "spectral_unclamped": Family.SPECTRAL_RATIO,
}
"""Families of torch's Muon by ``adjust_lr_fn``. Unclamped, a wide matrix takes smaller updates."""


def _check_family(
    plan: PlanContent, p: Prescription, group: Mapping[str, Any], optimizer: Any
) -> None:
    """Refuse an optimizer whose updates follow other sizes than those the plan's factors are for.

    Classes that are not known by name are taken for what the plan says.
    """
    uses_muon = group.get("use_muon")
    if uses_muon is not None:
        trains = "spectral" if uses_muon else "entrywise"
        fits = bool(uses_muon) == p.family.matrices_only
    elif isinstance(optimizer, torch.optim.Optimizer):
        try:
            name, family = named(type(optimizer))
        except ValueError:
            return
        trains = f"{name}, {family}"
        fits = family is p.family or (family.matrices_only and p.family.matrices_only)
        if isinstance(optimizer, torch.optim.Muon):
            adjusted = group.get("adjust_lr_fn")
            if adjusted not in _ADJUSTED:
                raise ValueError(
                    f"Expected Muon's adjust_lr_fn to be one of {', '.join(map(str, _ADJUSTED))}; "
                    f"got {adjusted!r}, of which it is not known how updates grow. Use one of them."
                )
            trains = f"Muon with adjust_lr_fn={adjusted!r}"
            fits = p.family is _ADJUSTED[adjusted]
    else:
        return
    if not fits:
        raise ValueError(
            f"The plan, for {plan.optimizer}, has {p.name} trained by an optimizer of the family "
            f"{p.family}; here it is in a group of {trains}. Plan with that optimizer, or put the "
            "parameter into the other one."
        )


def _scale(group: dict[str, Any], plan: PlanContent, p: Prescription, independent: bool) -> None:
    if group.get("lr") is None and p.lr != 1.0:
        raise ValueError(
            f"The group of {p.name} has no learning rate to multiply. Give every group its lr, "
            "pass defaults=dict(lr=..., weight_decay=..., eps=...), or rescale the optimizer."
        )
    decay = group.get("weight_decay", 0.0)
    # Muon and AdamW beside it decouple their decay; a group may say that its own does not.
    name = "adamw" if plan.family.matrices_only else plan.optimizer
    if p.family is not Family.SPHERE:
        check_decay(name, p.family, float(decay), _decouples(group, independent))
    elif decay:
        refuse_decay_on_a_sphere(plan.optimizer, float(decay))
    needs_eps = p.epsilon != 1.0 and p.family is Family.ENTRYWISE and _needs_eps(plan)
    if needs_eps and group.get("eps") is None:
        raise ValueError(
            f"The group of {p.name} has no eps, whose factor is {p.epsilon:.4g}. Give every group "
            "its eps, pass defaults=dict(eps=...), or rescale the optimizer."
        )
    group |= scaled(group, p, independent_decay=independent)
    if "betas" in group and (plan.one_minus_beta, plan.log_beta2) != (1.0, 1.0):
        group["betas"] = betas_at(plan, group["betas"])


def _decouples(group: Mapping[str, Any], independent: bool) -> bool | None:
    """Whether the group says how its decay is applied, as torch's Adam does."""
    if independent:
        return True
    said = group.get("decoupled_weight_decay")
    return None if said is None else bool(said)


def _needs_eps(plan: PlanContent) -> bool:
    return plan.optimizer in ("adam", "adamw", "nadam", "radam", "rmsprop", "adagrad", "muon")
