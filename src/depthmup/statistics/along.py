"""The runs of one variant along one axis: optima, the slope that slices share, and its costs.

Slices have one slope and a level each. Slopes are combinations of the minima of these sizes: what
was realized at them, and no law.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.records import UNKNOWN, Axis, Estimate, Optimum, Place, Tuned
from depthmup.statistics.cost import cost
from depthmup.statistics.drift import drift_unit
from depthmup.statistics.interaction import Dependence
from depthmup.statistics.runs import Runs, slices_of

FEWEST_VALUES = 3
"""Of another axis, from which on slices show how a slope changes with it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Along:
    """The sizes of a variant along one axis.

    Attributes:
        runs: all runs of the variant.
        index: its sizes along the axis, one slice after the other.
        members: of each slice, positions in ``index``.
        together: axes that change with this one.
        optima: of the sizes along the axis.
    """

    axis: Axis
    runs: Runs
    index: Index
    members: tuple[Index, ...]
    together: tuple[Axis, ...]
    optima: tuple[Optimum, ...]

    @cached_property
    def sizes(self) -> list[dict[Axis, float]]:
        return [dict(self.runs.sizes[int(i)]) for i in self.index]

    @cached_property
    def x(self) -> Array:
        """log2 of the sizes along the axis."""
        return np.asarray(np.log2(self.runs.along(self.axis)[self.index]))

    @cached_property
    def inside(self) -> Flags:
        """Whether an optimum lies inside its grid."""
        return np.array([optimum.place is Place.INTERIOR for optimum in self.optima])

    @cached_property
    def used(self) -> list[Index]:
        """The members of each slice that train, of slices with two of them."""
        trains = np.array([optimum.place is not Place.FAILED for optimum in self.optima])
        kept = [member[trains[member]] for member in self.members]
        return [member for member in kept if len(member) > 1]

    @cached_property
    def others(self) -> dict[Axis, Array]:
        """log2 of the other axes, centred, along which slices differ, where they are enough."""
        if self.runs.base is not None:
            return {}
        # What grows along a slice would be taken for a bend of it.
        fixed = {*self.sizes[0]} - {self.axis, *self.together}
        of_slices = self.places[self.levels.argmax(0)]
        found = {
            axis: values - values.mean()
            for axis, values, own in zip(self.sizes[0], self.places.T, of_slices.T, strict=True)
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
        if not self.used:
            return Dependence()
        first, names = self.levels.shape[1] + 1, self.sizes[0]
        return Dependence(
            changes={a: self._estimate(self._rows[first + n]) for n, a in enumerate(self.others)},
            middle=dict(zip(names, self.places.mean(0).tolist(), strict=True)),
            ends={
                axis: (float(2.0**low), float(2.0**high))
                for axis, low, high in zip(
                    names, self.places.min(0), self.places.max(0), strict=True
                )
            },
        )

    @cached_property
    def positions(self) -> Array:
        """log2 of the sizes used, centred: the bend is then not nearly parallel to the slope."""
        x = self.x[np.concatenate(self.used)]
        return np.asarray(x - x.mean())

    @cached_property
    def places(self) -> Array:
        """log2 of the sizes used along every axis."""
        sizes = [self.sizes[i] for i in np.concatenate(self.used)]
        return np.log2([list(map(float, size.values())) for size in sizes])

    @cached_property
    def levels(self) -> Array:
        of_slice = np.repeat(np.arange(len(self.used)), [len(member) for member in self.used])
        return np.asarray(of_slice[:, None] == np.arange(len(self.used)), float)

    @cached_property
    def _rows(self) -> Array:
        """Weights of the used sizes in every coefficient: levels, the slope, its changes."""
        products = [self.positions * z for z in self.others.values()]
        return self._solved(np.column_stack([self.levels, self.positions, *products]))

    def _solved(self, design: Array) -> Array:
        at = [self._at(int(i)) for i in np.concatenate(self.used)]
        return self.runs.minima.least_squares(design, at)

    def _at(self, size: int) -> int:
        """A member's number among the sizes that train, of which there are minima."""
        return self.runs.trains.index(int(self.index[size]))

    def row(self, weights: Array) -> Array:
        """Weights of the used sizes as weights of all sizes that train."""
        whole = np.zeros(len(self.runs.trains))
        for i, weight in zip(np.concatenate(self.used), weights, strict=True):
            whole[self._at(int(i))] += weight
        return whole

    def _estimate(self, weights: Array, *, scale: float = 1.0, unit: str = "") -> Estimate:
        return self.runs.minima.posterior.estimate(self.row(weights), scale=scale, unit=unit)

    def drift(self, tuned: Tuned) -> Estimate:
        """The slope, in octaves per doubling."""
        unit = drift_unit(self.axis, tuned)
        if not self.used:
            return replace(UNKNOWN, unit=unit)
        return self._estimate(self._rows[self.levels.shape[1]], unit=unit)

    @property
    def middle(self) -> float:
        """The slope of the valleys' middles."""
        return float(self.row(self._rows[self.levels.shape[1]]) @ self.runs.minima.middle)

    @property
    def bend(self) -> Estimate:
        """The change of the slope per doubling; unknown where the sizes do not show it."""
        if not self.used:
            return UNKNOWN
        x = self.positions
        design = np.column_stack([self.levels, x, x**2])
        if np.linalg.matrix_rank(design) < design.shape[1] or len(x) <= design.shape[1]:
            return UNKNOWN
        row = self._solved(design)[-1]
        return self._estimate(row, scale=2.0, unit="change per doubling")

    @property
    def ends(self) -> tuple[int, int] | None:
        """The first and last size of the slice that reaches farthest, of optima inside."""
        kept = [member[self.inside[member]] for member in self.used]
        if not any(map(len, kept)):
            return None
        x = self.x
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
            at_base = [i for i, size in enumerate(self.sizes) if size == dict(runs.base)]
            ends = (at_base[0], target) if at_base else None
        if ends is None or not all(self.inside[i] for i in ends):
            return UNKNOWN
        return self.cost(*ends, 0.0)

    def cost(self, base: int, target: int, octaves: float) -> Estimate:
        """The loss that one size's best value, times ``2**octaves``, adds at another."""
        found, i, j = self.runs.minima, self._at(base), self._at(target)
        row = np.zeros(len(found.at))
        row[i] += 1
        row[j] -= 1
        return cost(found, j, row, octaves)


def along_axis(runs: Runs, axis: Axis) -> Along | None:
    """A variant's runs along an axis; none where no two sizes differ in it alone."""
    if not runs.sizes:
        return None
    members, together = slices_of(runs, axis)
    if not members or not sum(map(len, members)):
        return None
    index = np.concatenate(members)
    ends = np.cumsum([len(member) for member in members])
    own = tuple(np.arange(end - len(m), end) for m, end in zip(members, ends, strict=True))
    best = runs.best()
    return Along(
        axis=axis,
        runs=runs,
        index=index,
        members=own,
        together=together,
        optima=tuple(best[int(i)] for i in index),
    )
