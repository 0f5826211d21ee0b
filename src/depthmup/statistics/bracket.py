"""The bracket of a curve's optimum: learning rates a factor of two apart, one on either side of it.

The search for it walks down the curve, as one does by hand. A rate at which a run diverged is a
wall: it bounds the optimum from above, and says nothing else. No posterior tells where to try the
first rates of a size, nor bounds an optimum on one side: once the bracket is closed, what comes
next is what narrows the posterior most (``statistics.sharpening``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from depthmup.posterior.curve import average
from depthmup.posterior.intervals import Array

STEP = 1.0
"""Octaves between the rates of a bracket. On 152 public curves factors of two found the optimum in
3.5 to 3.9 runs, with the excess loss of a grid; factors of four doubled that loss."""

SCAN = tuple(float(k) for k in range(-4, 5))
"""Octaves from the start at which the first size is scanned, to see whether it has one valley. The
cheapest size costs a few percent of all, and an optimum far from the start is seen at once."""

WIDEST, WIDEST_FIRST = 6.0, 40.0
"""Octaves that are searched downwards for a rate that trains, where smaller sizes predict one, and
at the first size, whose start may be a guess in a strange unit; then one rate is tried above."""

GUESSING = 10.0
"""The same at the first size where the lowest rate ends, no better than guessing, or where a seed
diverges at rates at which another trains."""

MOST = 24
"""Rates at one size, after which the search gives up."""

GRAIN = 1 / 8
"""Octaves to which rates are rounded: far within what a bracket needs."""

CLOSE = 2e-3
"""Rates nearer than this, in octaves, are one: tables print them with few digits."""

REACH = STEP + GRAIN / 2 + CLOSE
"""Octaves within which a rate counts as a step away: one between two of a table's own rates is
rounded to the grain, and must count once it was made."""

Losses: TypeAlias = Mapping[float, Sequence[float]]
"""One size's losses by log2 learning rate, each by seed: infinite where a run diverged, NaN where
it was not made."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bracket:
    """What the losses of one size say of where its optimum lies.

    Attributes:
        losses: so far.
        chance: the loss of guessing, which a rate that trains stays below.
    """

    losses: Losses
    chance: float = math.inf

    @cached_property
    def rates(self) -> Array:
        """log2 learning rates that were tried, increasing."""
        return np.array(sorted(k for k, row in self.losses.items() if _tried(row)))

    @cached_property
    def values(self) -> Array:
        """Losses (rates, seeds), NaN where a run was not made."""
        rows = [np.asarray(self.losses[float(k)], float) for k in self.rates]
        values = np.full((len(rows), max(map(len, rows), default=0)), math.nan)
        for i, row in enumerate(rows):
            values[i, : len(row)] = row
        return values

    @cached_property
    def averages(self) -> Array:
        """Seed-averaged log losses, infinite where a run diverged, (rates,)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return average(np.log(self.values))

    @cached_property
    def lowest(self) -> int | None:
        """Index of the lowest rate that trains."""
        trained = np.where(self.averages < math.log(self.chance), self.averages, math.inf)
        if not len(trained) or not np.isfinite(trained).any():
            return None
        return int(trained.argmin())

    @property
    def at(self) -> float:
        """The lowest rate; NaN where none trains."""
        return math.nan if self.lowest is None else float(self.rates[self.lowest])

    @cached_property
    def window(self) -> Array:
        """The rates within a step of the lowest one: all of them get seeds."""
        return np.array([k for k in self.rates if abs(k - self.at) <= REACH])

    def beyond(self, side: int) -> float:
        """The rate two steps from the lowest on a side, -1 or 1, or one that was tried near it."""
        away = side * (self.rates - self.at)
        tried = self.rates[(away > 1.5 * STEP) & (away <= STEP + REACH)]
        target = self.at + 2 * side * STEP
        return float(tried[np.abs(tried - target).argmin()]) if len(tried) else target

    def seeds_at(self, rate: float) -> int:
        """The number of first seeds that have run at a rate."""
        row = np.isnan(np.asarray(self.losses.get(rate, ()), float))
        return int(row.argmax()) if row.any() else len(row)

    @property
    def seeds(self) -> int:
        """The number of first seeds that every rate of the window has."""
        return min((self.seeds_at(float(k)) for k in self.window), default=0)

    @property
    def closed(self) -> bool:
        """Whether the optimum has a rate within a step on both sides."""
        return bool((self.window < self.at).any() and (self.window > self.at).any())

    @property
    def spacing(self) -> float:
        """Octaves between the lowest rate and its farther neighbour."""
        below, above = self.window[self.window < self.at], self.window[self.window > self.at]
        return float(max(self.at - below.max(), above.min() - self.at))

    @property
    def walled(self) -> bool:
        """Whether a neighbour of the lowest rate diverged."""
        near = np.abs(self.rates - self.at) <= self.spacing + CLOSE
        return bool(np.isinf(self.averages[near]).any())

    def next_rates(self, centre: float, *, first: bool = False) -> tuple[float, ...]:
        """The rates to try next to close the bracket; none where it is closed, or given up.

        Example:
            >>> walk = Bracket(losses={-1.0: [1.0], 0.0: [0.9], 1.0: [0.8]})
            >>> walk.next_rates(0.0), Bracket(losses={}).next_rates(-3.0)
            ((2.0,), (-4.0, -3.0, -2.0))
            >>> Bracket(losses={-1.0: [1.0], 0.0: [0.9], 1.0: [math.inf]}).next_rates(0.0)
            ()
        """
        if not len(self.rates):
            return tuple(centre + k for k in (SCAN if first else (-STEP, 0.0, STEP)))
        if self.lowest is None:
            return self._toward_training(WIDEST_FIRST if first else WIDEST)
        if self.closed or len(self.rates) >= MOST:
            return ()
        if leapt := self._leapt(self.at):
            return leapt
        low, high = float(self.rates[0]), float(self.rates[-1])
        if (stride := _stride(high - low)) > STEP and self.at in (low, high):
            beyond = self.at - stride if self.at == low else self.at + stride
            return (beyond,) if high - low < WIDEST_FIRST else ()
        sides = (self.at - STEP, self.at + STEP)
        return tuple(k for k in sides if not (np.abs(self.rates - k) <= REACH - STEP).any())

    def _toward_training(self, widest: float) -> tuple[float, ...]:
        """Where nothing trains, far lower rates; then one far higher, unless a run diverged."""
        low, high = float(self.rates[0]), float(self.rates[-1])
        finite = np.isfinite(self.averages)
        if finite.any() and (leapt := self._leapt(float(self.rates[finite].max()))):
            return leapt
        if finite[0] or self.values.shape[1] > 1:
            # The lowest may be too low as well, and a seed that always diverges is no wall.
            widest = min(widest, GUESSING)
        if high - low < widest - CLOSE:
            return (low - max(_stride(high - low), 2 * STEP),)
        if high - low < widest + 2 * STEP - CLOSE and finite[-1]:
            return (high + 2 * STEP,)
        return ()

    def _leapt(self, below: float) -> tuple[float, ...]:
        """The middle of a stride from a rate to a divergence: it may have gone over what trains."""
        above = self.rates > below
        if not above.any() or np.isfinite(self.averages[above][0]):
            return ()
        wall = float(self.rates[above][0])
        return ((below + wall) / 2,) if wall - below > 2 * STEP else ()


def _stride(width: float) -> float:
    """Octaves to the next rate beyond all that were tried: they double with the way gone."""
    return STEP * 2.0 ** (math.floor(math.log2(max(width - 6, 2))) - 1)


def _tried(row: Sequence[float]) -> bool:
    return not bool(np.isnan(np.asarray(row, float)).all())


def second_valley(rates: Array, log_losses: Array) -> tuple[float, float] | None:
    """The lowest rates of two valleys of one curve, if one does not clearly lie below the other.

    A second valley counts if it is at least half as deep, from the barrier between them, as the
    first, and deeper than noise.

    Example:
        >>> second_valley(np.arange(5.0), np.array([0.5, 0.1, 0.4, 0.0, 0.6]))
        (3.0, 1.0)
        >>> second_valley(np.arange(5.0), np.array([0.5, 0.0, 0.4, 0.35, 0.6]))
    """
    finite = np.isfinite(log_losses)
    x, y = rates[finite], log_losses[finite]
    if len(y) < 3:
        return None
    best = int(y.argmin())
    for i in range(len(y)):
        between = y[min(i, best) + 1 : max(i, best)]
        if i == best or not len(between):
            continue
        barrier = float(between.max())
        depth = barrier - float(y[i])
        if depth > NOISE and depth >= (barrier - float(y[best])) / 2:
            return float(x[best]), float(x[i])
    return None


NOISE = 0.05
"""Log loss by which a second valley must rise to be one: five times the scatter of a run."""
