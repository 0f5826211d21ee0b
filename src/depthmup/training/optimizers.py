"""Torch optimizers for a planned model."""

from collections.abc import Container, Iterable
from inspect import signature
from typing import Any

import torch
from torch import nn

from depthmup._uncompiled import uncompiled
from depthmup.planning import Plan
from depthmup.planning.groups import muon_groups, param_groups
from depthmup.records.grammar import either
from depthmup.rules import Family

BESIDE_MUON = 0.1
"""AdamW's learning rate beside Muon, as a multiple of Muon's: their usual proportion."""

_CLASSES: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    str(Family.RAW): torch.optim.SGD,
    str(Family.ENTRYWISE): torch.optim.AdamW,
}
_SPECTRAL = ("muon", "muon-rms", str(Family.SPECTRAL), str(Family.SPECTRAL_RMS))
BUILT = (*_CLASSES, *_SPECTRAL)
"""Names of what can be built here."""


def optimizer_class(name: str) -> Any:
    """The torch class of an optimizer that trains all parameters, by its name."""
    if name not in _CLASSES:
        raise ValueError(
            f"Expected one of the optimizers {', '.join(BUILT)}; got {name!r}. Use another one of "
            "its family: their updates have the same exponents."
        )
    return uncompiled(_CLASSES[name])


def optimizers(
    plan: Plan,
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.0,
    **options: Any,
) -> list[torch.optim.Optimizer]:
    """The optimizers that a plan is for: one, or Muon for hidden matrices and AdamW for the rest.

    ``options`` are those of the plan's groups, and ``beside_muon``, AdamW's rate over Muon's.
    """
    if not plan.family.matrices_only:
        made_by = optimizer_class(plan.optimizer)
        known = {*signature(param_groups).parameters, *signature(made_by).parameters}
        _check_known(plan.optimizer, options, known)
        groups = plan.param_groups(model, lr=lr, weight_decay=weight_decay, **options)
        # As defaults too: torch validates only those, not what stands in groups.
        own = {k: v for k, v in options.items() if k in signature(made_by).parameters}
        return [made_by(groups, **own)]
    if plan.family not in (Family.SPECTRAL, Family.SPECTRAL_RMS):
        raise ValueError(
            f"Expected one of the optimizers {', '.join(BUILT)}; got {plan.optimizer!r}, which is "
            "not in torch. Build it from plan.muon_groups(model, lr=..., adamw_lr=...)."
        )
    _check_known(plan.optimizer, options, {*signature(muon_groups).parameters, "beside_muon"})
    beside_muon = options.pop("beside_muon", BESIDE_MUON)
    pair = plan.muon_groups(
        model, lr=lr, adamw_lr=lr * beside_muon, weight_decay=weight_decay, **options
    )
    adjust = "match_rms_adamw" if plan.family is Family.SPECTRAL_RMS else "original"
    torch_optimizers: list[torch.optim.Optimizer] = []
    if pair.muon:
        torch_optimizers.append(
            uncompiled(torch.optim.Muon)(pair.muon, weight_decay=0.0, adjust_lr_fn=adjust)
        )
    if pair.adamw:
        torch_optimizers.append(uncompiled(torch.optim.AdamW)(pair.adamw))
    return torch_optimizers


_ARGUMENTS = frozenset({"lr", "adamw_lr", "weight_decay", "plan", "model", "params", "options"})


def check_no_arguments(settings: Iterable[str]) -> None:
    """Refuse settings that are arguments of their own, or that the plan sets."""
    if elsewhere := [name for name in settings if name in _ARGUMENTS]:
        raise ValueError(
            f"{', '.join(elsewhere)} is not a setting of the optimizer: give learning rates as "
            f"{either('lrs=', '--lrs')} and weight decays as "
            f"{either('weight_decays=', '--weight-decays')}."
        )


def _check_known(optimizer: str, options: Iterable[str], known: Container[str]) -> None:
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(f"The optimizer {optimizer} has no setting {', '.join(unknown)}.")
