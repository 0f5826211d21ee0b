"""Resolution: the sweep that a design asks for, with all that it leaves open filled in."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from depthmup.model import Command, Model, check_axes, check_names, names_of, resolved
from depthmup.records import RUN_AXES
from depthmup.records.grammar import either
from depthmup.records.sizes import parse_size
from depthmup.rules import DEPTH_MUP, SP, Family, Scheme, completep, family
from depthmup.statistics import check_asked
from depthmup.statistics.drift import check_tolerance
from depthmup.sweep import built_in
from depthmup.sweep.ablation import Acting, by_laws, with_ablations
from depthmup.sweep.auto import Auto
from depthmup.sweep.built_in import BuiltIn
from depthmup.sweep.custom import Custom, costs_of, trial_of
from depthmup.sweep.design import LARGEST_SIZE, Design, Size, whole_size
from depthmup.sweep.sweep import Sweep

USUAL_RATE = 2.0**-8
"""Learning rate at the base from which the optimum of a custom model is looked for, unless another
is given: within four octaves of that of most small models under Adam."""

USUAL_RATES: Mapping[Family, float] = {Family.RAW: 2.0**-3, Family.SPECTRAL: 2.0**-6}
"""The same for families whose updates are not of a size with Adam's: around the 0.1 that SGD is
usually begun with, and the 0.02 that Muon is."""


def resolved_sweep(
    model: Model | BuiltIn,
    design: Design,
    target: Size | str | None = None,
    *,
    seconds: float | None = None,
) -> tuple[Sweep, Size | None]:
    """The sweep of a design, with all that it leaves open filled in, and the whole target."""
    if not isinstance(model, Model | BuiltIn):
        raise TypeError(
            "Expected a depthmup.Model(make, batch=batch) or depthmup.BuiltIn(); got "
            f"{type(model).__name__}."
        )
    if not isinstance(design, Design):
        raise TypeError(
            "Expected a depthmup.Design(base=..., depth=...) after the model; got "
            f"{type(design).__name__}."
        )
    if target is not None:
        target = _target(design, target)
        design = design.toward(target)
    _check_schedule(model, design)
    if isinstance(model, BuiltIn):
        built_in.check_axes(design.base)
        model = _batched(model, {**design.base, **design.counted})
        # The decay of Adam itself stands in its gradient and cannot transfer.
        decays = any(one.key == "weight_decay" for one in design.tuned)
        usual = "adamw" if decays else "adam"
        rule = DEPTH_MUP if model.block_depth == 1 else completep()
        design = replace(design, schemes=design.schemes or (rule,))
        design = _started(design, usual, partial(built_in.usual_rate, design.base))
        design, _ = with_ablations(design, partial(_of_cells, model, design))
        return Sweep(model=model, design=design), target
    design = _started(
        design, "adamw", lambda optimizer: USUAL_RATES.get(family(optimizer), USUAL_RATE)
    )
    own = resolved(model)
    if own.command is not None:
        _check_command(own.command, design)
    check_axes(own, {**design.base, **design.counted})
    custom = Custom(
        name=model.name,
        code=model.code,
        planned=not own.whole and own.plan is None,
        untrained_loss=own.command is None,
        loss="" if own.command is None else own.command.column,
    )
    if not design.schemes:
        design = replace(design, schemes=(_scheme_for(model, custom, design, seconds),))
    custom = replace(custom, costs=costs_of(custom, own.cost, design))
    design, acting = with_ablations(design, partial(_acting, model, custom, design, seconds))
    if custom.planned:
        custom = replace(custom, acting=acting)
    return Sweep(model=custom, design=design), target


def _of_cells(model: BuiltIn, design: Design, whole: Scheme, rules: Sequence[str]) -> Acting:
    """Where rules act in a built-in network: along an axis at the end of which a run differs."""
    found: dict[str, tuple[str, ...]] = {}
    for rule in rules:
        asked = replace(design, schemes=(whole, whole.without(rule)), ablate=None)
        one, other = asked.variants
        found[rule] = tuple(
            axis
            for axis in design.axes
            if built_in.cell_of(model, asked, one, design.sizes_along(axis)[-1], 0.0, 0)
            != built_in.cell_of(model, asked, other, design.sizes_along(axis)[-1], 0.0, 0)
        )
    return found


def _acting(
    model: Model,
    custom: Custom,
    design: Design,
    seconds: float | None,
    whole: Scheme,
    rules: Sequence[str],
) -> Acting:
    """Where rules act: in plans at the ends of the axes, or by the laws where nothing is planned.

    Of batch and duration the laws say it: plans of one shape are the same.
    """
    by_law = by_laws(design, whole, rules)
    if not custom.planned:
        return by_law
    from depthmup.training.preflight import acting_rules

    ends = {
        axis: trial_of(custom, design, design.variants[0], design.sizes_along(axis)[-1], 0.0, 0)
        for axis in design.axes
        if axis not in RUN_AXES and len(design.arm(axis)) > 1
    }
    planned = acting_rules(model, ends, seconds=seconds)
    return {
        rule: tuple(
            axis
            for axis in design.axes
            if (rule in planned[axis] if axis in planned else axis in by_law[rule])
        )
        for rule in rules
    }


def _batched(model: BuiltIn, base: Size) -> BuiltIn:
    """The built-in network with the batch of the base, where that is an axis."""
    batch = base.get("batch", model.batch_size)
    if model.batch_size not in (batch, BuiltIn().batch_size):
        raise ValueError(
            f"Expected one batch size; the base has {batch}, and the network {model.batch_size} "
            f"({either('batch_size', '--batch-size')}). Leave it out of one of them."
        )
    return replace(model, batch_size=batch)


def _started(design: Design, optimizer: str, usual: Callable[[str], float]) -> Design:
    """The design with an optimizer, and with the start of each one's search."""
    design = replace(design, optimizers=design.optimizers or (optimizer,))
    if isinstance(design.grid, tuple):
        return design
    auto, optimizers = design.grid or Auto(), design.optimizers or ()
    if design.beside:
        given = auto.start if isinstance(auto.start, Mapping) else {}
        own = {one.key: one.start for one in design.tuned}
        if "lr" in own:
            own["lr"] = usual(optimizers[0])
        return design.with_grid(replace(auto, start={**own, **given}))
    if auto.start is not None:
        for name in optimizers:
            auto.start_of(name)
        return design.with_grid(auto)
    if not design.tune.is_learning_rate:
        return design.with_grid(replace(auto, start=design.tune.start))
    starts = {name: usual(name) for name in optimizers}
    first, *others = starts.values()
    return design.with_grid(
        replace(auto, start=starts if any(rate != first for rate in others) else first)
    )


def _scheme_for(model: Model, custom: Custom, design: Design, seconds: float | None) -> Scheme:
    """The scheme that the blocks of a model ask for; a command runs as it is, under SP."""
    if (command := resolved(model).command) is not None:
        if "scheme" in command.placeholders:
            raise ValueError(
                "Expected schemes for a command that takes {scheme}, such as "
                + either("Design(..., schemes=('sp', 'completep')).", "--schemes sp completep.")
            )
        return SP
    if not custom.planned:
        return DEPTH_MUP
    from depthmup.training.preflight import suitable_scheme

    optimizer, *_ = design.optimizers or ("adamw",)
    return suitable_scheme(model, design.base, optimizer, design.settings, seconds=seconds)


def _check_schedule(model: BuiltIn | Model, design: Design) -> None:
    """Refuse to tune the cooldown of a schedule that has none."""
    own = isinstance(model, Model) and (resolved(model).command or resolved(model).whole)
    if any(one.key == "cooldown" for one in design.tuned) and not own:
        raise ValueError(
            "Expected a command or a training function of your own to tune the cooldown of, as "
            "'python train.py --cooldown {cooldown}'; schedules of this package have none."
        )


_OF_TRIAL = ("lr", "weight_decay", "multiplier", "init_scale")
"""What a run has of what is tuned that is no setting of its own."""


def _check_command(command: Command, design: Design) -> None:
    """Refuse a design of which a command takes no notice."""
    keys = [one.key for one in design.tuned]
    settings = {*design.settings, *(key for key in keys if key not in _OF_TRIAL)}
    if "one_minus_beta2" in settings:
        settings = {*settings, "betas"} - {"one_minus_beta2"}
    named = [name for names in names_of(settings).values() for name in names]
    check_names(command, design.base, named)
    _need(command, "lr", "the learning rate")
    if design.seeds > 1:
        _need(command, "seed", "the seed: the same run would be repeated")
    for one in design.tuned:
        of_beta2 = one.key == "one_minus_beta2" and "beta2" in command.placeholders
        if not one.is_learning_rate and not of_beta2:
            _need(command, one.key, f"{one.the}, which is tuned")
    if any(value != 1.0 for value in design.multipliers):
        _need(command, "multiplier", "the branch multiplier")
    if any(design.weight_decays):
        _need(command, "weight_decay", "the weight decay")
    if len(design.optimizers or ()) > 1:
        _need(command, "optimizer", "the optimizer")
    if any(scheme.name != SP.name for scheme in design.schemes or ()):
        _need(command, "scheme", "the scheme: your script has to apply it")


def _need(command: Command, name: str, what: str) -> None:
    if name not in command.placeholders:
        raise ValueError(
            f"Expected {{{name}}} in the command, by which your script is given {what}; got "
            f"{command.template!r}."
        )


def _target(design: Design, target: Size | str) -> Size:
    if isinstance(target, str):
        target = parse_size(target, option="target")
    if not isinstance(target, Mapping) or not set(target) <= set(design.base):
        given = target if isinstance(target, Mapping) else ()
        near = [n for a in given for n in difflib.get_close_matches(str(a), design.base, n=1)]
        raise ValueError(
            f"Expected target to name values of {', '.join(design.base)}, such as "
            f"{{'depth': 64}}; got {target!r}." + (f" Did you mean {near[0]}?" if near else "")
        )
    whole = whole_size({**design.base, **target}, "the target")
    for axis, value in whole.items():
        if value != design.base[axis] and len({size[axis] for size in design.all_sizes}) < 2:
            start = design.base[axis]
            raise ValueError(
                f"The target has {axis} {value}, and the design has {axis} {start} alone: nothing "
                f"would be known of {axis}. Vary it, such as "
                f"{_varied(axis, (start, 2 * start, 4 * start))}, or leave it out of the target."
            )
    design.steps_at(whole)
    return whole


def _varied(axis: str, values: tuple[int, ...]) -> str:
    """How several sizes along an axis are asked for."""
    numbers = ",".join(map(str, values))
    own = f"--{axis}s " if axis in ("width", "depth") else f"--along {axis}="
    return either(f"{axis}={values}", f"{own}{numbers}")


def check_resolved(sweep: Sweep, target: Size | None, tolerance: float) -> None:
    """Refuse a sweep that can have no verdict, or a target without a certificate."""
    design = sweep.design
    check_tolerance(tolerance)
    if len(design.all_sizes) < 2:
        raise ValueError(
            f"Expected at least two sizes along an axis; got {dict(design.all_sizes[0])} alone. "
            "Transfer is measured between sizes: give "
            + either("Design(..., depth=(4, 8, 16)).", "--depths 4,8,16.")
        )
    if beyond := [axis for axis, n in (target or {}).items() if n > LARGEST_SIZE]:
        raise ValueError(
            f"Expected a target of at most 2^80 along each axis; its {beyond[0]} is larger."
        )
    if target is not None and design.auto is None:
        check_asked(design.log2_values, target, design.tune)
