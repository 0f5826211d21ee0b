"""Export: a copy of a planned model whose plain class computes the same, without hooks."""

import copy

from torch import nn

from depthmup.planning import hooks
from depthmup.planning.content import PlanContent
from depthmup.tracing import Hook, named_modules, unwrapped

# Modules whose output is proportional to weight and bias together.
_PROPORTIONAL = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.Embedding,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.RMSNorm,
)
# Modules whose output is weight times input, plus a bias that an input's factor leaves alone.
_LINEAR = _PROPORTIONAL[:7]


def export(plan: PlanContent, model: nn.Module) -> nn.Module:
    """A copy of ``model`` whose explicit multipliers went into weights of their own.

    What is tied comes apart: an output layer that shares the embedding's table gets A times it,

        head(A x) = (A W) x,

    so that the copy's ``state_dict`` can be loaded into the plain class, built untied. The model
    itself is left alone.
    """
    exported = copy.deepcopy(unwrapped(model))
    hooks.detach(exported)
    modules = named_modules(exported)
    # A table that is read in two ways under one name cannot come apart.
    whole = {p.name for p in plan.prescriptions if p.role.tied and len(p.names) == 1}
    factors = hooks.by_hook(plan.multipliers)
    for hook, factor in factors.items():
        if hook.side != "parameter" and f"{hook.module}.weight" in whole:
            raise ValueError(
                f"The {hook.side} of {hook.module} is multiplied by {factor:.6g}, and the readout "
                f"reads {hook.module}.weight as well, which the factor must leave alone. The plain "
                "class needs the hook: call plan.attach(model) after building it, or give the "
                "readout a module of its own (head.weight = tokens.weight)."
            )
        _carry(hooks.holder_of(hook, modules), hook, factor)
    config = getattr(exported, "config", None)
    if config is not None and factors and getattr(config, "tie_word_embeddings", False):
        config.tie_word_embeddings = False  # transformers would tie them again on loading
    return exported


def _carry(module: nn.Module, hook: Hook, factor: float) -> None:
    if hook.side == "parameter":
        key = hook.parameter.rpartition(".")[2]
        whole = module._parameters[key]
        assert whole is not None
        scaled = whole.detach().clone()
        for start, stop in hook.part:
            scaled.narrow(hook.dim, start, stop - start).mul_(factor)
        if not hook.part:
            scaled.mul_(factor)
        setattr(module, key, nn.Parameter(scaled, whole.requires_grad))
        return
    onto_input = hook.side == "input"
    weight = getattr(module, "weight", None)
    fits = _computes_as(module, _LINEAR if onto_input else _PROPORTIONAL)
    if hook.part and not isinstance(module, nn.Linear):
        fits = False
    whole_block = hook.side == "addition"
    if not fits or whole_block or hook.index or not isinstance(weight, nn.Parameter):
        raise ValueError(
            f"The {hook.side} of {hook.module} is multiplied by {factor:.6g}, and its "
            f"{type(module).__name__} has no weight that could carry it. The plain class needs "
            "the hook: call plan.attach(model) after building it."
        )
    names = ["weight"] if onto_input else ["weight", "bias"]
    for name in names:
        parameter = getattr(module, name, None)
        if isinstance(parameter, nn.Parameter):
            values = parameter.detach().clone()
            for start, stop in hook.part or ((0, len(values)),):
                values[start:stop] *= factor
            setattr(module, name, nn.Parameter(values, parameter.requires_grad))


def _computes_as(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    """Whether a module is of one of these kinds, and computes what that kind does."""
    return any(
        isinstance(module, kind)
        # Tables of transformers shift positions or scale rows: proportional to the weight still.
        and (kind is nn.Embedding or type(module).forward is kind.forward)
        for kind in kinds
    )
