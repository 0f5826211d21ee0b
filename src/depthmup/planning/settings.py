"""Settings of parameter groups: what a plan makes of the values that are right at the base.

Whoever makes groups, splits groups that exist, or verifies groups, asks here.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch

from depthmup.planning.content import PlanContent
from depthmup.planning.prescribe import Prescription
from depthmup.rules import Family
from depthmup.rules.scheme import moved_betas

RATES = ("lr", "initial_lr", "max_lr", "min_lr", "base_lr", "max_lr_snapshot")
"""Keys of a group that hold a learning rate, its limits, its start, or a copy of it (timm's)."""

LR_FACTOR, LR_ORIGIN = "lr_factor", "lr_origin"
"""Keys of a planned group: the rate's factor, and the group that it was split from by ``rescale``.
Groups of one origin keep the plan's ratios under every schedule."""

SETTINGS = ("lr", "weight_decay", "eps")
"""Keys of a group that a plan scales."""


def base_key(setting: str) -> str:
    """The key of a planned group with a setting's value at the base.

    Example:
        >>> base_key("lr")
        'lr_base'
    """
    return f"{setting}_base"


def marked(settings: Mapping[str, Any], p: Prescription | None) -> dict[str, Any]:
    """The keys that a planned group has beside its settings at the base: its factor, and these."""
    bases = {
        base_key(key): plain(settings[key]) for key in SETTINGS if settings.get(key) is not None
    }
    return {LR_FACTOR: 1.0 if p is None else p.lr, **bases}


def plain(value: Any) -> Any:
    """A number that may be a tensor, or a pair of them, as numbers that no schedule changes."""
    if isinstance(value, tuple | list):
        return tuple(plain(part) for part in value)
    return value.item() if isinstance(value, torch.Tensor) else value


WITH_EPSILON = (Family.ENTRYWISE, Family.RELATIVE)
"""Families whose updates are divided by what epsilon is added to."""


def factor(p: Prescription, setting: str, *, independent_decay: bool = False) -> float:
    """By what a setting (``lr``, ``weight_decay``, ``eps``) is multiplied for a parameter.

    ``independent_decay``: the optimizer subtracts ``weight_decay * w``, and not
    ``lr * weight_decay * w``.
    """
    if setting == "eps":
        return 1.0 if p.family is Family.RAW else p.epsilon
    if setting == "weight_decay":
        return p.decay * (p.lr if independent_decay else 1.0)
    return p.lr


def scaled(
    settings: Mapping[str, Any], p: Prescription, *, independent_decay: bool = False
) -> dict[str, Any]:
    """Settings that are right at the base, times the factors of one parameter."""
    result = dict(settings)
    for key in RATES:
        if settings.get(key) is not None:
            result[key] = settings[key] * factor(p, "lr")
    if settings.get("weight_decay") is not None:
        decay = factor(p, "weight_decay", independent_decay=independent_decay)
        result["weight_decay"] = settings["weight_decay"] * decay
    eps = settings.get("eps")
    if isinstance(eps, tuple | list):
        # Adafactor's second epsilon is a size of weights: it follows their initialization, so that
        # a tensor that starts at zero takes the steps that its role must take.
        result["eps"] = (*eps[:1], eps[1] * p.init)
    elif eps is not None:
        result["eps"] = eps * factor(p, "eps")
    return result


def alike(p: Prescription) -> Hashable:
    """Parameters for which this is equal may share a group.

    By factors, not by their products: a schedule may start from a learning rate of 0.
    """
    size = p.init if p.family is Family.RELATIVE else None
    return p.lr, p.decay, p.epsilon, p.family, size


def betas_at(plan: PlanContent, betas: Iterable[float]) -> tuple[float, ...]:
    """Decay rates of averages as a plan has them, from those of the base."""
    return moved_betas(betas, plan.one_minus_beta, plan.log_beta2)
