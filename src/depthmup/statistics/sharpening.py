"""An axis whose sizes all have a bracket: is its drift decided, and what would decide it?

A step is more seeds at every size, or finer and farther rates at some. What it would leave of the
interval is what the posterior of these runs would be, if they came as the fit foretells.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from depthmup.posterior.intervals import CONFIDENCE, Array
from depthmup.records import Estimate, Verdict
from depthmup.records.finding import change, change_span
from depthmup.records.text import counted
from depthmup.statistics.search import Ask, Round, Search

FINEST, FINEST_WALLED = 0.5, 0.25
"""Octaves between the rates of a bracket that was made finer; beside a divergence, and elsewhere,
finer rates would show the optimum no better than other sizes are known."""

_OF_REGION = {Verdict.TRANSFERS: "inside the region", Verdict.DRIFTS: "outside of the region"}
"""What a verdict says where the region is another than that of staying."""


@dataclass(frozen=True, kw_only=True)
class Sharpening:
    """One axis whose sizes are all bracketed: is it decided, and what would decide it?"""

    search: Search
    axis: str
    sizes: Sequence[int]

    @cached_property
    def row(self) -> Array:
        """The slope as weights of the minima."""
        return self.search.row(self.axis, self.sizes)

    @cached_property
    def drift(self) -> Estimate:
        """So far."""
        return self.search.drift(self.axis, self.sizes)

    @property
    def half(self) -> float:
        return _half(self.drift)

    @cached_property
    def _now(self) -> float:
        """The half-width that the fit foretells of the runs that there are."""
        return self._foretold(())

    def _foretold(self, asks: Sequence[Ask]) -> float:
        search = self.search
        planned = search.posterior.planned(search.planned(asks))
        return _half(planned.estimate(self.row, search.level))

    def left(self, asks: Sequence[Ask]) -> float:
        """The half-width that is expected after some runs."""
        return self.half * min(self._foretold(asks) / self._now, 1.0)

    @cached_property
    def _at_last(self) -> float:
        """The half-width at the last look's confidence, which is less."""
        return _half(self.search.posterior.estimate(self.row, self.search.confidence))

    def left_at_last(self, asks: Sequence[Ask]) -> float:
        """The half-width that is expected after some runs, at the last look's confidence."""
        return self._at_last * self.left(asks) / self.half

    def next_step(self) -> Round:
        """The runs that narrow its interval most for their cost, or why none are needed."""
        search, drift, half = self.search, self.drift, self.half
        level = "" if search.level == CONFIDENCE else f" at {100 * search.level:.3g}%"
        shown = f"{change(drift.value)} ({change_span(drift.low, drift.high)}{level})"
        if search.precision is not None:
            need = search.precision
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
            low, high = search.edges
            need = min(abs(drift.value - low), abs(drift.value - high))
            part = len(self.sizes) < len(search.arm(self.axis))
            if part and low <= drift.value <= high:
                return Round(why=f"at {shown} where it trains")
        to_a_verdict = search.precision is None and not search.persistent
        # Runs to come may still move the drift, by a standard error or so.
        most = need + self._at_last / 2
        if to_a_verdict and self.left_at_last(self._everything()) > most:
            more = "; a third size may" if len(self.sizes) == 2 else ""
            return Round(
                why=f"undecided at {shown}, and neither {counted(search.looks[-1], 'seed')} "
                f"nor finer steps would change that{more}"
            )
        return self._best_step(need)[0]

    def decisive(self, most: float) -> Round | None:
        """Runs that are expected to decide "drifts" at the sizes measured, if there are any."""
        search, drift = self.search, self.drift
        low, high = search.edges
        need = max(drift.value - high, low - drift.value)
        if need <= 0:
            return None
        step, left = self._best_step(need)
        if not step.asks or left > need:
            return None
        return step if self._cost(step.asks) < most else None

    def _cost(self, asks: Sequence[Ask]) -> float:
        return math.fsum(self.search.costs[ask.size] for ask in asks)

    def _halvings(self, i: int) -> int:
        """How many times the steps of a size's bracket may still be halved."""
        bracket = self.search.brackets[i]
        finest = FINEST_WALLED if bracket.walled else FINEST
        return max(0, round(math.log2(bracket.spacing / finest)))

    def _of_size(self, i: int) -> Iterator[tuple[Ask, ...]]:
        """Steps at one size: a rate farther out, the bracket filled, the bracket halved."""
        for side in (-1, 1):
            yield self.search.farther(i, side)
        for halvings in range(min(self._halvings(i), 1) + 1):
            yield self.search.half_steps(i, halvings)

    def _everything(self) -> tuple[Ask, ...]:
        """All that could still be asked for at these sizes."""
        search = self.search
        asks = [ask for i in self.sizes for step in self._of_size(i) for ask in step]
        rates = {(ask.size, ask.log2_lr) for ask in asks}
        rates |= {(i, float(k)) for i in self.sizes for k in search.brackets[i].window}
        return tuple(
            ask for i, k in sorted(rates) for ask in search.missing(i, [k], search.looks[-1])
        )

    def _best_step(self, need: float) -> tuple[Round, float]:
        """The steps that narrow the interval most for their cost, until they would decide.

        With the half-width that is expected after them.
        """
        search, half = self.search, self.half
        left_after = cache(self.left)  # what is weighed first is asked for afterwards

        def worth(asks: tuple[Ask, ...]) -> float:
            return (half**2 - left_after(asks) ** 2) / self._cost(asks)

        at_sizes: list[tuple[float, tuple[Ask, ...]]] = []
        for i in self.sizes:
            steps = [asks for asks in self._of_size(i) if asks]
            if steps:
                at_sizes.append(max(((worth(asks), asks) for asks in steps), key=lambda s: s[0]))
        at_sizes.sort(key=lambda step: -step[0])
        if any(look > search.look for look in search.looks):
            more = search.more_seeds(self.sizes)
            if not at_sizes or (more.asks and worth(more.asks) > at_sizes[0][0]):
                return more, left_after(more.asks)
        asks: tuple[Ask, ...] = ()
        left = half
        for value, step in at_sizes:
            if asks and (search.precision or value <= 0 or left <= need):
                break
            asks += step
            left = left_after(asks)
        if not asks:
            spread = change_span(-half, half)
            why = f"undecided: all seeds and the finest steps leave an uncertainty of {spread}"
            return Round(why=why), half
        named = dict.fromkeys(search.named(ask.size) for ask in asks)
        return Round(asks=asks, why=f"finer and further rates at {'; '.join(named)}"), left


def _half(interval: Estimate) -> float:
    return (interval.high - interval.low) / 2
