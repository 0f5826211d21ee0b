"""Export: a copy of a planned model whose plain class computes the same, without hooks."""

import copy

from torch import nn

from depthmup.planning import hooks
from depthmup.planning.sites import Multiplier
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


def export(model: nn.Module, multipliers: tuple[Multiplier, ...]) -> nn.Module:
    """A copy of ``model`` whose explicit multipliers went into weights of their own.

    What is tied comes apart: an output layer that shares the embedding's table gets A times it,

        head(A x) = (A W) x,

    so that the copy's ``state_dict`` can be loaded into the plain class, built untied. The model
    itself is left alone.
    """
    exported = copy.deepcopy(unwrapped(model))
    hooks.detach(exported)
    modules = named_modules(exported)
    for multiplier in multipliers:
        for hook in multiplier.hooks:
            _carry(hooks.holder_of(hook, modules), hook, multiplier.value)
    config = getattr(exported, "config", None)
    if config is not None and getattr(config, "tie_word_embeddings", False):
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
    fits = isinstance(module, _LINEAR if onto_input else _PROPORTIONAL)
    if hook.part and not isinstance(module, nn.Linear):
        fits = False
    if not fits or hook.index or not isinstance(weight, nn.Parameter):
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
