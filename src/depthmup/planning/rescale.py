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
from depthmup.planning.groups import check_decay
from depthmup.planning.initialize import PlanMismatch, check
from depthmup.planning.prescribe import Prescription
from depthmup.planning.settings import WITH_EPSILON, alike, betas_at, scaled
from depthmup.planning.tuned_with import rate_of_matrices, rates_apart
from depthmup.rules import EPSILON, Family, named

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
        _refuse_two_rates(plan, [p for p, _ in parts if p is not None])
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


def _refuse_two_rates(plan: PlanContent, members: list[Prescription]) -> None:
    if rates_apart(plan) and len({rate_of_matrices(plan, p) for p in members}) > 1:
        raise ValueError(
            f"Expected groups of hidden matrices, with the rate of {plan.tuned_with}, and of the "
            f"rest, with AdamW's; {members[0].name} and others are in one group. Put them into "
            "two, or take plan.param_groups(model, lr=..., adamw_lr=...)."
        )


CONVENTIONS: Mapping[str, Mapping[object, Family]] = {
    "adjust_lr_fn": {
        None: Family.SPECTRAL,
        "original": Family.SPECTRAL,
        "match_rms_adamw": Family.SPECTRAL_RMS,
        "spectral_unclamped": Family.SPECTRAL_RATIO,
        "rms_to_rms": Family.SPECTRAL_RATIO,
    },
    "adjust_lr": {
        None: Family.SPECTRAL_UNIT,
        "spectral_norm": Family.SPECTRAL_RATIO,
        "rms_norm": Family.SPECTRAL_RMS,
    },
    "use_adjusted_lr": {False: Family.SPECTRAL, True: Family.SPECTRAL_RMS},
}
"""Families of Muon by the keys of its groups, which name its factor.

*Source:* the code of torch 2.13 and of timm 1.0.31 (``adjust_lr_fn``), of microsoft/dion
(``adjust_lr``), and of pytorch-optimizer 4.1.0 (``use_adjusted_lr``).
"""


def _check_family(
    plan: PlanContent, p: Prescription, group: Mapping[str, Any], optimizer: Any
) -> None:
    """Refuse an optimizer whose updates follow other sizes than those the plan's factors are for.

    Classes that are not known by name are taken for what the plan says, but for forms of Muon: one
    of these is known by a key of its groups, or the plan is for a family that was measured.
    """
    muon = _by_muon(group)
    convention = next((key for key in CONVENTIONS if key in group), None)
    if muon is not None and muon != p.family.matrices_only:
        trains = f"{'spectral' if muon else 'entrywise'} updates"
    elif muon is not False and convention is not None:
        known, value = CONVENTIONS[convention], group[convention]
        if value not in known:
            raise ValueError(
                f"Expected Muon's {convention} to be one of {', '.join(map(str, known))}; "
                f"got {value!r}, of which it is not known how updates grow. Use one of them."
            )
        if p.family is known[value]:
            return
        trains = f"Muon with {convention}={value!r}"
    elif isinstance(optimizer, torch.optim.Optimizer):
        try:
            trains, family = named(type(optimizer))
        except ValueError:
            _refuse_unknown_muon(plan, p, type(optimizer))
            return
        if family is p.family or (family.matrices_only and p.family.matrices_only):
            return
        trains = f"{trains}, {family}"
    else:
        return
    raise ValueError(
        f"The plan, for {plan.optimizer}, has {p.name} trained by an optimizer of the family "
        f"{p.family}; here it is in a group of {trains}. Plan with that optimizer, or put the "
        "parameter into the other one."
    )


def _by_muon(group: Mapping[str, Any]) -> bool | None:
    """Whether Muon trains a group of an optimizer of all parameters, if the group says."""
    if "use_fallback" in group:  # timm's
        return not group["use_fallback"]
    muon = group.get("use_muon")
    if (algorithm := group.get("algorithm")) is not None:  # dion's
        return bool(algorithm == "muon")
    return None if muon is None else bool(muon)


_OF_JORDAN = frozenset({"SingleDeviceMuon", "MuonWithAuxAdam", "SingleDeviceMuonWithAuxAdam"})
"""Classes of KellerJordan/Muon whose names nobody else has: sqrt(max(1, rows/columns)) U V^T."""


def _refuse_unknown_muon(plan: PlanContent, p: Prescription, kind: type) -> None:
    name = kind.__name__
    known = name in _OF_JORDAN and p.family is Family.SPECTRAL
    by_name = plan.optimizer not in {*Family} and (name == "Muon" or plan.optimizer != name.lower())
    if p.family.matrices_only and "muon" in name.lower() and by_name and not known:
        raise ValueError(
            f"The plan is for {plan.optimizer}, and by which factor of their shape updates of "
            f"{kind.__module__}.{name} are scaled is not known: forms of one name differ. Measure "
            "it, depthmup.family_of(optimizer), and plan with the family that it names."
        )


def _scale(group: dict[str, Any], plan: PlanContent, p: Prescription, independent: bool) -> None:
    if group.get("lr") is None and p.lr != 1.0:
        raise ValueError(
            f"The group of {p.name} has no learning rate to multiply. Give every group its lr, "
            "pass defaults=dict(lr=..., weight_decay=..., eps=...), or rescale the optimizer."
        )
    # Muon and AdamW beside it decouple their decay; a group may say that its own does not.
    beside = plan.family.matrices_only and p.family is not Family.SPHERE
    decouples = True if independent else group.get("decoupled_weight_decay")
    decay = float(group.get("weight_decay", 0.0))
    check_decay("adamw" if beside else plan.optimizer, p.family, decay, decouples)
    needs_eps = p.epsilon != 1.0 and p.family in WITH_EPSILON and plan.optimizer in EPSILON
    if needs_eps and group.get("eps") is None:
        raise ValueError(
            f"The group of {p.name} has no eps, whose factor is {p.epsilon:.4g}. Give every group "
            "its eps, pass defaults=dict(eps=...), or rescale the optimizer."
        )
    group |= scaled(group, p, independent_decay=independent)
    if "betas" in group and (plan.one_minus_beta, plan.log_beta2) != (1.0, 1.0):
        group["betas"] = betas_at(plan, group["betas"])
