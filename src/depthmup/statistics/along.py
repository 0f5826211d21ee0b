"""The runs of one variant along one axis: optima, the slope that slices share, and its costs.

Slices have one slope and a level each.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from depthmup.records import (
    LEARNING_RATE,
    UNKNOWN,
    Axis,
    Estimate,
    Optimum,
    Place,
    Tuned,
    Verdict,
)
from depthmup.records.finding import verdict_of
from depthmup.statistics.cost import cost
from depthmup.statistics.drift import drift_unit
from depthmup.statistics.interaction import Dependence
from depthmup.statistics.intervals import Array, Flags, Index, around
from depthmup.statistics.looks import looked_along
from depthmup.statistics.optimum import FEWEST_INSIDE, Optima, optima
from depthmup.statistics.regression import Regression, uneven
from depthmup.statistics.runs import Runs, slices_of

FEWEST_VALUES = 3
"""Of another axis, from which on slices show how a slope changes with it."""

OUTVOTED = 0.1
"""Optima at an edge that may contradict the others, as a part of these: twice what chance does."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Along:
    """The runs of a variant along one axis, and what is fitted to them.

    Attributes:
        runs: the sizes of all slices, one slice after the other.
        members: indices of the sizes of each slice.
        together: axes that change with this one.
        edges: whether optima at an edge of their grid count.
    """

    axis: Axis
    runs: Runs
    members: tuple[Index, ...]
    together: tuple[Axis, ...]
    optima: tuple[Optimum, ...]
    edges: bool = True

    @cached_property
    def inside(self) -> Flags:
        """Whether an optimum lies inside its grid."""
        return np.array([optimum.place is Place.INTERIOR for optimum in self.optima])

    @cached_property
    def told(self) -> Flags:
        """Whether an optimum lies inside, or at an edge from which the valley of all leads on.

        Those that contradict the others are bounds alone, but where they are few: then they scatter
        as others do. A search goes on beyond the edge instead.
        """
        if not self.edges or self.runs.sought or self.inside.sum() < FEWEST_INSIDE:
            return self.inside
        agree = self._without_edges.bounds(self._inside_alone, math.inf)
        told, shown = self.inside.copy(), self.runs.minima.fitted.told_at_edge
        against = self._at_edge() - agree
        count = agree | against if self._few(against) else agree
        told[[i for i in count if shown[self._at(i)]]] = True
        return told

    def _at_edge(self) -> set[int]:
        return {i for i, optimum in enumerate(self.optima) if optimum.place.at_edge}

    def _few(self, against: Collection[int]) -> bool:
        """Whether so few optima contradict the others as chance and scatter may."""
        return len(against) <= OUTVOTED * (len(self.optima) - len(against))

    def outvoted(self, bounds: Collection[int], drift: Estimate, tolerance: float) -> set[int]:
        """Optima at an edge that contradict the drift, and cannot change its verdict.

        They are few, and without any optimum at an edge the verdict is the same, or open with them.
        """
        against = self._at_edge() - set(bounds)
        if not (against and self._few(against) and drift.known and self._inside_alone.known):
            return set()
        with_edges, alone = (
            verdict_of(d, -tolerance, tolerance) for d in (drift, self._inside_alone)
        )
        return against if with_edges in (alone, Verdict.UNDECIDED) else set()

    @cached_property
    def _without_edges(self) -> "Along":
        return replace(self, edges=False)

    @cached_property
    def _inside_alone(self) -> Estimate:
        """The drift of the optima inside their grids."""
        return self._without_edges.drift(LEARNING_RATE)

    def _at(self, size: int) -> int:
        """A size's number among those that train, of which there are minima."""
        return self.runs.trains.index(size)

    @cached_property
    def used(self) -> list[Index]:
        """The members of each slice whose optima are told, of slices with two of them."""
        kept = [member[self.told[member]] for member in self.members]
        return [member for member in kept if len(member) > 1]

    @cached_property
    def line(self) -> Regression | None:
        """A level for each slice and a slope, of which slices show how it changes between them.

        None with fewer than two optima. The slope is that in the middle of the other axes.
        """
        if not self.used:
            return None
        some = optima(self.runs.fitted[np.concatenate(self.used)])
        products = [self.positions * z for z in self.others.values()]
        return self._regression(some, [self.levels, self.positions, *products])

    @cached_property
    def others(self) -> dict[Axis, Array]:
        """log2 of the other axes, centred, along which slices differ, where they are enough."""
        if self.runs.sought or self.runs.base is not None:
            return {}
        # What grows along a slice would be taken for a bend of it.
        fixed = {*self.runs.sizes[0]} - {self.axis, *self.together}
        of_slices = self.places[self.levels.argmax(0)]
        found = {
            axis: values - values.mean()
            for axis, values, own in zip(
                self.runs.sizes[0], self.places.T, of_slices.T, strict=True
            )
            if axis in fixed and len(set(own)) >= FEWEST_VALUES
        }
        columns = np.column_stack([self.positions, *(self.positions * z for z in found.values())])
        count = self.levels.sum(0)[:, None]
        within = columns - self.levels @ (self.levels.T @ columns / count)
        terms = columns.shape[1]
        spare = len(columns) - len(count) - terms
        whole = np.linalg.matrix_rank(within) == terms
        return found if whole and spare >= terms else {}

    @cached_property
    def depends(self) -> Dependence:
        """How the slope changes with the other axes, where slices show it."""
        if self.line is None:
            return Dependence()
        first, sizes = self.levels.shape[1] + 1, self.runs.sizes[0]
        return Dependence(
            changes={a: self.line.estimate(first + n) for n, a in enumerate(self.others)},
            middle=dict(zip(sizes, self.places.mean(0).tolist(), strict=True)),
            ends={
                axis: (float(2.0**low), float(2.0**high))
                for axis, low, high in zip(
                    sizes, self.places.min(0), self.places.max(0), strict=True
                )
            },
        )

    @cached_property
    def positions(self) -> Array:
        """log2 of the sizes used, centred: the bend is then not nearly parallel to the slope."""
        x = np.log2(self.runs.along(self.axis)[np.concatenate(self.used)])
        return np.asarray(x - x.mean())

    @cached_property
    def places(self) -> Array:
        """log2 of the sizes used along every axis."""
        sizes = [self.runs.sizes[i] for i in np.concatenate(self.used)]
        return np.log2([list(map(float, size.values())) for size in sizes])

    @cached_property
    def levels(self) -> Array:
        of_slice = np.repeat(np.arange(len(self.used)), [len(member) for member in self.used])
        return np.asarray(of_slice[:, None] == np.arange(len(self.used)), float)

    def _regression(self, fitted: Optima, columns: Sequence[Array]) -> Regression:
        """A law of sizes, weighted where some lie at an edge, or on grids that differ."""
        edges = not self.inside[np.concatenate(self.used)].all()
        return Regression(
            fitted=fitted,
            design=np.column_stack(columns),
            weighted=(edges or uneven(fitted)) and not self.runs.sought,
            lenient=not self.runs.sought,
            bend=self.positions**2,
            doublings=self.positions[:, None],
            places=self.places,
        )

    def drift(self, tuned: Tuned) -> Estimate:
        """The slope, in octaves per doubling."""
        unit = drift_unit(self.axis, tuned)
        if self.line is None:
            return replace(UNKNOWN, unit=unit)
        term = self.levels.shape[1]
        if not self.runs.sought:
            return self.line.estimate(term, unit=unit)
        # Who stops when the interval decides needs one that may be looked at several times.
        return around(*looked_along(self.line, term, decides=self.runs.decides), unit)

    @property
    def bend(self) -> Estimate:
        """The change of the slope per doubling; unknown where the sizes do not show it."""
        if self.line is None:
            return UNKNOWN
        x = self.positions
        curved = self._regression(self.line.fitted, [self.levels, x, x**2])
        if curved.rank < curved.design.shape[1] or curved.freedom < 1:
            return UNKNOWN
        return curved.estimate(-1, scale=2.0, unit="change per doubling")

    @property
    def ends(self) -> tuple[int, int] | None:
        """The first and last size of the slice that reaches farthest, of optima inside."""
        kept = [member[self.inside[member]] for member in self.used]
        if not any(map(len, kept)):
            return None
        x = np.log2(self.runs.along(self.axis))
        longest = max(filter(len, kept), key=lambda member: float(x[member[-1]] - x[member[0]]))
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
        return self.cost(*ends, 0.0)

    def cost(self, base: int, target: int, octaves: float) -> Estimate:
        """The loss that one size's best value, times ``2**octaves``, adds at another."""
        found, i, j = self.runs.minima, self._at(base), self._at(target)
        away = float(found.at[i] - found.at[j]) + octaves
        return cost(found, j, away, found.error(i, j) if i != j else found.error(j))

    def bounds(self, drift: Estimate, tolerance: float) -> set[int]:
        """The optima at an edge of their grid that the drift puts there, or beyond.

        One that asks for a larger drift, the same way, agrees with what drifts as it is.
        """
        if not (drift.known and math.isfinite(drift.high - drift.low)):
            return set()
        x, found, agree = np.log2(self.runs.along(self.axis)), self.runs.minima, set()
        for member in self.members:
            known = member[self.inside[member]]
            if not len(known):
                # Bounds on one side alone say nothing of a slope.
                edges = {i for i in map(int, member) if self.optima[i].place.at_edge}
                agree |= edges if len({self.optima[i].place for i in edges}) == 1 else set()
                continue
            best = [float(found.at[self._at(int(i))]) for i in known]
            level, middle = float(np.mean(best)), float(x[known].mean())
            steeper = self.depends.steeper(self.runs.sizes[int(member[0])])
            low, high = drift.low + steeper, drift.high + steeper
            for i in map(int, member):
                place = self.optima[i].place
                if not place.at_edge:
                    continue
                ends = [level + slope * (x[i] - middle) for slope in (low, high)]
                if found.fitted.reaches_edge(self._at(i), min(ends), max(ends)):
                    agree.add(i)
                upwards = (place is Place.HIGH_EDGE) == bool(x[i] > middle)
                if low > tolerance if upwards else high < -tolerance:
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
    return Along(
        axis=axis,
        runs=part,
        members=own,
        together=together,
        optima=part.best(),
    )
