"""A sweep: the design of a model resolved to runs, from which studies and certificates are made."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from depthmup.records import Record
from depthmup.records.search import Values
from depthmup.records.text import begin
from depthmup.records.trial import written
from depthmup.statistics import Array
from depthmup.sweep.ablation import of_interest
from depthmup.sweep.built_in import BuiltIn, cell_of, check_design
from depthmup.sweep.cost import work
from depthmup.sweep.custom import Custom, trial_of
from depthmup.sweep.design import Design, Size, Variant
from depthmup.sweep.question import question, tuning

_SHOWN = (
    *("schemes", "optimizers", "multipliers", "weight_decays", "run", "settings", "seeds"),
    *("steps", "window", "sizes"),
)
"""Fields of a design that a page lists as they are."""

Records: TypeAlias = Mapping[Any, Record[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Losses:
    """Mean losses over a window of training.

    ``values`` is (sizes, learning rates, seeds), infinite where a run diverged and NaN where none
    was made. ``chance`` is the loss of a uniform guess.
    """

    sizes: tuple[Size, ...]
    log2_lrs: tuple[float, ...]
    values: Array
    chance: float


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Sizes x variants x learning rates x seeds of a model, as runs.

    Where learning rates are found as the sweep goes (``sweep.strategy``), ``asked`` is how many
    seeds a log2 rate has so far, by variant and index of the size. It follows from the records, and
    is no part of what identifies a sweep.
    """

    model: BuiltIn | Custom
    design: Design
    asked: Mapping[tuple[str, int], Mapping[Any, int]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        values = "lrs" if self.design.tune.is_learning_rate else "values"
        needed = {values: self.design.grid, "schemes": self.design.schemes}
        for name, given in {**needed, "optimizers": self.design.optimizers}.items():
            if given is None:
                raise ValueError(f"Expected a design with {name}; this one leaves them open.")
        if isinstance(self.model, BuiltIn):
            check_design(self.design)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold; ``Sweep.from_dict`` reads it back."""
        return {"model": self.model.to_dict(), "design": self.design.to_dict()}

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "Sweep":
        """The sweep that ``to_dict`` described; raises anything of what another program wrote."""
        kinds: dict[str, type[BuiltIn] | type[Custom]] = {"built-in": BuiltIn, "custom": Custom}
        model = kinds[raw["model"]["kind"]].from_dict(raw["model"])
        return Sweep(model=model, design=Design.from_dict(raw["design"]))

    @property
    def title(self) -> str:
        """Of the page, where none is given."""
        what = self.design.tune
        tuned = "Learning-rate" if what.is_learning_rate else begin(what.name)
        tuned = "Recipe" if self.design.beside else tuned
        of_model = f": {self.model.name}" if isinstance(self.model, Custom) else ""
        return f"{tuned} transfer{of_model}"

    @property
    def config(self) -> dict[str, Any]:
        """The settings that a page lists, by name."""
        design, what = self.design, self.design.tune
        described = design.to_dict()
        # The tuned value's own list, such as weight_decays, holds none of its values.
        own = {f"{one.key}s" for one in design.tuned}
        shown = [name for name in _SHOWN if name in described and name not in own]
        found = [round(k, 4) for k in design.log2_values] or "as the sweep went"
        held: dict[str, Any] = {}
        if design.beside:
            start = design.auto.start if design.auto else None
            begun = start.items() if isinstance(start, Mapping) else ()
            held = {"tune": [one.name for one in design.tuned]}
            held |= {f"start_{key}": written(value) for key, value in begun}
        if design.log2_lrs and not what.is_learning_rate:
            held |= {"tune": what.name} if not design.beside else {}
            held |= {"lr": written(described["lrs"][0])}
        about = tuning(design)
        if isinstance(self.model, Custom) and not self.model.planned:
            about = about[:1]  # what moves with size is then the person's own doing
        told = {"tuned": list(about), "question": list(question(design))}
        values = {name: described[name] for name in shown}
        return {
            **{name: sentences for name, sentences in told.items() if sentences},
            **{k: v for k, v in self.model.to_dict().items() if k not in ("kind", "costs")},
            **{f"base_{axis}": value for axis, value in design.base.items()},
            **held,
            **{k: v for k, v in values.items() if v or k not in ("settings", "sizes")},
            "log2_lrs" if what.is_learning_rate and not design.beside else "log2_values": found,
            **described["arms"],
        }

    @cached_property
    def runs(self) -> tuple[Any, ...]:
        """The different runs, each once: variants that agree somewhere share their runs there."""
        unique = {
            run: None
            for variant in self.design.variants
            for of_rates in self.points(variant, self.design.all_sizes)
            for of_seeds in of_rates
            for run in of_seeds
        }
        return tuple(unique)

    def points(self, variant: Variant, sizes: Iterable[Size]) -> list[list[tuple[Any, ...]]]:
        """The runs of a variant by size, learning rate and seed; ragged where rates are found."""
        return [
            [self.curve(variant, size, log2_lr) for log2_lr in self.rates(variant, size)]
            for size in sizes
        ]

    def rates(self, variant: Variant, size: Size) -> tuple[Any, ...]:
        """The log2 values of what is tuned, of a variant at a size, increasing."""
        if self.design.auto is None:
            return self.design.log2_values
        return tuple(sorted(self._asked(variant, size)))

    def _asked(self, variant: Variant, size: Size) -> Mapping[Any, int]:
        sizes = self.design.all_sizes
        return self.asked.get((variant.name, sizes.index(size)), {}) if size in sizes else {}

    def with_shared_runs(self) -> "Sweep":
        """The sweep in which variants that agree at a size, as at the base, have each other's runs
        there, whichever of them asked.
        """
        shared: dict[Any, dict[Any, int]] = {}
        of_variants = {}
        for (name, i), asked in self.asked.items():
            size = self.design.all_sizes[i]
            alike = self.run(self.design.variant(name), size, 0.0, 0)
            of_variants[name, i] = together = shared.setdefault(alike, {})
            for log2_lr, seeds in asked.items():
                together[log2_lr] = max(seeds, together.get(log2_lr, 0))
        return replace(self, asked=of_variants)

    def curve(self, variant: Variant, size: Size, log2_lr: Values) -> tuple[Any, ...]:
        """The runs of one point of a curve, one for each seed."""
        seeds = self.design.seeds
        if self.design.auto is not None:
            seeds = self._asked(variant, size).get(log2_lr, 0)
        point = (variant.name, tuple(size.items()), log2_lr)
        if point not in self._points:  # asked for once per window of training
            first = self.run(variant, size, log2_lr, seed=0)
            self._points[point] = tuple(replace(first, seed=seed) for seed in range(seeds))
        return self._points[point]

    @cached_property
    def _points(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        return {}

    def run(self, variant: Variant, size: Size, log2_lr: Values, seed: int) -> Any:
        """The run of a variant at a size."""
        if isinstance(self.model, BuiltIn):
            return cell_of(self.model, self.design, variant, size, log2_lr, seed)
        return trial_of(self.model, self.design, variant, size, log2_lr, seed)

    def sizes_of(self, variant: Variant) -> list[Size]:
        """The sizes at which a search looks for the optimum of a variant."""
        whole = self.design.variants[0]

        def agrees(size: Size) -> bool:
            return bool(self.run(variant, size, 0.0, 0) == self.run(whole, size, 0.0, 0))

        return of_interest(self.design, variant, agrees)

    def work(self, run: Any) -> float:
        """Parameters times steps, or what a person's own function gives, for one run."""
        return work(run) if isinstance(self.model, BuiltIn) else self.model.work(run)

    def chance(self, records: Records, variant: Variant) -> float:
        """The loss of guessing, which a size must beat to count as trained; infinite if unknown."""
        if isinstance(self.model, BuiltIn):
            return math.log(self.model.classes)
        if not self.model.untrained_loss:
            return math.inf
        of_rates = self.points(variant, [self.design.base])[0]
        base = [records[run] for run in (of_rates[0] if of_rates else ())]
        # Of a custom model the base's loss before training, a geometric mean over seeds. A function
        # that trains may return its final loss alone, once or for every step: that is no start.
        first = [record.losses[0] for record in base if record.shows_start]
        known = [math.log(loss) for loss in first if loss > 0]
        return math.exp(math.fsum(known) / len(known)) if known else math.inf
