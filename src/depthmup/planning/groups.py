"""Parameter groups: a plan's learning rates, epsilons and decays, as optimizers take them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import nn

from depthmup._meant import near
from depthmup.planning.content import PlanContent
from depthmup.planning.initialize import check
from depthmup.planning.prescribe import Prescription
from depthmup.planning.settings import alike, betas_at, marked, scaled
from depthmup.planning.tuned_with import rate_of_matrices, rates_apart
from depthmup.rules import DECAYS, EPSILON, Decay, Family, Kind

# Adafactor's smallest size of a weight that it steps in proportion to.
_SMALLEST_WEIGHT = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class MuonGroups:
    """Two optimizers to build: ``Muon(groups.muon)`` and ``AdamW(groups.adamw)``.

    ``muon`` are the groups of whichever optimizer of matrices the plan is for.

    Attributes:
        adamw: the groups of AdamW: all other parameters.
    """

    muon: list[dict[str, Any]]
    adamw: list[dict[str, Any]]


def param_groups(
    plan: PlanContent,
    model: nn.Module,
    *,
    lr: float,
    adamw_lr: float | None = None,
    weight_decay: float = 0.0,
    eps: float | tuple[float | None, float] | None = None,
    betas: tuple[float, float] | None = None,
    decoupled: bool | None = None,
    independent_decay: bool = False,
    vector_weight_decay: float | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Parameter groups for one optimizer: ``Plan.param_groups``."""
    refuse_unknown(plan, options)
    if plan.family.matrices_only:
        raise ValueError(
            f"{plan.optimizer} trains matrices only, and AdamW must train the rest. Use "
            "groups = plan.muon_groups(model, lr=..., adamw_lr=...), then Muon(groups.muon) and "
            "AdamW(groups.adamw)."
        )
    if rates_apart(plan) != (adamw_lr is not None):
        raise ValueError(
            f"Expected adamw_lr exactly where lr is the rate of an optimizer of matrices, beside "
            f"which AdamW trained the rest; this plan's is that of "
            f"{plan.tuned_with or plan.optimizer}, and adamw_lr is {adamw_lr}. "
            + ("Pass" if adamw_lr is None else "Leave out")
            + " adamw_lr."
        )
    decays = (weight_decay, weight_decay if vector_weight_decay is None else vector_weight_decay)
    decoupled = True if independent_decay else decoupled
    check_decay(plan.optimizer, plan.family, max(decays), decoupled)
    if max(decays) and DECAYS.get(plan.optimizer) is Decay.EITHER and not independent_decay:
        options["decoupled_weight_decay"] = True
    if betas is not None:
        options["betas"] = betas_at(plan, betas)
    elif (plan.one_minus_beta, plan.log_beta2) != (1.0, 1.0) and plan.family is Family.ENTRYWISE:
        moves = (
            f"scales 1 - beta by {plan.one_minus_beta:.6g}"
            if plan.one_minus_beta != 1.0
            else f"takes beta2 to the power {plan.log_beta2:.6g}"
        )
        raise ValueError(
            f"{plan.title} {moves} at this batch size and duration. Pass the base run's "
            "betas=(..., ...)."
        )
    return _groups(
        check(plan, model),
        plan.prescriptions,
        lr=lambda p: lr if adamw_lr is None or rate_of_matrices(plan, p) else adamw_lr,
        decays=decays,
        eps=_epsilon(plan, eps),
        independent=independent_decay,
        options=options,
    )


def refuse_unknown(plan: PlanContent, keys: Iterable[str]) -> None:
    """Refuse keys of groups that are no setting of the plan's optimizer, as torch has it.

    Of an optimizer that torch does not have, any setting of torch's optimizers may be one.
    """
    classes = {c.__name__.lower(): c for c in vars(torch.optim).values() if isinstance(c, type)}
    own = [classes[plan.optimizer]] if plan.optimizer in classes else list(classes.values())
    settings = {name for c in own for name in signature(c).parameters}
    known = sorted((settings | {*signature(param_groups).parameters}) - _NO_SETTINGS)
    for key in keys:
        if key not in known:
            raise TypeError(
                f"Expected settings of {plan.optimizer}'s groups; got {key}."
                + near(key, known)
                + " Give settings of an optimizer of your own to its constructor, or put them into "
                "the groups."
            )


_NO_SETTINGS = frozenset({"plan", "model", "options", "params", "args", "kwargs", "self"})


def _epsilon(
    plan: PlanContent, given: float | tuple[float | None, float] | None
) -> float | tuple[float | None, float] | None:
    """The epsilon at the base: one number, or Adafactor's pair."""
    adafactor = plan.optimizer == "adafactor"
    if given is None:
        return (None, _SMALLEST_WEIGHT) if adafactor else EPSILON.get(plan.optimizer)
    pair = isinstance(given, tuple | list)
    if pair and plan.family is not Family.RELATIVE:
        raise ValueError(f"Expected eps of {plan.optimizer} to be one number; got {given}.")
    if adafactor and not pair:
        raise ValueError(
            f"Expected eps of adafactor to be a pair, as torch has it; got {given}. Pass "
            "eps=(None, 1e-3): what is added to squares, and the smallest size of a weight."
        )
    return given


def muon_groups(
    plan: PlanContent,
    model: nn.Module,
    *,
    lr: float,
    adamw_lr: float,
    weight_decay: float = 0.0,
    adamw_weight_decay: float | None = None,
    vector_weight_decay: float | None = None,
    eps: float = 1e-8,
    matrix_eps: float | None = None,
    betas: tuple[float, float] | None = None,
    independent_decay: bool = False,
) -> MuonGroups:
    """Parameter groups for Muon and for AdamW: ``Plan.muon_groups``."""
    if not plan.family.matrices_only:
        raise ValueError(
            f"This plan is for {plan.optimizer}, which trains every parameter. Use "
            "plan.param_groups, or plan with optimizer='muon'."
        )
    if plan.family is Family.SPHERE:
        check_decay(plan.optimizer, plan.family, weight_decay, None)
    tensors = check(plan, model)
    others = weight_decay if adamw_weight_decay is None else adamw_weight_decay
    return MuonGroups(
        muon=_groups(
            tensors,
            [p for p in plan.prescriptions if p.family.matrices_only],
            lr=lambda _: lr,
            decays=(weight_decay, weight_decay),
            eps=matrix_eps,
            independent=independent_decay,
            options={},
        ),
        adamw=_groups(
            tensors,
            [p for p in plan.prescriptions if not p.family.matrices_only],
            lr=lambda _: adamw_lr,
            decays=(others, others if vector_weight_decay is None else vector_weight_decay),
            eps=eps,
            independent=independent_decay,
            options={} if betas is None else {"betas": betas_at(plan, betas)},
        ),
    )


def check_decay(
    optimizer: str, family: Family, weight_decay: float, decoupled: bool | None
) -> None:
    """Refuse a weight decay that no factor makes transfer."""
    if not weight_decay or family is Family.RAW:  # coupled to SGD, L2 scales as decay does
        return
    if family is Family.SPHERE:
        raise ValueError(
            f"{optimizer} keeps the norm of every matrix, so weight_decay={weight_decay:g} "
            "would only shrink the sphere (arXiv 2603.28743, Theorem 1). Pass weight_decay=0, and "
            "a decay of AdamW for the rest."
        )
    if optimizer in ("lamb", "lars"):
        raise ValueError(
            f"{optimizer} adds weight_decay * w to its direction and then gives the sum the size "
            "of the weight, so how strong the decay is depends on what it is added to: no factor "
            "makes it transfer. Use weight_decay=0, or AdamW."
        )
    if decoupled is False:
        raise ValueError(
            "Weight decay that is added to the gradient of an entrywise optimizer cannot be made "
            "to transfer (Tensor Programs V, Appendix B.3). Use decoupled decay or weight_decay=0."
        )
    known = DECAYS.get(optimizer)
    if decoupled or known in (Decay.DECOUPLED, Decay.EITHER):
        return
    if known is Decay.COUPLED:
        raise ValueError(
            f"{optimizer} adds weight_decay to the gradient and then divides by the gradient's "
            "size, so the strength of the decay depends on the gradient, which depends on width "
            "and depth: no factor makes it transfer (Tensor Programs V, Appendix B.3). Use an "
            "optimizer with decoupled decay, such as AdamW, or weight_decay=0. If your "
            f"implementation of {optimizer} decouples it, pass decoupled=True."
        )
    raise ValueError(
        f"How does your {optimizer} optimizer apply weight_decay={weight_decay:g}? Pass "
        "decoupled=True if it subtracts lr * weight_decay * w from the weight, as AdamW does; "
        "decay added to the gradient cannot transfer in this family."
    )


def _groups(
    tensors: dict[str, nn.Parameter],
    prescriptions: Iterable[Prescription],
    *,
    lr: Callable[[Prescription], float],
    decays: tuple[float, float],
    eps: float | tuple[float | None, float] | None,
    independent: bool,
    options: dict[str, Any],
) -> list[dict[str, Any]]:
    groups: dict[object, dict[str, Any]] = {}
    for p in prescriptions:
        if not tensors[p.name].requires_grad:
            continue
        vector = p.role.kind is Kind.VECTOR
        if (key := (alike(p), vector, lr(p))) not in groups:
            settings: dict[str, Any] = {"lr": lr(p), "weight_decay": decays[vector]}
            settings |= {} if eps is None else {"eps": eps}
            groups[key] = {
                "params": [],
                "param_names": [],
                **scaled(settings, p, independent_decay=independent),
                **marked(settings, p),
                **options,
            }
        group = groups[key]
        group["params"].append(tensors[p.name])
        group["param_names"].append(p.name)
    return list(groups.values())
