"""A custom model in a sweep: its name and the fingerprint of its code, which identify its runs."""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from depthmup.model.command import INIT_SCALE
from depthmup.records import BASE_SHAPE, NUMERICS, RUN_AXES, Trial
from depthmup.records.codec import decode, encode
from depthmup.records.search import Values
from depthmup.sweep.ablation import Acting, scheme_at
from depthmup.sweep.design import Design, Size, Variant
from depthmup.sweep.hyperparameters import hyperparameters, ratios_at, settings_under

Cost: TypeAlias = tuple[Mapping[str, int], int, float]
"""A run's size, its steps and what it costs."""


@dataclass(frozen=True, kw_only=True)
class Custom:
    """The name and the code of a custom model, as of ``Trial``, and what else a store holds of it.

    ``planned``: the library's plan is applied, under which all schemes agree at the base and share
    its runs. ``untrained_loss``: a run's first loss is that of the untrained model; a command
    reports its own later, under the name ``loss``. ``costs`` are a person's own, by which a search
    is replayed. ``acting`` are the axes along which each rule acts that variants do without.
    """

    name: str
    code: str
    planned: bool = True
    numerics: int = NUMERICS
    costs: tuple[Cost, ...] = ()
    untrained_loss: bool = True
    loss: str = ""
    acting: Acting = field(default_factory=dict, hash=False)

    def to_dict(self) -> dict[str, Any]:
        raw = {"kind": "custom", **encode(self)}
        usual = {
            "costs": not self.costs,
            "untrained_loss": self.untrained_loss,
            "loss": not self.loss,
            "acting": not self.acting,
        }
        return {k: v for k, v in raw.items() if not usual.get(k)}

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "Custom":
        return decode(Custom, {k: v for k, v in raw.items() if k != "kind"}, "the model")

    def work(self, run: Trial) -> float:
        """Parameters times steps, or what the person's own function says."""
        usual = run.step_work * run.steps
        if not self.costs:
            return usual
        for size, steps, cost in self.costs:
            if dict(run.size) == dict(size) and run.steps == steps:
                return cost
        # Of another batch or length: in proportion. Of another network, such as a probe's: as the
        # median size would have it.
        own = [one for one in self.costs if _network(one[0]) == _network(run.size)]
        return usual * statistics.median(
            cost / (replace(run, size=size, steps=steps).step_work * steps)
            for size, steps, cost in own or self.costs
        )


def _network(size: Mapping[str, int]) -> dict[str, int]:
    """A size without what does not change its network."""
    return {axis: n for axis, n in size.items() if axis not in RUN_AXES}


def trial_of(
    model: Custom, design: Design, variant: Variant, size: Size, log2_value: Values, seed: int
) -> Trial:
    """The run of a variant at a size. At the base all schemes agree, so one run serves all."""
    variant, log2_lr, settings = hyperparameters(design, variant, log2_value)
    init_scale = settings.pop(INIT_SCALE, 1.0)
    whole, steps = design.run_size(size, log2_value)
    axes = set(whole)
    # The steps are a field of every run, and the tokens follow. Where the plan is applied, the
    # batch and the steps of the base act through learning rate, decay and settings alone: then
    # runs are the same whatever the base's are.
    described = axes - {"steps", "tokens"} if model.planned else axes
    of_network = {*design.base} - ({*RUN_AXES} if model.planned else set())
    laws, ratios = variant.run_laws, ratios_at(design, size)
    shared = model.planned and all(size[axis] == design.base[axis] for axis in of_network)
    return Trial(
        model=model.name,
        code=model.code,
        size={axis: n for axis, n in whole.items() if axis in described},
        base={axis: n for axis, n in design.base.items() if axis in of_network},
        scheme=(
            BASE_SHAPE
            if shared
            else scheme_at(variant.scheme.name, model.acting, size, design.base)
        ),
        optimizer=variant.optimizer,
        lr=2.0 ** round(log2_lr + math.log2(laws.lr.at(ratios)), 9),
        multiplier=variant.multiplier,
        weight_decay=variant.weight_decay * laws.decay.at(ratios),
        steps=steps,
        seed=seed,
        settings={
            **settings_under(laws, ratios, variant.optimizer, settings),
            # A scale of one is no setting: such runs are those that never had one.
            **({} if init_scale == 1.0 else {INIT_SCALE: init_scale}),
        },
        numerics=model.numerics,
    )


def costs_of(
    model: Custom, cost: Callable[[Size], float] | None, design: Design
) -> tuple[Cost, ...]:
    """A person's own function of every size, if there is one."""
    costs = []
    if cost is None:
        return ()
    from depthmup._isolated import isolated  # which loads torch

    for size in design.all_sizes:
        run = trial_of(model, design, design.variants[0], size, 0.0, 0)
        whole, steps = design.run_size(size)
        with isolated():
            value = cost({**whole, **({"steps": steps} if "steps" in design.counted else {})})
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"Expected cost(size) to return a number; got {value!r}.")
        if not 0 < value < math.inf:
            raise ValueError(f"Expected cost(size) to be positive; at {size} it is {value}.")
        costs.append((dict(run.size), run.steps, float(value)))
    return tuple(costs)
