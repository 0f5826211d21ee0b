"""Applying a plan: the initial weights and the explicit multipliers."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from depthmup.planning import hooks
from depthmup.planning.content import PlanContent
from depthmup.planning.measured import Sizes, sizes_of
from depthmup.planning.own_init import OwnLaw, UnrecognizedInit, laws_of
from depthmup.planning.sites import Where
from depthmup.tracing import parameters, unwrapped


class PlanMismatch(ValueError):
    """A plan applied to a model it was not made for."""


class _Initialized:
    """Remembers, on the model, that a plan rescaled it and whether a checkpoint came after.

    It is a hook of ``load_state_dict``, so it lives where PyTorch keeps hooks: it follows a deep
    copy of the model and nothing is hidden on tensors.
    """

    loaded = False

    def __call__(self, module: nn.Module, incompatible_keys: Any) -> None:
        self.loaded = True


def _marker(model: nn.Module) -> _Initialized | None:
    for hook in unwrapped(model)._load_state_dict_post_hooks.values():
        if isinstance(hook, _Initialized):
            return hook
    return None


def initialized(model: nn.Module) -> bool:
    """Whether a plan has rescaled this model's initialization."""
    return _marker(model) is not None


def check(plan: PlanContent, model: nn.Module) -> dict[str, nn.Parameter]:
    """The model's parameters by name, if they are the plan's."""
    present = parameters(model)
    planned = {p.name: p for p in plan.prescriptions}
    for name, p in planned.items():
        if name not in present:
            raise PlanMismatch(
                f"The plan prescribes for {name} {list(p.shape)}, which this model does not have. "
                "Apply a plan to the model it was made for, or make a new plan."
            )
        if tuple(present[name].shape) != p.shape:
            raise PlanMismatch(
                f"{name} has shape {list(present[name].shape)}, but the plan was made for "
                f"{list(p.shape)}. The model was changed after planning, or it is another model: "
                "make a new plan."
            )
    for name, tensor in present.items():
        if name not in planned:
            raise PlanMismatch(
                f"The model's parameter {name} {list(tensor.shape)} is not in the plan. It was "
                "added after planning, or this is another model: make a new plan."
            )
    return present


def own_laws(plan: PlanContent, model: nn.Module) -> Mapping[str, OwnLaw]:
    """How each parameter's present values depend on size: declared, drawn or measured."""
    for name, tensor in parameters(model).items():
        if tensor.is_meta:
            raise UnrecognizedInit(
                f"{name} is on the meta device, where there are no values. Allocate the model "
                "(to_empty) and run its own initialization first."
            )
    sizes = sizes_of(model, plan.model_init)
    base = Sizes(measured=plan.base_init, defaults=plan.base_default) if plan.base_init else None
    laws, _ = laws_of(plan.prescriptions, plan.own_init, sizes, base, known=plan.own_laws)
    rest = [p.name for p in plan.prescriptions if p.name not in laws]
    if rest and plan.own_init is not None:
        raise UnrecognizedInit(
            f"own_init says nothing of {rest[0]}, and the base is on the meta device. Add "
            "a pattern for it, or '*' for the rest; or use a base with values."
        )
    if rest:
        raise UnrecognizedInit(
            "The base is on the meta device, so there is nothing to compare the model's own "
            "initialization with. Say how it depends on size when planning: own_init='fixed' "
            "(the same at every size, as in most transformers classes) or own_init='fan_in' "
            "(1/sqrt(fan-in), as torch's layers do); or use a base with values, or pass "
            "drawn=, what both were drawn from."
        )
    return laws


def initialize(plan: PlanContent, model: nn.Module, *, force: bool = False) -> None:
    """Rescale the model's own initialization in place, and attach explicit multipliers.

    The standard deviation of every parameter becomes the base's times the plan's factor, whatever
    the model's own dependence on size, which is divided out:

        w <- w * init / own ratio

    Works on sharded tensors, and after ``to_empty`` followed by the model's own initialization. A
    second call is an error; after a checkpoint was loaded, it does nothing but say so.
    """
    tensors = check(plan, model)
    marker = _marker(model)
    if marker is not None and not force:
        if marker.loaded:
            warnings.warn(
                "A checkpoint was loaded into this model, so its weights are not rescaled; "
                "explicit multipliers are attached. Pass force=True if the model was initialized "
                "anew since.",
                stacklevel=3,
            )
            hooks.attach(model, plan.multipliers)
            return
        raise RuntimeError(
            "This model was already initialized by a plan; doing so twice would rescale it twice. "
            "Pass force=True if its own initialization ran again since."
        )
    laws = own_laws(plan, model)
    with torch.no_grad():
        for p in plan.prescriptions:
            factor = p.init / laws[p.name].ratio
            if factor != 1.0:  # at the base the weights stay bit-identical
                tensors[p.name].mul_(factor)
    hooks.attach(model, plan.multipliers)
    tied = [m for m in plan.multipliers if m.where is Where.READOUT and m.hooks]
    if tied:
        warnings.warn(
            f"The input of {tied[0].hooks[0].module} is multiplied by {tied[0].value:.6g}, by a "
            f"hook: {tied[0].label} is also an embedding and cannot carry it. A checkpoint in the "
            "plain class computes something else: call plan.attach(model) after building the "
            "model, or save plan.export(model), in which the two are untied.",
            stacklevel=3,
        )
    if marker is None:
        unwrapped(model).register_load_state_dict_post_hook(_Initialized())
    else:
        marker.loaded = False
