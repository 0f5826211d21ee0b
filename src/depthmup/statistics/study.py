"""One study for all runs, whoever made them: how the optimum of a variant moves along an axis.

Runs of a sweep and runs of a table come as ``Runs``: sizes and their curves. Where a search added
seeds around each optimum, the bracket of every size is fitted; else all of its rates are. Sizes of
which one axis changes alone are a *slice*: an arm of a design, or several of a table, which share
one slope and have a level each.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, SupportsFloat

import numpy as np

from depthmup.records import (
    LEARNING_RATE,
    UNKNOWN,
    Axis,
    Curve,
    Estimate,
    Optimum,
    Place,
    Point,
    Transfer,
    Tuned,
    Verdict,
    Window,
)
from depthmup.records.judgement import Answer, Defect, Judgement, Note
from depthmup.statistics.asymmetry import asymmetry_trend
from depthmup.statistics.bracket import REACH
from depthmup.statistics.cost import centre_error, cost
from depthmup.statistics.curve import Curves
from depthmup.statistics.drift import (
    EXCESS_UNIT,
    change_of_shape,
    drift_unit,
    excess_loss,
    judge,
    measured,
)
from depthmup.statistics.interaction import crossed, interaction, interaction_sentence
from depthmup.statistics.intervals import Array, Flags, Index, around, geometric_mean
from depthmup.statistics.looks import looked_along
from depthmup.statistics.optimum import Optima, optima
from depthmup.statistics.regression import Regression
from depthmup.statistics.search import curves_of
from depthmup.statistics.slips import slipped_rates, trained
from depthmup.statistics.table import confounded, slices

Size = Mapping[Axis, float]

UNEVEN = 0.1
"""Octaves by which the spacings of grids differ from which on their sizes are weighted."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """The runs of one variant: its sizes and their curves.

    Attributes:
        name, title: of the variant.
        sizes: a value for every axis.
        curves: all runs.
        chance: the loss of guessing, which a size must beat to count as trained.
        base: where the arms of a design meet; without one every slice of sizes counts.
        sought: whether rates were found by a search, so that the brackets are fitted.
        decides: whether that search ended when its verdict was decided.
        alpha, gamma: of the variant's scheme, as text.
        question: by axis what its drift answers; a plain one where there is none.
        problem: why nothing can be fitted, if so.
    """

    name: str
    title: str
    sizes: tuple[Size, ...]
    curves: Curves
    chance: float = math.inf
    base: Size | None = None
    sought: bool = False
    decides: bool = True
    alpha: str = ""
    gamma: str = ""
    question: Mapping[Axis, str] | None = None
    problem: str = ""

    def at(self, sizes: Iterable[int]) -> "Runs":
        """The runs of some sizes."""
        index = [int(i) for i in sizes]
        part = self.curves[index]
        # Rates and seeds that other sizes have are none of these.
        rates = ~np.isnan(part.log2_lrs).all(0)
        seeds = ~np.isnan(part.losses).all((0, 1))
        curves = Curves(log2_lrs=part.log2_lrs[:, rates], losses=part.losses[:, rates][..., seeds])
        return replace(self, sizes=tuple(self.sizes[i] for i in index), curves=curves)

    @cached_property
    def fitted(self) -> Curves:
        """The curves that are fitted."""
        return bracketed(self.curves, chance=self.chance) if self.sought else self.curves

    @cached_property
    def optima(self) -> Optima:
        """The optima of all sizes at once."""
        return optima(self.fitted, chance=self.chance)

    @cached_property
    def array(self) -> Array:
        """The sizes as (sizes, axes)."""
        return np.array([list(size.values()) for size in self.sizes], float)

    def along(self, axis: Axis) -> Array:
        """The values along an axis, (sizes,)."""
        return np.array([size[axis] for size in self.sizes], float)


def bracketed(curves: Curves, *, chance: float = math.inf) -> Curves:
    """The brackets of all sizes, as a search fits them."""
    rows = [
        {float(k): y.tolist() for k, y in zip(x, losses, strict=True) if not np.isnan(k)}
        for x, losses in zip(curves.log2_lrs, curves.losses, strict=True)
    ]
    return curves_of(rows, chance=chance)


def is_sought(curves: Curves) -> bool:
    """Whether seeds were added around the optimum of each size, as searches do.

    A search scans a size with one seed and adds seeds in order at the rates around the lowest one,
    so that rates of a size differ in their seeds, one rate's are among another's, and most rates
    outside of a bracket have fewer. Of a grid with missing runs none of that is true.
    """
    there = ~np.isnan(curves.losses)
    outside = behind = 0
    for x, seeds, y in zip(curves.log2_lrs, there, curves.averages(), strict=True):
        tried = seeds.any(-1)
        if not np.isfinite(y[tried]).any():
            continue
        sets = seeds[tried]
        if not (sets[:, :-1] >= sets[:, 1:]).all():  # not the first seeds of each rate
            return False
        lowest = x[tried][np.where(np.isfinite(y[tried]), y[tried], math.inf).argmin()]
        near = np.abs(x[tried] - lowest) <= REACH
        counts = sets.sum(-1)
        outside += int((~near).sum())
        behind += int((counts[~near] < counts[near].min()).sum())
    return behind > outside / 2


def slices_of(runs: Runs, axis: Axis) -> tuple[list[Index], tuple[Axis, ...]]:
    """Indices of the sizes of each slice, increasing along the axis; axes that change with it."""
    if runs.base is not None:
        others = {a: n for a, n in runs.base.items() if a != axis}
        on_arm = [i for i, s in enumerate(runs.sizes) if all(s[a] == n for a, n in others.items())]
        return [np.array(sorted(on_arm, key=lambda i: runs.sizes[i][axis]), int)], ()
    axes = list(runs.sizes[0])
    number = axes.index(axis)
    usable = np.array([place is Place.INTERIOR for place in runs.optima.places()])
    together = next((p for p in confounded(runs.array[usable], axes) if axis in p), ())
    # Axes that never change apart are one: what else they are held at makes the slices.
    others_too = [axes.index(a) for a in together if a != axis]
    columns = np.delete(runs.array, others_too, axis=1)
    return slices(columns, number - sum(o < number for o in others_too)), together


@dataclass(frozen=True, kw_only=True, eq=False)
class Along:
    """The runs of a variant along one axis, and what is fitted to them.

    Attributes:
        runs: the sizes of all slices, one slice after the other.
        members: indices of the sizes of each slice.
        together: axes that change with this one.
        fitted: the optima of the sizes that train, ``trains`` their indices.
    """

    axis: Axis
    runs: Runs
    members: tuple[Index, ...]
    together: tuple[Axis, ...]
    fitted: Optima
    trains: tuple[int, ...]
    optima: tuple[Optimum, ...]

    @cached_property
    def inside(self) -> Flags:
        """Whether an optimum lies inside its grid."""
        return np.array([optimum.place is Place.INTERIOR for optimum in self.optima])

    @cached_property
    def used(self) -> list[Index]:
        """The members of each slice whose optima lie inside, of slices with two of them."""
        kept = [member[self.inside[member]] for member in self.members]
        return [member for member in kept if len(member) > 1]

    @cached_property
    def line(self) -> Regression | None:
        """One slope for all slices, a level for each; none with fewer than two optima."""
        if not self.used:
            return None
        some = optima(self.runs.fitted[np.concatenate(self.used)])
        return self._regression(some, [self._levels, self._positions])

    @cached_property
    def _positions(self) -> Array:
        """log2 of the sizes used, centred: the bend is then not nearly parallel to the slope."""
        x = np.log2(self.runs.along(self.axis)[np.concatenate(self.used)])
        return np.asarray(x - x.mean())

    @cached_property
    def _levels(self) -> Array:
        of_slice = np.repeat(np.arange(len(self.used)), [len(member) for member in self.used])
        return np.asarray(of_slice[:, None] == np.arange(len(self.used)), float)

    def _regression(self, fitted: Optima, columns: Sequence[Array]) -> Regression:
        """A law of sizes, weighted where sizes have grids of their own that differ in spacing.

        On one grid weights by a divergence beside some optima gain nothing, and cost coverage.
        """
        grids = fitted.curves.log2_lrs
        one_grid = np.allclose(grids, grids[:1], rtol=0, atol=1e-6, equal_nan=True)
        uneven = not one_grid and (
            float(np.ptp(fitted.spacing)) > UNEVEN or bool(fitted.wall.any())
        )
        return Regression(
            fitted=fitted,
            design=np.column_stack(columns),
            weighted=uneven and not self.runs.sought,
            lenient=not self.runs.sought,
            bend=self._positions**2,
        )

    def drift(self, tuned: Tuned) -> Estimate:
        """The slope, in octaves per doubling."""
        unit = drift_unit(self.axis, tuned)
        if self.line is None:
            return replace(UNKNOWN, unit=unit)
        term = self._levels.shape[1]
        if not self.runs.sought:
            return self.line.estimate(term, unit=unit)
        # Who stops when the interval decides needs one that may be looked at several times.
        return around(*looked_along(self.line, term, decides=self.runs.decides), unit)

    @property
    def bend(self) -> Estimate:
        """The change of the slope per doubling; unknown where the sizes do not show it."""
        if self.line is None:
            return UNKNOWN
        x = self._positions
        curved = self._regression(self.line.fitted, [self._levels, x, x**2])
        if curved.rank < curved.design.shape[1] or curved.freedom < 1:
            return UNKNOWN
        return curved.estimate(-1, scale=2.0, unit="change per doubling")

    @property
    def ends(self) -> tuple[int, int] | None:
        """The first and last size of the slice that reaches farthest, of optima inside."""
        if not self.used:
            return None
        x = np.log2(self.runs.along(self.axis))
        longest = max(self.used, key=lambda member: float(x[member[-1]] - x[member[0]]))
        return int(longest[0]), int(longest[-1])

    def excess(self) -> Estimate:
        """What the base's best value costs at the largest size; without a base, the smallest's."""
        runs, target = self.runs, len(self.optima) - 1
        if runs.base is None:
            ends = self.ends
        else:
            if self.optima[target].place is Place.FAILED:
                return Estimate(value=math.inf, low=math.inf, high=math.inf)
            at_base = [i for i, size in enumerate(runs.sizes) if size == runs.base]
            ends = (at_base[0], target) if at_base else None
        if ends is None or not all(self.inside[i] for i in ends):
            return UNKNOWN
        if self.fitted.curves.fewest_seeds < 2:
            return self.cost(*ends, 0.0)
        base, largest = (self.trains.index(i) for i in ends)
        return excess_loss(self.fitted, base, largest)

    def cost(self, base: int, target: int, octaves: float) -> Estimate:
        """What one size's best value, times ``2**octaves``, costs at another, in nats."""
        fitted, i, j = self.fitted, self.trains.index(base), self.trains.index(target)
        error = math.hypot(centre_error(fitted, i), centre_error(fitted, j))
        return cost(fitted, j, float(fitted.centre[i] - fitted.centre[j]) + octaves, error)

    def bounds(self, drift: Estimate) -> set[int]:
        """The optima at an edge of their grid that the drift puts there, or beyond."""
        if not (drift.known and math.isfinite(drift.high - drift.low)):
            return set()
        x, agree = np.log2(self.runs.along(self.axis)), set()
        for member in self.members:
            known = member[self.inside[member]]
            if not len(known):
                continue
            centres = [float(self.fitted.centre[self.trains.index(int(i))]) for i in known]
            level, middle = float(np.mean(centres)), float(x[known].mean())
            for i in map(int, member):
                place = self.optima[i].place
                if place not in (Place.LOW_EDGE, Place.HIGH_EDGE) or i not in self.trains:
                    continue
                k = self.trains.index(i)
                edge, spacing = float(self.fitted.centre[k]), float(self.fitted.spacing[k])
                ends = [level + slope * (x[i] - middle) for slope in (drift.low, drift.high)]
                if place is Place.HIGH_EDGE and max(ends) >= edge - spacing:
                    agree.add(i)
                if place is Place.LOW_EDGE and min(ends) <= edge + spacing:
                    agree.add(i)
        return agree


def along_axis(runs: Runs, axis: Axis) -> Along | None:
    """A variant's runs along an axis; none where no two sizes differ in it alone."""
    if not runs.sizes:
        return None
    members, together = slices_of(runs, axis)
    if not members or not sum(map(len, members)):
        return None
    part = runs.at(np.concatenate(members))
    ends = np.cumsum([len(member) for member in members])
    own = tuple(np.arange(end - len(m), end) for m, end in zip(members, ends, strict=True))
    whole = part.optima
    found = list(measured(whole, part.sizes))
    # Where nothing trains a search asks for few seeds: that says nothing of the other sizes.
    trains = [k for k, optimum in enumerate(found) if optimum.place is not Place.FAILED]
    fitted = whole
    if 0 < len(trains) < len(found):
        fitted = optima(whole.curves[trains], chance=runs.chance)
        again = measured(fitted, [part.sizes[k] for k in trains])
        for k, optimum in zip(trains, again, strict=True):
            found[k] = optimum
    elif not trains:
        trains = list(range(len(found)))
    return Along(
        axis=axis,
        runs=part,
        members=own,
        together=together,
        fitted=fitted,
        trains=tuple(trains),
        optima=tuple(found),
    )


class Claim(Protocol):
    """What a published rule says of an axis (``rules.claims``)."""

    @property
    def rule(self) -> str: ...
    @property
    def exponent(self) -> SupportsFloat: ...
    @property
    def setting(self) -> str: ...
    @property
    def reach(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def standing(self) -> str: ...


def transfer_of(
    runs: Runs,
    axis: Axis,
    along: Along | None,
    *,
    tolerance: float,
    tuned: Tuned = LEARNING_RATE,
    planned: Sequence[float] = (),
) -> Transfer:
    """How a variant's optimum moves along an axis; ``planned`` are the values that were to be."""
    question = (runs.question or {}).get(axis, f"the best {tuned.name} against {axis}")
    empty = Transfer(
        scheme=runs.name,
        title=runs.title,
        alpha=runs.alpha,
        gamma=runs.gamma,
        optima=(),
        drift=replace(UNKNOWN, unit=drift_unit(axis, tuned)),
        regret=UNKNOWN,
        verdict=Verdict.UNDECIDED,
        why=runs.problem or f"No two sizes differ in {axis} alone.",
        question=question,
    )
    if along is None:
        if planned:
            why = f"The search ended before its first run along {axis}."
            return replace(empty, drift=UNKNOWN, why=why)
        return empty
    drift = along.drift(tuned)
    verdict, why = judge(
        along.optima,
        drift,
        seeds=along.fitted.curves.fewest_seeds,
        tolerance=tolerance,
        axis=axis,
        tuned=tuned,
        bounds=along.bounds(drift),
    )
    if along.line is not None and drift.known:
        trend = asymmetry_trend(along._positions, along.line.fitted.sides.offset)
        why += change_of_shape(trend, drift, tolerance=tolerance, axis=axis)
    if len(along.optima) < len(planned):
        why += (
            f" The search ended before {axis} {planned[-1]}: what happens there was not measured."
        )
    changes = dict(_interactions(runs, axis, tuned))
    why += "".join(interaction_sentence(axis, other, change) for other, change in changes.items())
    return replace(
        empty,
        optima=along.optima,
        drift=drift,
        regret=replace(along.excess(), unit=EXCESS_UNIT),
        verdict=verdict,
        why=why,
        interactions=changes,
        bend=along.bend,
        slices=tuple(tuple(int(i) for i in member) for member in along.members),
        together=along.together,
    )


def _interactions(runs: Runs, axis: Axis, tuned: Tuned) -> Iterator[tuple[Axis, Estimate]]:
    """How the drift along an axis changes with every other one, where sizes grow along both."""
    base = runs.base
    if base is None:
        return
    for other in base:
        sizes = crossed(runs.sizes, base, (axis, other)) if other != axis else ()
        if sizes:
            part = runs.at(runs.sizes.index(size) for size in sizes)
            change = interaction(part.optima, sizes, base, (axis, other))
            yield other, replace(change, unit=f"{drift_unit(axis, tuned)} and of {other}")


def judged(
    runs: Runs, axis: Axis, drift: Estimate, claims: Iterable[Claim], tolerance: float
) -> tuple[Judgement, ...]:
    """Every published rule that speaks of an axis, judged by what was measured along it.

    None where nothing was measured, or other axes changed with this one.
    """
    along = along_axis(runs, axis)
    if along is None or along.together or not drift.known:
        return ()
    # The cost of following a rule is that over the widest range that was measured.
    ends = along.ends
    x = np.log2(along.runs.along(axis))
    judgements = []
    for claim in claims:
        exponent = float(claim.exponent)
        price = UNKNOWN
        if ends is not None:
            price = along.cost(*ends, exponent * float(x[ends[1]] - x[ends[0]]))
        judgements.append(
            Judgement(
                scheme=runs.name,
                rule=claim.rule,
                axis=axis,
                exponent=exponent,
                answer=answer(drift, exponent, tolerance),
                cost=price,
                setting=claim.setting,
                reach=claim.reach,
                source=claim.source,
                standing=claim.standing,
            )
        )
    return tuple(judgements)


def answer(drift: Estimate, exponent: float, tolerance: float) -> Answer:
    """Consistent if the whole interval is within the tolerance of a rule, rejected if none is.

    Example:
        >>> answer(Estimate(value=-0.4, low=-0.5, high=-0.35), -0.45, 0.15)
        <Answer.CONSISTENT: 'consistent'>
    """
    if drift.inside(exponent - tolerance, exponent + tolerance):
        return Answer.CONSISTENT
    if drift.outside(exponent - tolerance, exponent + tolerance):
        return Answer.REJECTED
    return Answer.UNDECIDED


def curves_of_sizes(part: Runs) -> tuple[Curve, ...]:
    """The curve of every size, every run in it."""
    return tuple(
        Curve(
            scheme=part.name,
            size=dict(size),
            points=tuple(
                _point(float(k), of_seeds)
                for k, of_seeds in zip(x, losses, strict=True)
                if not np.isnan(of_seeds).all()
            ),
        )
        for size, x, losses in zip(
            part.sizes, part.curves.log2_lrs, part.curves.losses, strict=True
        )
    )


def _point(log2_lr: float, of_seeds: Array) -> Point:
    """The geometric mean over the seeds that did not diverge, with a t interval of the log."""
    finite = of_seeds[np.isfinite(of_seeds)]
    return Point(
        log2_lr=log2_lr,
        loss=geometric_mean(finite.tolist()) if len(finite) else UNKNOWN,
        seeds=int((~np.isnan(of_seeds)).sum()),
        diverged=int(np.isinf(of_seeds).sum()),
    )


def window(
    variants: Sequence[Runs],
    axis: Axis,
    *,
    tolerance: float,
    tuned: Tuned = LEARNING_RATE,
    steps: slice = slice(0, 0),
    planned: Sequence[float] = (),
) -> Window:
    """Curves and verdicts of all variants along an axis, of losses over some steps."""
    lines = [along_axis(runs, axis) for runs in variants]
    parts = [along.runs for along in lines if along is not None]
    return Window(
        start=steps.start,
        stop=steps.stop,
        curves=tuple(curve for part in parts for curve in curves_of_sizes(part)),
        transfers=tuple(
            transfer_of(runs, axis, along, tolerance=tolerance, tuned=tuned, planned=planned)
            for runs, along in zip(variants, lines, strict=True)
        ),
    )


def far_sizes(runs: Runs, axis: Axis, tuned: Tuned = LEARNING_RATE) -> tuple[Note, ...]:
    """Sizes whose best value is octaves off the law of all others: kept, and noted."""
    along = along_axis(runs, axis)
    return () if along is None else tuple(_far(along.runs, along.runs.optima, tuned))


def _far(runs: Runs, fitted: Optima, tuned: Tuned) -> Iterator[Note]:
    for slipped, octaves in slips_of(runs, fitted).items():
        size = ", ".join(f"{axis} {n:g}" for axis, n in runs.sizes[slipped].items())
        yield Note(
            text=f"The best {tuned.name} of size {size} is {2.0**octaves:.3g} times that of "
            "the law of all other sizes: another unit, or another law there. It is kept.",
            scheme=runs.name,
            defect=Defect.FAR,
            count=1,
        )


FEWEST_RATES = 3
"""With fewer a curve has no optimum."""


def slips_of(runs: Runs, fitted: Optima) -> dict[int, float]:
    """Octaves by which the rates of sizes are off the law of all others' optima."""
    positions, x, spacing = np.log2(runs.array), fitted.curves.log2_lrs, fitted.spacing
    tried = (~np.isnan(x)).sum(-1)
    inside = np.array([place is Place.INTERIOR for place in fitted.places()])
    centre = np.where(inside, fitted.centre, np.nan)
    # One or two rates far from their optimum are sound, unless they trained as well as others.
    well = trained(positions, x, fitted.log_losses, centre, spacing)
    telling = (tried >= FEWEST_RATES) | well
    lows, highs = (np.where(telling, end(x, -1), np.nan) for end in (np.nanmin, np.nanmax))
    return slipped_rates(positions, centre, lows, highs, spacing, well)
