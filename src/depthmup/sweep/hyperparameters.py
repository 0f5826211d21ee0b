"""The hyperparameters of a run: the base's, with one value of what is tuned, and at a size.

A scheme moves them with the size of the network, a rule of the run with batch and duration. A rule
is the same for all parameters, so it is written into a run's description: two runs that would train
identically are equal, whichever rule asked for them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from depthmup.model.command import INIT_SCALE
from depthmup.records import Cell, Tuned
from depthmup.records.search import Values
from depthmup.rules import (
    BETAS,
    EPSILON,
    HIDDEN_IN_BRANCH,
    Family,
    Power,
    Ratios,
    RunLaws,
    family,
)
from depthmup.sweep.design import Design, Size, Variant


def hyperparameters(
    design: Design, variant: Variant, log2_value: Values
) -> tuple[Variant, float, dict[str, Any]]:
    """A variant, its log2 learning rate and its settings at the base, with values of ``tune``.

    One value stands for each of several, where a run only tells what all runs have alike.
    """
    settings = dict(design.settings)
    if INIT_SCALE in settings:
        settings[INIT_SCALE] = float(settings[INIT_SCALE])
    values = log2_value if isinstance(log2_value, tuple) else (log2_value,) * len(design.tuned)
    log2_lr = design.log2_lrs[0] if design.log2_lrs else values[0]
    for what, log2 in zip(design.tuned, values, strict=True):
        value = 2.0 ** round(log2, 9)
        match what.key:
            case "lr":
                log2_lr = log2
            case "weight_decay" | "multiplier":
                variant = replace(variant, **{what.key: value})
            case "one_minus_beta2":
                usual = BETAS.get(variant.optimizer, (0.9, 0.999))
                beta1, _ = settings.get("betas", usual)
                settings["betas"] = [beta1, 1.0 - value]
            case "batch" | "steps":  # of the run: ``Design.run_size``
                pass
            case _:  # the initial scale, and what a person's own script takes
                settings[what.key] = value
    return variant, log2_lr, settings


def tuned_in(run: Any, what: Tuned) -> dict[str, Any]:
    """What a run has of the hyperparameter that is tuned, as columns, where a row lacks it."""
    cell = isinstance(run, Cell)
    if not cell and what.key in run.settings:
        return {what.key: run.settings[what.key]}
    match what.key:
        case "steps":
            return {"steps": run.steps}
        case "init_scale" if cell:
            return {"hidden_std": run.network.hidden_std}
        case "init_scale":  # a scale of one is no setting
            return {INIT_SCALE: 1.0}
        case "one_minus_beta2" if cell:
            return {"beta2": run.optimizer.beta2}
        case "one_minus_beta2":
            return {"beta2": run.settings["betas"][1]}
    return {}


def law_of(what: Tuned, variant: Variant) -> Power:
    """How a variant moves what is tuned with size, inside residual branches."""
    if not what.law:  # no rule moves it
        return Power()
    of_run: Power = getattr(variant.run_laws, what.law, Power())
    if what.law == "branch":
        return variant.scheme.branch
    if what.law == "one_minus_beta":
        return of_run
    optimizer: Family = family(variant.optimizer)
    of_size = replace(variant.scheme, run=RunLaws()).laws(HIDDEN_IN_BRANCH, optimizer)
    power: Power = getattr(of_size, what.law, Power())
    return power * of_run


def ratios_at(design: Design, size: Size) -> Ratios:
    """A size as multiples of the base; the duration is in tokens, which are batch times steps."""
    of = {axis: size[axis] / design.base[axis] for axis in size}
    batch = of.get("batch", 1.0)
    steps = design.steps_at(size) / design.steps
    width, depth = of.get("width", 1.0), of.get("depth", 1.0)
    return Ratios(fan_in=width, fan_out=width, depth=depth, batch=batch, duration=batch * steps)


def settings_under(
    laws: RunLaws, ratios: Ratios, optimizer: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """An optimizer's settings with epsilon and betas as laws move them, if it has these."""
    moved = dict(settings)
    if family(optimizer) is Family.RAW:
        return moved
    factor = laws.epsilon.at(ratios)
    if factor != 1.0 and (epsilon := settings.get("eps", EPSILON.get(optimizer))) is not None:
        moved["eps"] = epsilon * factor
    if (betas := settings.get("betas", BETAS.get(optimizer))) is not None:
        at_size = laws.betas(tuple(betas), ratios)
        if at_size != tuple(betas):
            moved["betas"] = list(at_size)
    return moved
