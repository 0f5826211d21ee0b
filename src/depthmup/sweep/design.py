"""The design of a sweep: sizes along named axes x variants x learning rates x seeds."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations, pairwise, product
from numbers import Number
from operator import index
from typing import Any, Literal, TypeAlias

from depthmup.records import COUNTS, LEARNING_RATE, TUNED, Axis, Tuned
from depthmup.records.codec import encode
from depthmup.records.grammar import either
from depthmup.records.search import Values
from depthmup.records.sizes import parse_size
from depthmup.records.text import begin, html_card
from depthmup.rules import (
    BETAS,
    RunLaws,
    RunRule,
    Scheme,
    family,
    named,
    run_rule,
    scheme,
)
from depthmup.rules.scheme import single_changes
from depthmup.statistics import MOST_SEEDS
from depthmup.statistics.recipe_search import CROSS
from depthmup.sweep.auto import Auto, auto_of
from depthmup.sweep.together import check_together, key_of, names_of_tuned, separated, together

Size: TypeAlias = Mapping[str, int]
"""A value for every axis, such as ``{"width": 64, "depth": 8}``."""

ORDER = ("depth", "width")
"""Axes that are reported first; others follow in the order of the base."""

MOST_WINDOWS = 50
"""Each is judged and drawn by itself: of a thousand, a page would take a minute and 40 MB."""


RUNS = 10**7
"""Most runs of a sweep: at a millisecond per run, the bookkeeping alone takes three hours."""

VARIANTS = 10**4
"""Most variants of a sweep: schemes times optimizers, multipliers, decays and run rules."""

LARGEST_SIZE = 2**80
"""Of an axis, such as tokens; larger ones overflow where they are multiplied."""

USUAL_STEPS = int(COUNTS["steps"].start)
"""Of every run, where nothing is said."""

OCTAVES = 500
"""Largest log2 of a learning rate, up or down. Doubles end at 2^1023, and schemes multiply rates:
this leaves as much room again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way to train every size: a scheme, optimizer, multiplier, weight decay and run rule."""

    scheme: Scheme
    optimizer: str
    multiplier: float
    weight_decay: float
    name: str
    title: str
    run: RunRule | None = None

    @property
    def run_laws(self) -> RunLaws:
        """What follows batch and duration: the run rule's laws, or else the scheme's own."""
        return self.scheme.run_laws(self.scheme.run if self.run is None else self.run.laws)


@dataclass(frozen=True, init=False)
class Design:
    """The sizes, learning rates and seeds of a measurement of transfer, and its fixed settings.

    Sizes lie on arms that meet at the base: along one axis, the other axes are at the base's
    values. ``sizes`` adds others, such as a *corner* that grows along two axes together, which no
    arm can show. At every size, each variant (scheme x optimizer x multiplier x weight decay) is
    trained with every learning rate (or value of another tuned hyperparameter) and seed.

    Axes are named as the model's functions name them. ``batch`` is the number of examples of a
    step. The duration is ``steps`` or ``tokens``: name the one that stays while the batch grows.
    Tokens are steps times the batch.

    Args:
        base: the size with a known or cheaply tuned learning rate, a value for every axis; or
            text such as "64x8" (width and depth) or "depth=8 batch=32 steps=500". It may have
            your own values of what is tuned, too, where their search starts: ``"lr": 3e-3``.
        lrs: learning rates at the base, increasing, usually a factor of 2 or sqrt(2) apart; or
            "auto" (the default) or ``depthmup.Auto(...)``: only runs that the verdict needs. Where
            ``tune`` names something else, the one learning rate that stays fixed.
        tune: the tuned hyperparameter: "lr" (the default), "weight_decay", "multiplier" (of every
            branch), "init_scale" (of the weights inside branches), "one_minus_beta2", or "cooldown"
            (of your own command or training function); or several at once, as in ``("lr",
            "weight_decay")``, whose joint optimum is followed; also with "batch" (at fixed steps,
            or at the base's tokens) and "steps". Of your own command any placeholder, if the base
            has its value.
        beside: the other ones of several, after the first; ``tune`` gives them.
        values: its values at the base, like ``lrs`` for learning rates.
        schemes: names as in ``depthmup.plan``, or ``Scheme`` values; one or several. By default
            Depth-muP if branches have one matrix, else CompleteP.
        optimizers: names as in ``depthmup.plan``; one or several. By default AdamW, or Adam for the
            built-in networks.
        multipliers: branch multipliers at the base (the paper's a); one or several.
        weight_decays: weight decays at the base; one or several.
        run: one or several rules for batch and duration, by their names in
            ``depthmup.rules.RUN_RULES`` (``"sde"``, ``"sqrt-batch"``, ...), or ``"none"``. By
            default the scheme's own: none, except under Complete(d)P and HyperP.
        ablate: measure each rule of the scheme as well, taken away in turn: True for every one that
            acts along the axes, or names such as ``"readout.lr"``. ``"add"`` begins with standard
            practice and adds one rule at a time.
        settings: of the optimizer (``betas``, ``eps``, ``momentum``, ...), and of a custom model's
            training: ``schedule`` (``"constant"``, ``"linear"``, ``"cosine"``), ``warmup``
            (fraction of training), ``clip`` (gradient norm), ``own_init`` (as in
            ``depthmup.plan``).
        seeds: number of repetitions; their scatter gives the intervals. By default 3; for a search
            it is the most that a rate gets, by default 8.
        steps: of every run, by default 200; several where they are an axis of the base.
        window: a run is judged by its mean loss over this many last steps; by default a fifth. A
            run of another length is judged by the same fraction of it.
        sizes: further sizes, each with a value for every axis.
        arms: values along an axis, by its name, increasing and including the base's.

    Raises:
        ValueError: the design cannot be run.

    Example:
        >>> design = Design(base={"width": 64, "depth": 8}, depth=(8, 16, 32), width=(64, 128),
        ...                 lrs=[2.0**-9, 2.0**-8, 2.0**-7], schemes="depth-mup")
        >>> design.axes, len(design.all_sizes)
        (('depth', 'width'), 4)
    """

    base: Size
    lrs: tuple[float, ...] | Auto | None
    tune: Tuned
    beside: tuple[Tuned, ...]
    values: tuple[float, ...] | Auto | None
    schemes: tuple[Scheme, ...] | None
    optimizers: tuple[str, ...] | None
    multipliers: tuple[float, ...]
    weight_decays: tuple[float, ...]
    run: tuple[RunRule, ...] | None
    ablate: tuple[str, ...] | None
    settings: Mapping[str, Any] = field(hash=False)
    seeds: int
    steps: int
    window: int
    sizes: tuple[Size, ...]
    arms: Mapping[str, tuple[int, ...]] = field(hash=False)

    def __init__(
        self,
        *,
        base: Mapping[str, float] | str,
        lrs: float | Sequence[float] | Auto | Literal["auto"] | Mapping[str, Any] | None = None,
        tune: str | Tuned | Sequence[str | Tuned] = LEARNING_RATE,
        values: Sequence[float] | Auto | Literal["auto"] | Mapping[str, Any] | None = None,
        schemes: str | Scheme | Sequence[str | Scheme] | None = None,
        optimizers: str | type | Sequence[str | type] | None = None,
        multipliers: float | Sequence[float] = 1.0,
        weight_decays: float | Sequence[float] = 0.0,
        run: str | RunRule | Sequence[str | RunRule] | None = None,
        ablate: bool | str | Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        seeds: int | None = None,
        steps: int | Sequence[int] | None = None,
        window: int | None = None,
        sizes: Iterable[Size] = (),
        **arms: Any,
    ) -> None:
        # ``dataclasses.replace`` passes the field itself.
        others = arms.pop("beside", ())
        along = {**arms.pop("arms", {}), **arms}
        names = (*names_of_tuned(tune), *others)
        starts, base = separated(base, names)
        if isinstance(steps, Iterable):
            along, steps = {**along, "steps": steps}, None
        begun = {**_starts_of(values), **starts}
        keys = [*map(key_of, names)]
        if "steps" in keys and "steps" not in begun:
            begun["steps"] = starts["steps"] = USUAL_STEPS if steps is None else steps
        (what, *beside), rates = together(names, begun), _rates(lrs)
        of_rates = what.is_learning_rate and not beside
        grid = rates if of_rates else _rates(values, what)
        if starts:
            grid = _begun_at(grid, starts, several=bool(beside))
            rates = grid if of_rates else rates
        if seeds is None:
            seeds = 3 if isinstance(grid, tuple) else MOST_SEEDS
        at_base = whole_size(base, "base")
        counted = {key: int(begun[key]) for key in COUNTS if key in keys}
        _check_names(along, at_base, counted)
        steps = _steps_of({**at_base, **counted}, steps)
        if of_rates and values is not None:
            raise ValueError(
                "Design tunes the learning rate: "
                + either("its values are lrs=; leave values=.", "use --lrs in place of --values.")
            )
        fields_by_name: dict[str, Any] = {
            "base": at_base,
            "lrs": rates,
            "tune": what,
            "beside": tuple(beside),
            "values": None if of_rates else grid,
            "schemes": None if schemes is None else tuple(map(scheme, _several(schemes))),
            "optimizers": _optimizers(optimizers),
            "multipliers": tuple(float(a) for a in _several(multipliers)),
            "weight_decays": tuple(float(decay) for decay in _several(weight_decays)),
            "run": None if run is None else tuple(map(run_rule, _several(run))),
            "ablate": _rules(ablate),
            "settings": _plain(settings or {}),
            "seeds": _whole(seeds, "seeds"),
            "steps": steps,
            "window": max(1, steps // 5) if window is None else index(window),
            "sizes": tuple(whole_size(size, "sizes") for size in sizes),
            "arms": {axis: arm for axis, given in along.items() if (arm := _arm(axis, given))},
        }
        for name, value in fields_by_name.items():
            object.__setattr__(self, name, value)
        _check(self)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold; ``Design.from_dict`` reads it back.

        Returns:
            The fields, schemes by name.
        """
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        # Schemes of the catalogue are stored by their names (see ``_check_named``).
        values["schemes"] = None if self.schemes is None else [s.name for s in self.schemes]
        values["run"] = None if self.run is None else [rule.key for rule in self.run]
        values["tune"] = [o.key for o in self.tuned] if self.beside else self.tune.key
        del values["beside"]
        # As designs were described before there were run rules, or anything else to tune.
        if self.run is None:
            del values["run"]
        if self.ablate is None:
            del values["ablate"]
        if self._of_rates:
            del values["tune"], values["values"]
        plain: dict[str, Any] = encode(values)
        return plain

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> "Design":
        """The design that ``to_dict`` described.

        Args:
            raw: as read from JSON.

        Returns:
            The design.

        Raises:
            ValueError: it cannot be run.
        """
        return Design(**raw)

    @property
    def tuned(self) -> tuple[Tuned, ...]:
        """What is tuned: one hyperparameter, or several together."""
        return (self.tune, *self.beside)

    @property
    def _of_rates(self) -> bool:
        """Whether the learning rate alone is tuned."""
        return self.tune.is_learning_rate and not self.beside

    @property
    def log2_lrs(self) -> tuple[float, ...]:
        """log2 of the learning rates at the base; none where they are found as the sweep goes."""
        return _log2(self.lrs)

    @property
    def grid(self) -> tuple[float, ...] | Auto | None:
        """Values of the tuned hyperparameter, a search for them, or none yet."""
        return self.lrs if self._of_rates else self.values

    @property
    def log2_values(self) -> tuple[float, ...]:
        """log2 of these values; none where they are found as the sweep goes."""
        return _log2(self.grid)

    @property
    def auto(self) -> Auto | None:
        """The search that finds values as the sweep goes; none where they are a grid."""
        return self.grid if isinstance(self.grid, Auto) else None

    def with_grid(self, grid: tuple[float, ...] | Auto) -> "Design":
        """The design with other values of the tuned hyperparameter, or another search for them.

        Args:
            grid: of values at the base, or a search.

        Returns:
            The design; all else is as before.
        """
        if self._of_rates:
            return replace(self, lrs=grid)
        return replace(self, values=grid)

    def __repr__(self) -> str:
        return f"<Design: {'; '.join(self._facts.values())}>"

    def _repr_html_(self) -> str:
        return html_card("Design", "", (f"{name}: {fact}" for name, fact in self._facts.items()))

    @property
    def _facts(self) -> dict[str, str]:
        """What is varied and what is fixed, in words."""
        arms = {axis: ", ".join(map(str, self.arm(axis))) for axis in self.base}
        grid, found = self.grid, "found by a search"
        if isinstance(grid, tuple):
            found = ", ".join(f"{value:.3g}" for value in grid)
        return {
            "sizes": " and ".join(f"{axis} {values}" for axis, values in arms.items()),
            "schemes": ", ".join(s.name for s in self.schemes or ()) or "the model's own default",
            self.tune.plural: f"{self.tune.plural} {found}",
            "repetitions": f"{self.seeds} seeds{'' if isinstance(grid, tuple) else ' at most'}",
        }

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes along which there are two sizes or more; depth if there are none."""
        varied = [axis for axis in self.base if len(self.arm(axis)) > 1]
        if not varied:
            return ("depth" if "depth" in self.base else next(iter(self.base)),)
        first = [axis for axis in ORDER if axis in varied]
        return (*first, *(axis for axis in varied if axis not in first))

    def arm(self, axis: Axis) -> tuple[int, ...]:
        """The values along an axis, all others being the base's.

        Args:
            axis: one of the base's.

        Returns:
            Increasing, the base's among them.

        Raises:
            ValueError: the base does not name the axis.

        Example:
            >>> Design(base={"depth": 4}, depth=(4, 8)).arm("depth")
            (4, 8)
        """
        if axis not in self.base:
            axes = ", ".join(self.base)
            raise ValueError(f"Expected one of the base's axes, {axes}; got {axis[:60]!r}.")
        along = {self.base[axis], *self.arms.get(axis, ())}
        along |= {size[axis] for size in self.sizes if self._on_arm(size, axis)}
        if axis in self.arms and not (set(self.arms[axis]) ^ along):
            return self.arms[axis]
        return tuple(sorted(along))

    def _on_arm(self, size: Size, axis: Axis) -> bool:
        return all(size[other] == self.base[other] for other in self.base if other != axis)

    def sizes_along(self, axis: Axis) -> tuple[Size, ...]:
        """The sizes along an axis, the others at the base's.

        Args:
            axis: one of the base's.

        Returns:
            From the smallest on.
        """
        return tuple({**self.base, axis: value} for value in self.arm(axis))

    @cached_property
    def all_sizes(self) -> tuple[Size, ...]:
        """The sizes along all axes, and the further ones."""
        along = [size for axis in self.axes for size in self.sizes_along(axis)]
        unique = {tuple(size.items()): size for size in (*along, *self.sizes)}
        return tuple(unique.values())

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Every combination; names mention only what has several values."""
        optimizers, rules = self.optimizers or (), self.run or (None,)
        varied = (optimizers, self.multipliers, self.weight_decays, rules)
        variants = []
        combinations = product(
            self.schemes or (), optimizers, self.multipliers, self.weight_decays, rules
        )
        for of_scheme, optimizer, multiplier, decay, rule in combinations:
            names = (optimizer, f"a={multiplier:g}", f"decay={decay:g}", rule.key if rule else "")
            suffixes = [name for name, given in zip(names, varied, strict=True) if len(given) > 1]
            variants.append(
                Variant(
                    scheme=of_scheme,
                    optimizer=optimizer,
                    multiplier=multiplier,
                    weight_decay=decay,
                    run=rule,
                    name=" ".join([of_scheme.name, *suffixes]),
                    title=" ".join([of_scheme.title, *suffixes]),
                )
            )
        return tuple(variants)

    @cached_property
    def changed(self) -> Mapping[str, str]:
        """The rule that was taken away, or added, by the variant; the first variant is whole."""
        if self.ablate is None:
            return {}
        return single_changes({v.name: v.scheme.name for v in self.variants})[2]

    @property
    def judged(self) -> tuple[Variant, ...]:
        """The variants but for those of which one rule was changed."""
        return tuple(v for v in self.variants if v.name not in self.changed)

    def variant(self, name: str | None = None) -> Variant:
        """A variant by its name; the first one without.

        Args:
            name: as in ``variants``.

        Returns:
            The variant.

        Raises:
            ValueError: there is none of this name.
        """
        for variant in self.variants:
            if name in (None, variant.name):
                return variant
        names = ", ".join(repr(variant.name) for variant in self.variants)
        raise ValueError(f"Expected one of {names}, which were measured; got {name!r}.")

    def steps_at(self, size: Size) -> int:
        """The steps of a run at a size.

        Args:
            size: by axis.

        Returns:
            Their number; the size may set it, by steps or by tokens and batch.

        Example:
            >>> design = Design(base={"batch": 32, "tokens": 6400}, batch=(32, 64))
            >>> [design.steps_at(size) for size in design.all_sizes]
            [200, 100]
        """
        return self.run_size(size)[1]

    @cached_property
    def counted(self) -> Mapping[str, int]:
        """Where the search starts of what is tuned and counts examples or steps."""
        start = self.auto.start if self.auto else None
        begun = start if isinstance(start, Mapping) else {}
        return {one.key: int(begun[one.key]) for one in self.tuned if one.is_whole}

    def run_size(self, size: Size, log2_value: Values | None = None) -> tuple[Size, int]:
        """The size of a run with its batch, where that is tuned, and its steps.

        Args:
            size: by axis.
            log2_value: of what is tuned; without those of several, where their search starts.

        Returns:
            Both. Where the tokens are fixed, steps are rounded.

        Example:
            >>> design = Design(base={"width": 8, "tokens": 6400, "lr": 0.01, "batch": 32},
            ...                 tune=("lr", "batch"))
            >>> design.run_size({"width": 8, "tokens": 6400}, (-7.0, 6.0))
            ({'width': 8, 'tokens': 6400, 'batch': 64}, 100)
        """
        counted = dict(self.counted)
        if isinstance(log2_value, tuple):
            told = zip(self.tuned, log2_value, strict=True)
            counted |= {one.key: round(2.0**log2) for one, log2 in told if one.is_whole}
        whole = {**size, **{key: n for key, n in counted.items() if key != "steps"}}
        if "steps" in counted:
            return whole, counted["steps"]
        if "tokens" in whole and "batch" in counted:
            return whole, max(1, round(whole["tokens"] / whole["batch"]))
        return whole, _steps_of(whole, None if {"steps", "tokens"} & set(whole) else self.steps)

    def most(self, one: Tuned) -> float:
        """The largest value that a search tries, of what counts examples or steps.

        Where more of it costs more, the ends of the first cross: a search for the best loss alone
        would otherwise train ever longer. Of fixed tokens a batch may be all.

        Args:
            one: of the tuned values.

        Returns:
            The value itself, not its logarithm; infinite where nothing bounds it.

        Example:
            >>> design = Design(base={"depth": 4, "lr": 3e-3, "batch": 32}, tune=("lr", "batch"))
            >>> [design.most(one) for one in design.tuned]
            [inf, 128.0]
        """
        if one.key == "batch" and "tokens" in self.base:
            return float(min(size["tokens"] for size in self.all_sizes))
        return self.counted[one.key] * 2.0**CROSS if one.is_whole else one.most

    @property
    def windows(self) -> tuple[slice, ...]:
        """Windows that tile training from its end, in time order, in steps of the base.

        Where they are so short that there would be over ``MOST_WINDOWS``, they lie apart.
        Where learning rates are found as the sweep goes, they are found for the last window alone:
        the best rates of earlier ones lie elsewhere.

        Example:
            >>> Design(base={"depth": 4}, steps=100, window=40).windows
            (slice(20, 60, None), slice(60, 100, None))
        """
        return windows_of_training(self)[-1:] if self.auto else windows_of_training(self)

    def toward(self, target: Size) -> "Design":
        """The design with a corner for each pair of axes along which the target grows.

        A pair that grows together at some size already has its corner. A new one is at the largest
        value of the first axis and the second largest of the second. For depth and widths that
        double, it takes four times the work of the deepest size, and a quarter of that of a corner
        at both largest values.

        Args:
            target: the size to predict for.

        Returns:
            The design, itself where no corner is missing.

        Example:
            >>> design = Design(base={"width": 16, "depth": 4}, width=(16, 32, 64), depth=(4, 8))
            >>> design.toward({"width": 128, "depth": 64}).sizes
            ({'width': 32, 'depth': 8},)
            >>> design.toward({"width": 16, "depth": 64}).sizes
            ()
        """
        growing = [
            axis
            for axis in self.axes
            if axis in target
            and target[axis] != self.base[axis]
            and self.arm(axis)[-1] > self.base[axis]
        ]
        corners = [
            {**self.base, first: self.arm(first)[-1], second: self._second_largest(second)}
            for first, second in combinations(growing, 2)
            if not any(
                size[first] != self.base[first] and size[second] != self.base[second]
                for size in self.sizes
            )
        ]
        return replace(self, sizes=(*self.sizes, *corners)) if corners else self

    def _second_largest(self, axis: Axis) -> int:
        beyond = [value for value in self.arm(axis) if value > self.base[axis]]
        return beyond[max(len(beyond) - 2, 0)]


def _several(value: Any) -> Sequence[Any]:
    """A single value or several, as a sequence."""
    one = isinstance(value, str | type | Number | Scheme | RunRule)
    return [value] if one else list(value)


ADD = "add"
"""Among the names of rules: they are added to standard practice, not taken away."""


def _rules(given: Any) -> tuple[str, ...] | None:
    """Names of rules to take away; none for all."""
    if given is None or given is False:
        return None
    names = [] if given is True else [given] if isinstance(given, str) else list(given)
    return tuple(dict.fromkeys(str(name).strip().lower() for name in names))


def _optimizers(given: Any) -> tuple[str, ...] | None:
    """Optimizers by name, also where their classes were given."""
    if given is None:
        return None
    return tuple(named(o)[0] if isinstance(o, type) else o for o in _several(given))


def _rates(values: Any, what: Tuned = LEARNING_RATE) -> tuple[float, ...] | Auto | None:
    """Values as a design holds them: a grid, a search for them, or none yet."""
    if values is None:
        return None
    return auto_of(values) or tuple(_rounded(value, what) for value in _several(values))


def _starts_of(values: Any) -> Mapping[str, Any]:
    """Where searches of several values start, of a search that names them."""
    start = values.get("start") if isinstance(values, Mapping) else getattr(values, "start", None)
    return start if isinstance(start, Mapping) else {}


def _begun_at(grid: Any, starts: Mapping[str, float], *, several: bool) -> Any:
    """A search that starts at a base's own values."""
    if isinstance(grid, tuple):
        raise ValueError(
            f"Expected values to try, or where their search starts; got both: {grid} and "
            f"{dict(starts)} in the base. Leave out one of them."
        )
    auto = grid or Auto()
    own = auto.start if isinstance(auto.start, Mapping) else {}
    (first, *_) = starts.values()
    return replace(auto, start={**own, **starts} if several else float(first))


def _rounded(value: float, what: Tuned) -> float:
    """A value with log2 rounded to nine decimals, so that equal ones have equal bits."""
    if not 0 < value <= what.most or math.isinf(value):
        name = "lrs" if what.is_learning_rate else f"values of the {what.name}"
        expected = "positive" if math.isinf(what.most) else f"in (0, {what.most:g}]"
        raise ValueError(f"Expected {name} to be {expected}; got {value!r}.")
    return float(2.0 ** round(math.log2(value), 9))


def _log2(grid: tuple[float, ...] | Auto | None) -> tuple[float, ...]:
    return tuple(round(math.log2(v), 9) for v in grid) if isinstance(grid, tuple) else ()


def _whole(value: Any, name: str) -> int:
    try:
        return index(value)
    except TypeError:
        raise ValueError(f"Expected {name} to be a whole number; got {value!r}.") from None


def windows_of_training(design: Design) -> tuple[slice, ...]:
    """Windows that tile training from its end, whether or not they are judged."""
    apart = max(design.window, -(-design.steps // MOST_WINDOWS))
    stops = range(design.steps, design.window - 1, -apart)
    return tuple(slice(stop - design.window, stop) for stop in reversed(stops))


def _steps_of(size: Size, steps: Any) -> int:
    """The steps that a size has or implies; those that are given, or 200, where it has none."""
    if {"steps", "tokens"} <= set(size):
        raise ValueError(
            "Expected base to name two of batch, steps and tokens, as the third follows from them; "
            f"got {dict(size)}. Name steps to ask about batch at held steps, or tokens to ask "
            "about batch at held tokens."
        )
    if wrong := {axis: value for axis, value in size.items() if value < 1}:
        raise ValueError(f"Expected values of at least 1 along every axis; got {wrong}.")
    if "tokens" in size and "batch" not in size:
        raise ValueError(
            f"Expected base to name the batch beside the tokens, which are steps times the batch; "
            f"got {dict(size)}. Add the batch, or name the steps instead."
        )
    implied = size.get("steps")
    if "tokens" in size:
        implied, rest = divmod(size["tokens"], size["batch"])
        if rest or not implied:
            raise ValueError(
                f"Expected tokens that are a multiple of the batch; got {size['tokens']} tokens "
                f"in batches of {size['batch']}."
            )
    if implied is None:
        return _whole(USUAL_STEPS if steps is None else steps, "steps")
    if steps is not None and _whole(steps, "steps") != implied:
        raise ValueError(
            f"Expected steps to be those of the base, {implied}; got {steps}. Leave one of them "
            "out."
        )
    return int(implied)


def whole_size(size: Any, name: str) -> dict[str, int]:
    """A size with its whole numbers, NumPy's included, as Python integers; "64x2" is one, too."""
    if isinstance(size, str):
        size = parse_size(size, option=name)
    if not isinstance(size, Mapping) or not size:
        raise ValueError(
            f"Expected {name} to give a value for every axis, such as "
            f"{{'width': 64, 'depth': 4}}; got {size!r}."
        )
    whole = {axis: index(n) if hasattr(n, "__index__") else n for axis, n in size.items()}
    for axis, value in whole.items():
        if not isinstance(axis, str) or not axis.isidentifier():
            raise ValueError(f"Expected axes to have names such as width or depth; got {axis!r}.")
        if axis in _TAKEN:
            raise ValueError(
                f"Expected another name for the axis {axis!r}, which stands for something else "
                "here. Call the argument of your function otherwise, too."
            )
        if not isinstance(value, int) or value < 1:
            raise ValueError(
                f"Expected the {axis} of {name} to be a whole number of at least 1; got {value!r}."
            )
    return whole


_TAKEN = frozenset(
    {
        "arms", "lrs", "schemes", "optimizers", "multipliers", "weight_decays", "settings", "seeds",
        "window", "sizes", "base", "run", "scheme", "title", "start", "stop", "log2_lr", "lr",
        "loss", "low", "high", "loss_low", "loss_high", "place", "diverged", "verdict", "why",
        "drift", "regret", "mark", "seed", "model", "code", "tune", "values",
        *(one.column for one in TUNED),
    }
)  # fmt: skip
"""Names that an axis cannot have: of arguments of ``Design``, and of columns beside the axes'."""

_MEANT = {
    "depths": "depth",
    "widths": "width",
    "scheme": "schemes",
    "optimizer": "optimizers",
    "multiplier": "multipliers",
    "weight_decay": "weight_decays",
    "lr": "lrs",
    "log2_lrs": "lrs",
    "tuned": "tune",
    "value": "values",
    "seed": "seeds",
    "runs": "run",
    "run_rule": "run",
    "run_rules": "run",
}
"""Names that are easily confused with arguments, and the arguments."""


def _check_names(along: Mapping[str, Any], base: Size, counted: Mapping[str, int]) -> None:
    """Refuse a name that is neither an argument nor an axis of the base."""
    for name in along:
        if name in base:
            continue
        if name in counted:
            raise ValueError(
                f"Expected the {name} tuned or swept, not both: tuned, every size has its best "
                f"one; swept, each is a size. Leave it out of "
                + either(f"tune, or leave out {name}=.", f"--tune, or leave out --along {name}=.")
            )
        if name in _MEANT:
            raise ValueError(f"Design has no argument {name!r}: write {_MEANT[name]}=.")
        raise ValueError(
            f"Expected base to say where the axis {name} starts; it has "
            f"{', '.join(base)}. Axes are named as in the base: "
            + either(f"Design(base={{{name!r}: 1, ...}}, {name}=(1, 2, 4)).", f"--base {name}=1.")
        )


def _arm(axis: str, values: Any) -> tuple[int, ...]:
    given = list(values) if hasattr(values, "__iter__") else [values]
    if any(not hasattr(value, "__index__") or index(value) < 1 for value in given):
        raise ValueError(f"Expected {axis} to be whole numbers of at least 1; got {given!r}.")
    return tuple(index(value) for value in given)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON reads them back, since they are part of a run's key."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(settings), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Expected settings of types that JSON has: numbers, strings and lists; {error}."
        ) from None
    return plain


def _check(design: Design) -> None:
    """Refuse a design that cannot be run, before any run."""
    _check_sizes(design)
    _check_increasing(design.tune.plural, design.log2_values, log2=True)
    check_octaves(design.log2_values, design.tune)
    if design.beside:
        lists = ("schemes", "optimizers", "run", "multipliers", "weight_decays")
        check_together(
            [one.key for one in design.tuned],
            design.values,
            ablate=design.ablate is not None,
            counts={name: len(getattr(design, name) or ()) for name in lists},
        )
    for one in design.tuned:
        _check_tuned(design, one)
    for name in ("schemes", "optimizers", "multipliers", "weight_decays", "run"):
        values = getattr(design, name)
        if values is None:
            continue  # left open: the model's default
        shown = [v.name if isinstance(v, Scheme | RunRule) else v for v in values]
        if not shown or len(set(shown)) != len(shown):
            refuse(name, "at least one, different from each other", shown)
    if design.grid == ():
        refuse("lrs" if design.grid is design.lrs else "values", "at least one value", [])
    for of_scheme in design.schemes or ():
        _check_named(of_scheme)
    for rule in design.run or ():
        if rule != run_rule(rule.key):
            raise ValueError(f"Expected run rules of the catalogue; got {rule.name!r}.")
    for name in design.optimizers or ():
        family(name)
    for name in ("seeds", "steps"):
        if getattr(design, name) < 1:
            refuse(name, "at least 1", getattr(design, name))
    variants = (
        *(len(design.schemes or "1"), len(design.optimizers or "1"), len(design.run or "1")),
        *(len(design.multipliers), len(design.weight_decays)),
    )
    if (count := math.prod(variants)) > VARIANTS:
        raise ValueError(
            f"Expected a sweep of at most {VARIANTS:,} variants; this one has {count:,}. Take "
            "fewer multipliers or weight decays, or several sweeps."
        )
    # Counted before the runs are listed, which might not fit into memory.
    sizes = sum(len(design.arm(axis)) for axis in design.base) + len(design.sizes)
    if (runs := sizes * count * max(len(design.log2_values), 1) * design.seeds) > RUNS:
        raise ValueError(
            f"Expected a sweep of at most {RUNS:,} runs; this one has {runs:,}. Take fewer seeds, "
            "sizes or learning rates, or several sweeps."
        )
    if not 1 <= design.window <= design.steps:
        refuse("window", f"between 1 and the number of steps ({design.steps})", design.window)
    if any(not 0 < a < math.inf for a in design.multipliers):
        refuse("multipliers", "positive", design.multipliers)
    if any(not 0 <= decay < math.inf for decay in design.weight_decays):
        refuse("weight_decays", "finite and not negative", design.weight_decays)


_OWN_LISTS = {"weight_decay": ("weight_decays", (0.0,)), "multiplier": ("multipliers", (1.0,))}
"""Arguments that give a hyperparameter where it is not what is tuned, and their defaults."""


def _check_tuned(design: Design, what: Tuned) -> None:
    """Refuse a design that tunes one thing and does not say what the others are."""
    if what.is_learning_rate:
        if design.beside and design.lrs is not None:
            raise ValueError(
                f"The learning rate is tuned: leave out {either('lrs=', '--lr and --lrs')}. Where "
                "its search starts stands in the base: "
                + either("base={..., 'lr': 0.003}.", "--base ...,lr=0.003.")
            )
        return
    rate_is_tuned = any(one.is_learning_rate for one in design.tuned)
    if not rate_is_tuned and (not isinstance(design.lrs, tuple) or len(design.lrs) != 1):
        given = design.lrs if isinstance(design.lrs, tuple) else "none"
        raise ValueError(
            f"Expected one learning rate at the base while {what.the} is tuned, such as "
            f"{either('lrs=0.003', '--lr 0.003')}; got {given}. The best {what.name} depends on it."
        )
    check_octaves(design.log2_lrs)
    name, usual = _OWN_LISTS.get(what.key, ("", ()))
    if name and getattr(design, name) != usual:
        where = either("values=", "--values")
        if design.beside:
            where = either(f"found from base={{..., {what.key!r}: ...}}", f"--base ...,{what.key}=")
        raise ValueError(
            f"{begin(what.the)} is tuned, so that its values are {where}; "
            f"got {name}={getattr(design, name)}, too. Leave {name} out."
        )
    if what.key == "init_scale" and "init_scale" in design.settings:
        raise ValueError("The initial scale is tuned: leave init_scale out of the settings.")
    without = [name for name in design.optimizers or () if BETAS.get(name) is None]
    if what.key == "one_minus_beta2" and without:
        raise ValueError(
            f"Expected optimizers with a beta2 to tune; {', '.join(without)} has none. Use adamw, "
            "or tune something else."
        )


def check_octaves(log2_values: Sequence[float], what: Tuned = LEARNING_RATE) -> None:
    """Refuse values that would overflow or vanish when a scheme scales them."""
    if not all(abs(k) <= OCTAVES for k in log2_values):  # NaN fails this too
        raise ValueError(
            f"Expected {what.plural} from 2^-{OCTAVES} to 2^{OCTAVES}; got log2 {what.word}s of "
            f"{', '.join(f'{k:g}' for k in log2_values)}."
        )


def _check_sizes(design: Design) -> None:
    for axis, values in design.arms.items():
        _check_increasing(axis, values)
        if design.base[axis] not in values:
            raise ValueError(
                f"Expected {axis} to contain the base's, {design.base[axis]}, from which the "
                f"learning rate is transferred; got {values}. Add it, or name another base."
            )
    for size in design.sizes:
        if set(size) != set(design.base):
            raise ValueError(
                f"Expected every size to have the axes of the base, {', '.join(design.base)}; got "
                f"{dict(size)}."
            )
    for size in design.all_sizes:
        design.steps_at(size)


def _check_named(given: Scheme) -> None:
    """Refuse a scheme other than the one its name stands for, since runs store only the name."""
    try:
        known = scheme(given.name)
    except ValueError:
        known = None
    if known is None or given != replace(
        known, name=given.name, title=given.title, source=given.source
    ):
        raise ValueError(
            "Expected schemes of the catalogue, or pairs of exponents such as '3/4,1/4': runs "
            f"are stored by their scheme's name. {given.name!r} is "
            f"{'not in it' if known is None else 'another scheme there'}. Use train=, which "
            "applies a custom scheme itself."
        )


def _check_increasing(name: str, values: Sequence[float], *, log2: bool = False) -> None:
    if any(not math.isfinite(value) for value in values):
        raise ValueError(f"Expected {name} to be finite numbers; got {values}.")
    if any(later <= earlier for earlier, later in pairwise(values)):
        given = tuple(float(f"{2.0**value:.4g}") for value in values) if log2 else values
        raise ValueError(
            f"Expected {name} to be strictly increasing (sort them and drop repetitions); got "
            f"{given}."
        )


def refuse(what: str, expected: str, got: object) -> None:
    """Refuse a value in the words of all refusals of one."""
    raise ValueError(f"Expected {what} to be {expected}; got {got!r}.")
