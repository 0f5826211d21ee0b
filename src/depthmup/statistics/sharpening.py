"""An axis whose sizes all have a bracket: is its drift decided, and what would decide it?

A step is more seeds at every size, or finer and farther rates at some. What it would leave of the
interval is predicted from the scatter of seeds and from what fits of such rates miss.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.records import Verdict
from depthmup.records.finding import change, change_span
from depthmup.records.text import counted
from depthmup.statistics.intervals import CONFIDENCE, Array, student
from depthmup.statistics.looks import SPENT, looked_along, shallow
from depthmup.statistics.misfit import FIT, ONE_SIDED
from depthmup.statistics.optimum import Optima
from depthmup.statistics.parabola import SPACINGS
from depthmup.statistics.regression import Regression, line_of
from depthmup.statistics.search import Ask, Round, Search

FINEST, FINEST_WALLED = 0.5, 0.25
"""Octaves between the rates of a bracket that was made finer; beside a divergence, and elsewhere,
finer rates would show the optimum no better than other sizes are known."""

FARTHER = math.hypot(FIT, ONE_SIDED / SPACINGS / 2)
"""What a bracket with two points on one side and one on the other misses, in spacings."""

_OF_REGION = {Verdict.TRANSFERS: "inside the region", Verdict.DRIFTS: "outside of the region"}
"""What a verdict says where the region is another than that of staying."""


@dataclass(frozen=True, kw_only=True)
class Sharpening:
    """One axis whose sizes are all bracketed: is it decided, and what would decide it?"""

    search: Search
    axis: str
    sizes: Sequence[int]

    @cached_property
    def fitted(self) -> Optima:
        """The optima of its sizes."""
        return self.search.fitted(self.sizes)

    @cached_property
    def row(self) -> Array:
        """By what the drift changes with the optimum of each size."""
        return np.asarray(self._line.rows[1])

    @cached_property
    def _line(self) -> Regression:
        return line_of(self.search.positions(self.axis, self.sizes), self.fitted)

    def _drift(self, *, decides: bool = True) -> tuple[float, float]:
        """The drift so far, and the half-width of its interval."""
        value, half = looked_along(self._line, 1, decides=decides)
        return float(value), float(half)

    def _half(self, look: int, misfit: Array) -> float:
        """The half-width that so many seeds and such errors of the fits would leave."""
        # What data leave open of the valleys falls as their fits' misfits do.
        now, then = (float((self.row**2 * m**2).sum()) for m in (self.fitted.misfit, misfit))
        left = float(self._line.shape_part(self.row)) * math.sqrt(then / now)
        parts = math.hypot(self._of_seeds(look), left)
        of_now = math.hypot(self._of_seeds(self.search.look), self._line.shape_part(self.row))
        share = min(parts / of_now, 1.0) if math.isfinite(of_now) else 1.0
        return float(self._line.widened(np.asarray(parts), self.row, left=share))

    def _of_seeds(self, look: int) -> float:
        """What so many seeds would leave of it."""
        level = SPENT if self.search.precision is None else CONFIDENCE
        return float(self._line.seeds_part(self.row, level, planned=look))

    def next_step(self) -> Round:
        """The runs that narrow its interval most for their cost, or why none are needed."""
        search = self.search
        value, half = self._drift(decides=search.precision is None)
        shown = f"{change(value)} ({change_span(value - half, value + half)})"
        if search.precision is not None:
            need, slack = search.precision, 0.0
            if half <= need:
                return Round(why=f"at {shown}, as narrow as asked for")
        else:
            verdict = search.verdict(self.axis, self.sizes)
            if verdict is not Verdict.UNDECIDED:
                word = verdict.value if search.region is None else _OF_REGION[verdict]
                seeds = counted(search.look, "seed")
                return Round(why=f"{word} is decided after {seeds}, at {shown}")
            if search.complete:
                return Round(why=f"all sizes have {counted(search.look, 'seed')}")
            # Seeds to come may still move the drift, by a standard error or so.
            error = self._of_seeds(search.look) / float(student(math.inf, SPENT))
            low, high = search.edges
            need, slack = min(abs(value - low), abs(value - high)), error
            part = len(self.sizes) < len(search.arm(self.axis))
            if part and low <= value <= high:
                return Round(why=f"at {shown} where it trains")
        if not math.isfinite(half):
            return self._more_or_shallow()
        misfit = self.fitted.misfit
        finest = np.array([self._least(i, misfit[n]) for n, i in enumerate(self.sizes)])
        hopeless = self._half(search.looks[-1], finest) > need + slack
        if hopeless and search.precision is None:
            more = "; a third size may" if len(self.sizes) == 2 else ""
            return Round(
                why=f"undecided at {shown}, and neither {counted(search.looks[-1], 'seed')} "
                f"nor finer steps would change that{more}"
            )
        return self._best_step(need, half)[0]

    def decisive(self, most: float) -> Round | None:
        """Runs that are expected to decide "drifts" at the sizes measured, if there are any."""
        search = self.search
        value, half = self._drift()
        low, high = search.edges
        need = max(value - high, low - value)
        if need <= 0:
            return None
        later = [look for look in search.looks if look > search.look]
        if math.isfinite(half):
            step, left = self._best_step(need, half)
        elif later and not shallow(self.fitted, search.look, planned=later[0]):
            step, left = search.more_seeds(self.sizes), self._half(later[0], self.fitted.misfit)
        else:
            return None
        if not step.asks or left > need:
            return None
        return step if sum(search.costs[ask.size] for ask in step.asks) < most else None

    def _more_or_shallow(self) -> Round:
        """Where the valleys are no deeper than seeds scatter, more seeds alone can help."""
        search = self.search
        if search.look < search.looks[-1]:
            return search.more_seeds(self.sizes)
        what = search.tuned
        return Round(why=f"seeds scatter more than {what.the} matters around some optimum")

    def _halvings(self, i: int) -> int:
        """How many times the steps of a size's bracket may still be halved."""
        bracket = self.search.brackets[i]
        finest = FINEST_WALLED if bracket.walled else FINEST
        return max(0, round(math.log2(bracket.spacing / finest)))

    def _best_step(self, need: float, half: float) -> tuple[Round, float]:
        """The steps that narrow the interval most for their cost, until they would decide.

        With the half-width that is expected after them.
        """
        search, look = self.search, self.search.look
        misfit = self.fitted.misfit.copy()
        worth: dict[int, tuple[float, tuple[Ask, ...], float]] = {}
        for n, i in enumerate(self.sizes):
            for asks, error in (self._farther(i, misfit[n]), self._finer(i, misfit[n])):
                finer = self._with_finer(n, error, misfit)
                gain = half**2 - self._half(look, finer) ** 2
                value = gain / (max(len(asks), 1) * search.costs[i])
                if asks and (n not in worth or value > worth[n][0]):
                    worth[n] = (value, asks, error)
        later = [other for other in search.looks if other > look]
        if later:
            more = search.more_seeds(self.sizes)
            gain = half**2 - self._half(later[0], misfit) ** 2
            cost = sum(search.costs[ask.size] for ask in more.asks)
            # Without a cost the seeds are all there, as some sizes may have more than others.
            if not worth or (cost and gain / cost > max(of[0] for of in worth.values())):
                return more, self._half(later[0], misfit)
        asks_so_far: tuple[Ask, ...] = ()
        for n, (value, asks, error) in sorted(worth.items(), key=lambda item: -item[1][0]):
            if asks_so_far and (search.precision or value <= 0 or self._half(look, misfit) <= need):
                break
            asks_so_far += asks
            misfit[n] = error
        if not asks_so_far:
            spread = change_span(-half, half)
            why = f"undecided: all seeds and the finest steps leave an uncertainty of {spread}"
            return Round(why=why), half
        named = dict.fromkeys(search.named(ask.size) for ask in asks_so_far)
        why = f"finer and further rates at {'; '.join(named)}"
        return Round(asks=asks_so_far, why=why), self._half(look, misfit)

    def _least(self, i: int, misfit: float) -> float:
        """The misfit that more rates could leave at a size."""
        if any(map(self.search.far_rate, self.sizes)):
            misfit = min(misfit, FARTHER * self.search.brackets[i].spacing)
        return misfit / 2.0 ** self._halvings(i)

    def _farther(self, i: int, misfit: float) -> tuple[tuple[Ask, ...], float]:
        """Runs that tell a bracket's gentle side, and the misfit if that side is no flat one."""
        asks = self.search.far_rate(i)
        return asks, min(misfit, FARTHER * self.search.brackets[i].spacing) if asks else misfit

    def _with_finer(self, n: int, error: float, misfit: Array) -> Array:
        """All misfits once one size's is known better: they share how steep a side looks."""
        shared = self.fitted.steep[n] ** 2 / len(self.sizes)
        spacing = self.fitted.spacing
        finer = np.sqrt(np.maximum(misfit**2 - shared * spacing**2, (FIT * spacing) ** 2))
        finer[n] = min(finer[n], error)
        return np.asarray(np.minimum(finer, misfit))

    def _finer(self, i: int, misfit: float) -> tuple[tuple[Ask, ...], float]:
        """Runs that make a size's bracket finer, or as wide on both sides, and the misfit then."""
        for halvings in range(min(self._halvings(i), 1) + 1):
            asks = self.search.half_steps(i, halvings)
            if asks:
                step = self.search.brackets[i].spacing / 2**halvings
                return asks, misfit / 2 if halvings else min(misfit, FIT * step)
        return (), misfit
