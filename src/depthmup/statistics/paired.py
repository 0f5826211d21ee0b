"""What one small change does at a size, by runs that share their rates and seeds.

Two variants that nearly agree have nearly the same noise: runs of one seed draw the same weights
and data. So their log losses differ at a rate x by

    h(x) = log loss_B(x) - log loss_A(x),

of which the mean over seeds has Student's interval, far narrower than that of either. Whatever the
valleys look like, with A's minimum at x_A and rising by r(x) from there,

    -h(x_A) <= log lowest_A - log lowest_B <= -min h,
    r(x_B) <= h(x_A) - min h,

as B at its own minimum is no worse than at A's. Between two rates h lies between its chord and the
lines that go on from the rates outside, as far as it is convex or concave there. Two or three seeds
may agree by chance, so their scatter counts as at least that of all rates together.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.posterior.intervals import Array, around, student
from depthmup.posterior.law import Size
from depthmup.records import UNKNOWN, Estimate
from depthmup.statistics.runs import Runs

REACH = 1.5
"""Octaves from A's minimum within which B's is looked for; further apart, pairs tell nothing."""

STEP = 1 / 8
"""Octaves between the rates at which the least difference is looked for."""

PLACES = 5
"""Of A's minimum within its interval."""

FINE = np.arange(1, 97) / 64
"""Octaves to each side at which a valley's rise is looked up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Runs of B (``one``) beside those of A (``whole``) at a size that both train.

    Attributes:
        rates: log2, at which A trained and B was tried.
        differences: of log losses (rates, seeds); infinite where B diverged, NaN without a run.
    """

    one: Runs
    whole: Runs
    size: Size
    rates: Array
    differences: Array

    @staticmethod
    def of(one: Runs, whole: Runs, size: Size) -> "Pairs":
        """The pairs of two variants at a size."""
        seen = [{(x, s): y for x, s, y in runs.at_size(size)} for runs in (one, whole)]
        both = [run for run in seen[0].keys() & seen[1].keys() if 0 < seen[1][run] < np.inf]
        rates = sorted({x for x, _ in both})
        seeds = sorted({s for _, s in both})
        found = np.full((len(rates), len(seeds)), np.nan)
        for x, s in both:
            found[rates.index(x), seeds.index(s)] = np.log(seen[0][x, s] / seen[1][x, s])
        return Pairs(one=one, whole=whole, size=size, rates=np.array(rates), differences=found)

    @cached_property
    def _index(self) -> int:
        return [dict(self.whole.sizes[j]) for j in self.whole.trains].index(dict(self.size))

    @cached_property
    def minimum(self) -> float:
        """A's, as a log2 rate."""
        return float(self.whole.minima.at[self._index])

    def difference(self, at: float) -> Estimate:
        """h at a rate: unknown beyond the rates, infinite where B diverges nearest to it."""
        below, above = (np.flatnonzero(side) for side in (self.rates <= at, self.rates > at))
        if not len(below) or not len(above):
            return UNKNOWN
        i, j = int(below[-1]), int(above[0])
        share = (at - self.rates[i]) / (self.rates[j] - self.rates[i])
        nearest = self.differences[j if share > 0.5 else i]
        if np.isposinf(nearest[~np.isnan(nearest)]).all():
            return Estimate(value=math.inf, low=math.inf, high=math.inf)
        weights = np.zeros(len(self.rates))
        weights[i], weights[j] = 1 - share, share
        line = self._over_seeds(weights)
        least, most = self._bent(at, i, j, line.value)
        return Estimate(
            value=line.value,
            low=line.low - line.value + least,
            high=line.high - line.value + most,
        )

    def _bent(self, at: float, i: int, j: int, line: float) -> tuple[float, float]:
        """Between what h lies where it may bend between two rates.

        A convex one lies above the lines that go on from the rates outside, and below its chord; a
        concave one the other way round. What is neither lies between all three.
        """
        x, h = self.rates, self._means
        outside = ((i, i - 1), (j, j + 1))
        on = [
            float(h[a] + (at - x[a]) * (h[a] - h[b]) / (x[a] - x[b]))
            for a, b in outside
            if 0 <= b < len(x)
        ]
        on = [value for value in on if not math.isnan(value)] or [line]
        if max(on) <= line:
            return max(on), line
        if min(on) >= line:
            return line, min(on)
        return min(on), max(on)

    @cached_property
    def _means(self) -> Array:
        """h at the rates, NaN at one where B trains with no seed."""
        return _finite_means(self.differences)

    def _over_seeds(self, weights: Array) -> Estimate:
        """A sum over rates, with its interval; seeds that lack a rate which counts are left out."""
        used = weights != 0
        of_seeds = weights[used] @ self.differences[used]
        of_seeds = of_seeds[np.isfinite(of_seeds)]
        if len(of_seeds) < 2:
            return UNKNOWN
        near = used | (np.abs(self.rates - self.minimum) <= REACH)
        there = np.where(np.isfinite(self.differences), self.differences, np.nan)[near]
        freedom = np.maximum((~np.isnan(there)).sum(1) - 1, 0).sum()
        squares = np.nansum((there - _finite_means(there)[:, None]) ** 2)
        pooled = np.sqrt(squares / freedom * (weights @ weights))
        scatter = max(float(of_seeds.std(ddof=1)), float(pooled))
        half = scatter / math.sqrt(len(of_seeds)) * float(student(freedom))
        return around(float(of_seeds.mean()), half)

    @cached_property
    def lowest(self) -> float:
        """What h is at least, about A's minimum; NaN where B was not tried to both sides of it."""
        u = self.rates - self.minimum
        near = u[np.abs(u) <= REACH]
        if len(near) < 3 or not near[0] < 0 < near[-1]:
            return math.nan
        steps = np.arange(near[0], near[-1], STEP) + self.minimum
        each = [h.low for at in steps if not math.isnan((h := self.difference(float(at))).low)]
        return min(each, default=math.nan)

    @cached_property
    def tuned(self) -> tuple[float, float]:
        """Between what B's gain at the own minima of both lies, nats."""
        return -self._here, -self.lowest

    @cached_property
    def _here(self) -> float:
        """What h is at most at A's minimum, wherever that may lie."""
        off = 1.96 * float(self.whole.minima.posterior.deviation[self._index])
        places = self.minimum + np.linspace(-off, off, PLACES)
        return float(np.max([self.difference(float(at)).high for at in places]))

    @cached_property
    def moved(self) -> tuple[float, float]:
        """Between what B's minimum lies from A's, octaves."""
        most = self._here - self.lowest
        steep, error = (float(v[self._index]) for v in self.whole.minima.curvature)
        sure = max(1 - 1.96 * error / steep, 0.0) if steep > 0 else 0.0
        ends = []
        for side in (-1.0, 1.0):
            rise = sure * np.asarray(self.whole.minima.excess(self._index, side * FINE))
            beyond = np.flatnonzero(rise > most)
            inside = len(beyond) and not math.isnan(most)
            ends.append(side * float(FINE[beyond[0]]) if inside else side * math.inf)
        return ends[0], ends[1]


def _finite_means(differences: Array) -> Array:
    """Of seeds, NaN at a rate without one."""
    there = np.isfinite(differences)
    count = there.sum(1)
    total = np.where(there, differences, 0.0).sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
