"""Grids of trials: a person's own model over sizes, learning rates and seeds."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from depthmup.records import BASE_SHAPE, NUMERICS, Axis, Record, Trial
from depthmup.rules import DEPTH_MUP, Scheme, family, scheme
from depthmup.sweep.bounds import check_octaves, check_runs
from depthmup.sweep.design import LAST, STEPS, Records, Size, Variant
from depthmup.sweep.jobs import Tell

if TYPE_CHECKING:
    from depthmup.training.functions import Functions

KIND = "trials"
"""How sessions of custom models are told from those of the built-in networks, in a store."""


@dataclass(frozen=True, kw_only=True)
class TrialGrid:
    """Schemes x optimizers x multipliers x decays, over widths, depths, learning rates and seeds.

    Sizes lie on two arms that meet at the base: all ``depths`` at the base's width, and all
    ``widths`` at the base's depth; ``corners`` grow in both, for what neither arm can show.
    ``log2_lrs`` are those of learning rates at the base. ``model``
    and ``code`` name what is trained, as in ``Trial``; ``planned`` says whether the library's plan
    is applied, under which all schemes agree at the base and share its runs.
    """

    model: str
    code: str
    base: Size
    widths: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()
    corners: tuple[Size, ...] = ()
    log2_lrs: tuple[float, ...]
    schemes: tuple[Scheme, ...] = (DEPTH_MUP,)
    optimizers: tuple[str, ...] = ("adamw",)
    multipliers: tuple[float, ...] = (1.0,)
    weight_decays: tuple[float, ...] = (0.0,)
    seeds: int = 3
    steps: int = 200
    window: int = 40
    settings: Mapping[str, Any] = field(default_factory=dict)
    planned: bool = True
    numerics: int = NUMERICS

    def __post_init__(self) -> None:
        _check(self)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold; ``TrialGrid.from_dict`` reads it back."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["schemes"] = [each.name for each in self.schemes]
        plain["corners"] = [list(size) for size in self.corners]
        if not self.corners:  # as sessions of earlier versions have it
            del plain["corners"]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "TrialGrid":
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
        values["schemes"] = tuple(scheme(name) for name in values["schemes"])
        values["corners"] = tuple((w, d) for w, d in values.get("corners", ()))
        return TrialGrid(**values)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What grows: depth, width or both."""
        found: list[Axis] = []
        if len(self.depths) > 1 or not self.widths:
            found.append("depth")
        if len(self.widths) > 1:
            found.append("width")
        return tuple(found)

    def sizes(self, axis: Axis) -> tuple[Size, ...]:
        """The sizes along an axis, the other one at the base's."""
        width, depth = self.base
        if axis == "depth":
            return tuple((width, each) for each in self.depths or (depth,))
        return tuple((each, depth) for each in self.widths)

    @cached_property
    def all_sizes(self) -> tuple[Size, ...]:
        """Those of all axes, and the corners."""
        along = [size for axis in self.axes for size in self.sizes(axis)]
        return tuple(dict.fromkeys([*along, *self.corners]))

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Every combination; what there is one of is not named."""
        found = []
        for each, optimizer, multiplier, decay in product(
            self.schemes, self.optimizers, self.multipliers, self.weight_decays
        ):
            suffixes = []
            if len(self.optimizers) > 1:
                suffixes.append(optimizer)
            if len(self.multipliers) > 1:
                suffixes.append(f"a={multiplier:g}")
            if len(self.weight_decays) > 1:
                suffixes.append(f"decay={decay:g}")
            found.append(
                Variant(
                    scheme=each,
                    optimizer=optimizer,
                    multiplier=multiplier,
                    weight_decay=decay,
                    name=" ".join([each.name, *suffixes]),
                    title=" ".join([each.title, *suffixes]),
                )
            )
        return tuple(found)

    @cached_property
    def runs(self) -> tuple[Trial, ...]:
        """The different runs, each once."""
        unique = {
            trial.key: trial
            for size in self.all_sizes
            for variant in self.variants
            for log2_lr in self.log2_lrs
            for trial in self.curve(variant, size, log2_lr)
        }
        return tuple(unique.values())

    @property
    def title(self) -> str:
        return f"Learning-rate transfer: {self.model}"

    @property
    def base_size(self) -> Size:
        return self.base

    def shown_width(self, size: Size) -> int | None:
        return size[0]

    def chance(self, records: Records, variant: Variant) -> float:
        """The base's loss before training, averaged over seeds: what a model must get below."""
        at_base = self.curve(variant, self.base, self.log2_lrs[0])
        first = [records[trial].losses[:1] for trial in at_base]
        known = [math.log(loss[0]) for loss in first if loss and loss[0] > 0]
        return math.exp(math.fsum(known) / len(known)) if known else math.inf

    def rate_unit(self, variant: Variant) -> float:
        return 1.0

    def probed(self, variant: Variant) -> "ProbedTrials":
        return ProbedTrials(grid=self, variant=variant)

    def config(self) -> dict[str, Any]:
        return {**self.to_dict(), "base_width": self.base[0], "base_depth": self.base[1]}

    def curve(self, variant: Variant, size: Size, log2_lr: float) -> Iterator[Trial]:
        """The trials of one point of a curve, one for each seed."""
        for seed in range(self.seeds):
            yield self.trial(variant, size, log2_lr, seed)

    def points(self, variant: Variant, sizes: Iterable[Size]) -> list[list[tuple[Trial, ...]]]:
        """The trials of a variant by size, learning rate and seed."""
        return [
            [tuple(self.curve(variant, size, log2_lr)) for log2_lr in self.log2_lrs]
            for size in sizes
        ]

    def trial(self, variant: Variant, size: Size, log2_lr: float, seed: int) -> Trial:
        """The run of a variant at a size."""
        shared = self.planned and size == self.base
        return Trial(
            model=self.model,
            code=self.code,
            width=size[0],
            depth=size[1],
            base_width=self.base[0],
            base_depth=self.base[1],
            scheme=BASE_SHAPE if shared else variant.scheme.name,
            optimizer=variant.optimizer,
            lr=2.0 ** round(log2_lr, 9),
            multiplier=variant.multiplier,
            weight_decay=variant.weight_decay,
            steps=self.steps,
            seed=seed,
            settings=self.settings,
            numerics=self.numerics,
        )


def default_corner(
    base: Size, widths: Sequence[int], depths: Sequence[int], target: Size
) -> tuple[Size, ...]:
    """The corner that a target needs which grows along both arms; none where it does not.

    As deep as the deepest, at the width before the widest: four times the work of the deepest size
    where widths double, and a quarter of what the corner of both ends would take.

    Example:
        >>> default_corner((16, 4), (16, 32, 64), (4, 8, 16), target=(128, 64))
        ((32, 16),)
        >>> default_corner((16, 4), (), (4, 8, 16), target=(16, 64))
        ()
    """
    wider = [w for w in sorted(widths) if w > base[0]]
    deeper = [d for d in sorted(depths) if d > base[1]]
    if not (wider and deeper and target[0] != base[0] and target[1] != base[1]):
        return ()
    return ((wider[max(len(wider) - 2, 0)], deeper[-1]),)


@dataclass(frozen=True, kw_only=True)
class ProbedTrials:
    """A variant of a grid, at any size, for a few steps."""

    grid: TrialGrid
    variant: Variant

    def run(self, size: Mapping[str, float], log2_lr: float, seed: int) -> Trial:
        short = replace(self.grid, steps=STEPS, window=LAST)
        return short.trial(self.variant, (int(size["width"]), int(size["depth"])), log2_lr, seed)

    def work(self, size: Mapping[str, float]) -> float:
        return size["depth"] * size["width"] ** 2

    @cached_property
    def sweep_work(self) -> float:
        return math.fsum(t.depth * t.width**2 * t.steps for t in self.grid.runs)


@dataclass(frozen=True, kw_only=True)
class TrainTrial:
    """The job of training one trial: a job each, so that an error in one costs no other."""

    trial: Trial
    functions: "Functions"
    device: str = "cpu"
    threads: int = 1

    @property
    def work(self) -> float:
        # A model's parameters are about proportional to this; its batches are the same for all.
        return float(self.trial.depth * self.trial.width**2 * self.trial.steps)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return (self.trial.key,)

    def only(self, keys: Collection[str]) -> "TrainTrial":
        return self

    def __call__(self, tell: Tell) -> Iterator[Record[Trial]]:
        from depthmup.training.trial import run_trial

        yield run_trial(
            self.trial,
            self.functions,
            device=self.device,
            threads=self.threads,
            on_progress=tell,
        )

    def __str__(self) -> str:
        trial = self.trial
        return (
            f"training {trial.model} at width {trial.width} and depth {trial.depth} with "
            f"{trial.scheme}, learning rate {trial.lr:.4g} and seed {trial.seed}"
        )


def trial_jobs(
    trials: Iterable[Trial], functions: "Functions", *, device: str = "cpu", threads: int = 1
) -> list[TrainTrial]:
    """A job for each trial, the longest first."""
    jobs = [
        TrainTrial(trial=trial, functions=functions, device=device, threads=threads)
        for trial in trials
    ]
    return sorted(jobs, key=lambda job: -job.work)


@dataclass(frozen=True, kw_only=True)
class TrainTogether:
    """The job of training trials that differ in learning rate and seed alone, as one stack.

    ``cost`` is the work of a step per layer and squared width, in the unit of all jobs.
    """

    trials: tuple[Trial, ...]
    functions: "Functions"
    cost: float = 1.0

    @property
    def work(self) -> float:
        return self.cost * sum(t.depth * t.width**2 * t.steps for t in self.trials)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(trial.key for trial in self.trials)

    def only(self, keys: Collection[str]) -> "TrainTogether":
        return replace(self, trials=tuple(each for each in self.trials if each.key in keys))

    def __call__(self, tell: Tell) -> Iterator[Record[Trial]]:
        from depthmup.training.together import run_together

        yield from run_together(self.trials, self.functions, on_progress=tell)

    def __str__(self) -> str:
        trial = self.trials[0]
        return (
            f"training {trial.model} at width {trial.width} and depth {trial.depth} with "
            f"{trial.scheme} and {trial.optimizer}, {len(self.trials)} learning rates and seeds"
        )


def together(
    trials: Iterable[Trial], functions: "Functions", *, members: int = 12, cost: float = 1.0
) -> list[TrainTogether]:
    """Jobs of up to ``members`` trials that can be stacked, in the order of their first ones."""
    alike: dict[Trial, list[Trial]] = defaultdict(list)
    for trial in trials:
        alike[replace(trial, lr=0.0, seed=0)].append(trial)
    return [
        TrainTogether(trials=tuple(each[start : start + members]), functions=functions, cost=cost)
        for each in alike.values()
        for start in range(0, len(each), members)
    ]


def _check(grid: TrialGrid) -> None:
    """Refuse what cannot be run, before anything is."""

    def refuse(what: str, expected: str, got: object) -> None:
        raise ValueError(f"Expected {what} to be {expected}; got {got!r}.")

    if len(grid.base) != 2 or not all(isinstance(n, int) and n > 0 for n in grid.base):
        refuse("base", "a width and a depth, such as (64, 4)", grid.base)
    for axis, values, at_base in zip(
        ("widths", "depths"), (grid.widths, grid.depths), grid.base, strict=True
    ):
        if values:
            _check_increasing(axis, values)
        if any(not isinstance(value, int) or value < 1 for value in values):
            refuse(axis, "whole numbers of at least 1", values)
        if values and at_base not in values:
            raise ValueError(
                f"Expected {axis} to contain the base's, {at_base}, from which the learning rate "
                f"is transferred; got {values}. Add it, or name another base."
            )
    for corner in grid.corners:
        if len(corner) != 2 or any(not isinstance(n, int) or n < 1 for n in corner):
            refuse("corners", "widths and depths, such as (32, 8)", corner)
    if len(grid.widths) < 2 and len(grid.depths) < 2:
        raise ValueError(
            f"Expected at least two widths or two depths; got widths={grid.widths} and "
            f"depths={grid.depths}. Transfer is measured between sizes."
        )
    if not grid.log2_lrs:
        refuse("learning rates", "a list of at least one", grid.log2_lrs)
    _check_increasing("learning rates", grid.log2_lrs)
    check_octaves(grid.log2_lrs)
    for name in ("schemes", "optimizers", "multipliers", "weight_decays"):
        values = getattr(grid, name)
        shown = [each.name if isinstance(each, Scheme) else each for each in values]
        if not shown or len(set(shown)) != len(shown):
            refuse(name, "at least one, different from each other", shown)
    for each in grid.schemes:
        _check_named(each)
    for name in grid.optimizers:
        family(name)
    for name in ("seeds", "steps"):
        if getattr(grid, name) < 1:
            refuse(name, "at least 1", getattr(grid, name))
    check_runs(
        len(grid.widths) + len(grid.depths), len(grid.variants), len(grid.log2_lrs), grid.seeds
    )
    if not 1 <= grid.window <= grid.steps:
        refuse("window", f"between 1 and the number of steps ({grid.steps})", grid.window)
    if any(not 0 < a < math.inf for a in grid.multipliers):
        refuse("multipliers", "positive", grid.multipliers)
    if any(not 0 <= decay < math.inf for decay in grid.weight_decays):
        refuse("weight_decays", "finite and not negative", grid.weight_decays)


def _check_named(given: Scheme) -> None:
    """Trials name their scheme: it must be the one that the name stands for."""
    try:
        found = scheme(given.name)
    except ValueError:
        found = None
    if found is None or given != replace(
        found, name=given.name, title=given.title, source=given.source
    ):
        raise ValueError(
            f"Expected schemes of the catalogue, or pairs of exponents such as '3/4,1/4': trials "
            f"are stored by their scheme's name. {given.name!r} is "
            f"{'none of them' if found is None else 'another one'}. Train a scheme of your own by "
            "train=, which applies it itself."
        )


def _check_increasing(name: str, values: Sequence[float]) -> None:
    if any(not math.isfinite(value) for value in values):
        raise ValueError(f"Expected {name} to be finite numbers; got {values}.")
    if any(later <= earlier for earlier, later in pairwise(values)):
        raise ValueError(
            f"Expected {name} to be strictly increasing (sort them and drop repetitions); got "
            f"{values}."
        )
