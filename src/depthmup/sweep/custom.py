"""A custom model in a sweep: its name and the fingerprint of its code, which identify its runs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from depthmup.records import BASE_SHAPE, NUMERICS, RUN_AXES, Trial
from depthmup.records.codec import encode
from depthmup.sweep.design import Design, Size, Variant
from depthmup.sweep.run_laws import ratios_at, settings_under
from depthmup.sweep.sweep import Records, Sweep
from depthmup.sweep.tuning import INIT_SCALE, hyperparameters


@dataclass(frozen=True, kw_only=True)
class Custom:
    """What a store holds of a custom model.

    ``name`` and ``code`` are those of ``Trial``; ``planned`` says whether the library's plan is
    applied, under which all schemes agree at the base and share its runs.
    """

    name: str
    code: str
    planned: bool = True
    numerics: int = NUMERICS

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "custom", **encode(self)}

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "Custom":
        return Custom(**{k: v for k, v in raw.items() if k != "kind"})

    @property
    def title(self) -> str:
        return f"Learning-rate transfer: {self.name}"

    def check(self, design: Design) -> None:
        """Nothing: what axes a model takes, its functions say (``model.check_axes``)."""

    def run(self, design: Design, variant: Variant, size: Size, log2_lr: float, seed: int) -> Trial:
        """The run of a variant at a size. At the base all schemes agree, so one run serves all."""
        chosen = hyperparameters(design, variant, log2_lr)
        axes = set(design.base)
        # The steps are a field of every run, and the tokens follow. Where the plan is applied, the
        # batch and the steps of the base act through learning rate, decay and settings alone: then
        # runs are the same whatever the base's are.
        described = axes - {"steps", "tokens"} if self.planned else axes
        of_network = axes - {*RUN_AXES} if self.planned else axes
        laws, ratios = variant.run_laws, ratios_at(design, size)
        shared = self.planned and all(size[axis] == design.base[axis] for axis in of_network)
        return Trial(
            model=self.name,
            code=self.code,
            size={axis: n for axis, n in size.items() if axis in described},
            base={axis: n for axis, n in design.base.items() if axis in of_network},
            scheme=BASE_SHAPE if shared else variant.scheme.name,
            optimizer=variant.optimizer,
            lr=2.0 ** round(chosen.log2_lr + math.log2(laws.lr.at(ratios)), 9),
            multiplier=chosen.multiplier,
            weight_decay=chosen.weight_decay * laws.decay.at(ratios),
            steps=design.steps_at(size),
            seed=seed,
            settings={
                **settings_under(laws, ratios, variant.optimizer, chosen.settings),
                # A scale of one is no setting: such runs are those that never had one.
                **({} if chosen.init_scale == 1.0 else {INIT_SCALE: chosen.init_scale}),
            },
            numerics=self.numerics,
        )

    def work(self, run: Trial) -> float:
        return run.step_work * run.steps

    def chance(self, sweep: Sweep, records: Records, variant: Variant) -> float:
        """The base's loss before training, a geometric mean over seeds: what training must beat."""
        of_rates = sweep.points(variant, [sweep.design.base])[0]
        first = [records[trial].losses[:1] for trial in (of_rates[0] if of_rates else ())]
        known = [math.log(loss[0]) for loss in first if loss and loss[0] > 0]
        return math.exp(math.fsum(known) / len(known)) if known else math.inf
