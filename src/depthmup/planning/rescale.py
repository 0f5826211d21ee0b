"""Rescale: the parameter groups that a person or a trainer has, split by a plan's factors.

Where ``param_groups`` makes groups from one learning rate, this takes those that exist: of
Trainer's own optimizers, with a base rate per group, with keys of their own, of one pipeline stage.
"""

import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from depthmup.planning.adapters import planned_parameters
from depthmup.planning.content import PlanContent
from depthmup.planning.groups import check_decay
from depthmup.planning.initialize import PlanMismatch, check
from depthmup.planning.joined import JoinedOptimizer
from depthmup.planning.layer_decay import warnings_of_decays
from depthmup.planning.prescribe import Prescription
from depthmup.planning.settings import (
    LR_FACTOR,
    LR_ORIGIN,
    WITH_EPSILON,
    alike,
    betas_at,
    marked,
    scaled,
)
from depthmup.planning.several import HasGroups, stepping
from depthmup.planning.trial import of_optimizers
from depthmup.planning.tuned_with import rate_of_matrices, rates_apart
from depthmup.rules import EPSILON, Family

Groups = list[dict[str, Any]]

# Torch marks a scheduled optimizer's step by this, in 2.9 as in 2.13.
_SCHEDULED = "_wrapped_by_lr_sched"


def rescale(
    plan: PlanContent,
    model: nn.Module,
    optimizer: HasGroups | Iterable[Mapping[str, Any]],
    *,
    defaults: Mapping[str, Any] | None = None,
    independent_decay: bool = False,
    strict: bool = True,
    trust: bool = False,
) -> Groups:
    """Multiply rates of groups that exist by a plan's factors: ``Plan.rescale``."""
    built = hasattr(optimizer, "param_groups")
    if built:
        _refuse_copies(optimizer)
    given = list(optimizer.param_groups if built else optimizer)  # type: ignore[union-attr, arg-type]
    new = _not_rescaled(given, optimizer, built)
    names = {id(p): name for name, p in _parameters(plan, model, strict).items()}
    prescribed = {p.name: p for p in plan.prescriptions}
    tested = built and not trust
    if tested:
        _refuse_another_law(plan, new, names, optimizer, independent_decay)
    origins = itertools.count(1 + max((group.get(LR_ORIGIN, -1) for group in given), default=-1))
    groups: Groups = []
    rates: dict[str, float] = {}
    matched = 0
    for whole in given:
        if not any(whole is group for group in new):
            groups.append(dict(whole))
            continue
        group = {**(defaults or {}), **whole} if not built else dict(whole)
        group["params"] = _tensors(group)
        origin = next(origins)
        parts = _parts(group, names, prescribed)
        known = (names.get(id(p)) for p in map(_parameter, group["params"]))
        rates |= {name: float(group["lr"]) for name in known if name and "lr" in group}
        _refuse_two_rates(plan, [p for p, _ in parts if p is not None])
        matched += sum(len(part["params"]) for p, part in parts if p is not None)
        for p, part in parts:
            marks = {**marked(part, p), LR_ORIGIN: origin} if built else {}
            if p is not None:
                if not built:
                    _check_keys(plan, p, part)
                _scale(part, plan, p, independent_decay, tested=tested)
            groups.append(part | marks)
    if not matched:
        raise PlanMismatch(
            "None of the groups' parameters is one of the model's that the plan prescribes for. "
            "Pass the model that the optimizer was built for, after wrapping or sharding."
        )
    for sentence in warnings_of_decays(rates, prescribed):
        warnings.warn(sentence, stacklevel=3)
    if built:
        optimizer.param_groups[:] = groups  # type: ignore[union-attr]
    return groups


def expand(optimizer: HasGroups, values: Sequence[Any]) -> list[Any]:
    """One value per group, from one per group before ``rescale``: ``Plan.expand``."""
    groups = optimizer.param_groups
    if any(LR_ORIGIN not in group for group in groups):
        raise ValueError(
            "Expected groups that plan.rescale has split (they have lr_origin); got others. Give "
            "one value for each group of the optimizer: numbers times group['lr_factor']."
        )
    numbers = {origin: i for i, origin in enumerate(dict.fromkeys(g[LR_ORIGIN] for g in groups))}
    if len(values) != len(numbers):
        raise ValueError(
            f"Expected one value for each of the {len(numbers)} groups that the optimizer had "
            f"before plan.rescale; got {len(values)}."
        )
    chosen = [(group, values[numbers[group[LR_ORIGIN]]]) for group in groups]
    return [
        value * group[LR_FACTOR] if isinstance(value, int | float | torch.Tensor) else value
        for group, value in chosen
    ]


def _parameters(plan: PlanContent, model: nn.Module, strict: bool) -> dict[str, nn.Parameter]:
    if strict:
        return check(plan, model)
    shapes = {p.name: p.shape for p in plan.prescriptions}
    return {
        name: tensor
        for name, tensor in planned_parameters(plan, model).items()
        if shapes.get(name) == tuple(tensor.shape)
    }


def _not_rescaled(given: Groups, optimizer: object, built: bool) -> Groups:
    """The groups that hold no factor yet: all of a new optimizer's, or those added since."""
    new = [group for group in given if LR_FACTOR not in group]
    if not new or (len(new) < len(given) and not built):
        raise ValueError(
            "These groups hold a plan's factors already (they have lr_factor): rescaling them "
            "would multiply twice. Rescale an optimizer once, after building it."
        )
    scheduled = hasattr(getattr(optimizer, "step", None), _SCHEDULED)
    if scheduled and (len(new) == len(given) or any("initial_lr" in group for group in new)):
        raise ValueError(
            "This optimizer has a learning-rate scheduler already, which remembers the rates from "
            "before. Call plan.rescale between building the optimizer and building the scheduler."
        )
    return new


def _refuse_copies(optimizer: Any) -> None:
    """Refuse a wrapper whose inner optimizer trains by copies of the groups."""
    known = {id(group) for group in optimizer.param_groups}
    for inner in () if isinstance(optimizer, JoinedOptimizer) else stepping(optimizer):
        if any(id(group) not in known for group in inner.param_groups):
            raise ValueError(
                f"Expected {type(optimizer).__name__} to share its groups with the "
                f"{type(inner).__name__} that it holds; got copies, which would not be rescaled. "
                "Rescale that optimizer before wrapping it, or build from plan.param_groups."
            )


def _tensors(group: Mapping[str, Any]) -> list[Any]:
    params = group["params"]
    return [params] if isinstance(params, torch.Tensor) else list(params)


def _parameter(entry: Any) -> Any:
    """Groups may be made of (name, parameter) pairs, as named_parameters gives them."""
    return entry[1] if isinstance(entry, tuple) else entry


def _parts(
    group: dict[str, Any], names: Mapping[int, str], prescribed: Mapping[str, Prescription]
) -> list[tuple[Prescription | None, dict[str, Any]]]:
    """The group by factors, in the order of its parameters; None: not in the plan."""
    parts: dict[object, tuple[Prescription | None, dict[str, Any]]] = {}
    labels = group.get("param_names")
    for i, tensor in enumerate(group["params"]):
        name = names.get(id(_parameter(tensor)))
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


def _refuse_another_law(
    plan: PlanContent,
    groups: Groups,
    names: Mapping[int, str],
    optimizer: Any,
    independent_decay: bool,
) -> None:
    """Refuse an optimizer whose updates or decay are not what the plan's factors are for."""
    prescribed = {p.name: p for p in plan.prescriptions}
    placed = [
        (prescribed[names[id(tensor)]], group, 0)
        for group in groups
        for tensor in group["params"]
        if id(tensor) in names
    ]
    objection = of_optimizers(plan, placed, [optimizer], independent_decay=independent_decay)
    if objection is not None:
        raise ValueError(objection.text) from objection.cause


def _check_keys(plan: PlanContent, p: Prescription, group: Mapping[str, Any]) -> None:
    """Refuse groups without an optimizer by their keys, where these say what will train them."""
    muon = _by_muon(group)
    convention = next((key for key in CONVENTIONS if key in group), None)
    if muon is not None and muon != p.family.matrices_only:
        trains = f"{'spectral' if muon else 'entrywise'} updates"
    elif muon is not False and convention is not None:
        known, value = CONVENTIONS[convention], group[convention]
        if known.get(value) is p.family:
            return
        trains = f"Muon with {convention}={value!r}"
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
    if (algorithm := group.get("algorithm")) is not None:  # dion's: adamw and lion beside it
        return algorithm not in ("adamw", "lion", "sgd")
    return None if muon is None else bool(muon)


def _scale(
    group: dict[str, Any], plan: PlanContent, p: Prescription, independent: bool, *, tested: bool
) -> None:
    if group.get("lr") is None and p.lr != 1.0:
        raise ValueError(
            f"The group of {p.name} has no learning rate to multiply. Give every group its lr, "
            "pass defaults=dict(lr=..., weight_decay=..., eps=...), or rescale the optimizer."
        )
    # Muon and AdamW beside it decouple their decay; a group may say that its own does not.
    beside = plan.family.matrices_only and p.family is not Family.SPHERE
    decouples = True if independent else group.get("decoupled_weight_decay")
    decay = float(group.get("weight_decay", 0.0))
    if not tested:
        check_decay("adamw" if beside else plan.optimizer, p.family, decay, decouples)
    elif p.family is Family.SPHERE:
        check_decay(plan.optimizer, p.family, decay, None)
    needs_eps = p.epsilon != 1.0 and p.family in WITH_EPSILON and plan.optimizer in EPSILON
    if needs_eps and group.get("eps") is None:
        raise ValueError(
            f"The group of {p.name} has no eps, whose factor is {p.epsilon:.4g}. Give every group "
            "its eps, pass defaults=dict(eps=...), or rescale the optimizer."
        )
    group |= scaled(group, p, independent_decay=independent)
    if "betas" in group and (plan.one_minus_beta, plan.log_beta2) != (1.0, 1.0):
        group["betas"] = betas_at(plan, group["betas"])
