"""Conclusions from records: estimates with intervals, and verdicts."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A number with a confidence interval; NaN where it could not be measured.

    Attributes:
        value: the estimate.
        low, high: of its confidence interval.
        unit: in words; empty for plain numbers.
    """

    value: float
    low: float
    high: float
    unit: str = ""

    @property
    def known(self) -> bool:
        # Of the value alone: an interval may be unbounded where the value is known.
        return math.isfinite(self.value)

    def inside(self, low: float, high: float) -> bool:
        """Whether the whole interval lies in [low, high]."""
        # Comparisons with NaN are false, so that an unknown estimate is neither inside nor outside.
        return low <= self.low and self.high <= high

    def outside(self, low: float, high: float) -> bool:
        """Whether the whole interval lies outside [low, high]."""
        return self.high < low or self.low > high

    def within(self, low: float, high: float) -> bool | None:
        """Whether it lies in [low, high]: None where the interval is neither inside nor outside."""
        if self.inside(low, high):
            return True
        return False if self.outside(low, high) else None

    def exp2(self, unit: float = 1.0) -> "Estimate":
        """``unit * 2**x`` of an estimate x in octaves, with the ends of its interval."""
        low, value, high = (unit * exp2(x) for x in (self.low, self.value, self.high))
        return Estimate(value=value, low=low, high=high)

    def exp(self, unit: str = "") -> "Estimate":
        """``e**x`` of an estimate x in nats, such as a log loss, with the ends of its interval."""
        low, value, high = (_exp(x) for x in (self.low, self.value, self.high))
        return Estimate(value=value, low=low, high=high, unit=unit)


def _exp(nats: float) -> float:
    """``e**x``, infinite where that overflows."""
    return math.inf if nats >= 709.7 else math.exp(nats)


def exp2(octaves: float) -> float:
    """``2**octaves``, infinite where that overflows."""
    return math.inf if octaves >= 1024 else 2.0**octaves


UNKNOWN = Estimate(value=math.nan, low=math.nan, high=math.nan)


MOST_OCTAVES = math.log2(1001)
"""Beyond it a change has no digits: no hyperparameter moves so far, and nothing bounds the fit."""


def change(octaves: float) -> str:
    """A shift in octaves as a change in percent."""
    if math.isnan(octaves):
        return "unknown"
    if octaves == math.inf:
        return "+∞%"
    if octaves > MOST_OCTAVES:
        return "> +100000%"
    text = f"{100 * (2.0**octaves - 1):+.0f}".replace("-", "−")
    return "0%" if text[1:] == "0" else f"{text}%"


def change_span(low: float, high: float) -> str:
    """An interval of shifts in octaves, in percent."""
    return f"{change(low)} to {change(high)}"


def in_percent(octaves: Estimate) -> str:
    """An estimate in octaves as a change in percent, with its interval."""
    return f"{change(octaves.value)} ({change_span(octaves.low, octaves.high)})"


class Place(StrEnum):
    """Where on the grid the best learning rate of one size lies."""

    INTERIOR = "interior"
    LOW_EDGE = "low edge"  # of the grid: extend it downwards
    HIGH_EDGE = "high edge"
    FAILED = "failed"  # no learning rate trains

    @property
    def at_edge(self) -> bool:
        return self in (Place.LOW_EDGE, Place.HIGH_EDGE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimum:
    """The best log2 learning rate of one size, and the loss there.

    A size has a value for every axis. Where something else is tuned, it is the best log2 value of
    that.

    Attributes:
        size: by axis.
        log2_lr: the best log2 value at the base, with its interval.
        loss: at the best value.
        place: inside the grid, on an edge of it, or failed.
        curvature: c in log loss = min + c u^2, with u in octaves from the best value.
    """

    size: Mapping[str, float]
    log2_lr: Estimate
    loss: Estimate
    place: Place
    curvature: Estimate = UNKNOWN

    @property
    def depth(self) -> float:
        return self.size["depth"]

    @property
    def width(self) -> float:
        return self.size["width"]


class Verdict(StrEnum):
    """Whether the optimum stays where it is as the network grows."""

    TRANSFERS = "transfers"
    DRIFTS = "drifts"
    UNDECIDED = "undecided"


COUNTED = 1e6
"""Values from 100 up to it are written out: steps, batches, counts."""


def rate(value: float) -> str:
    """A learning rate, or a value of what is tuned instead, with two digits; counts as such.

    Example:
        >>> rate(0.00201), rate(0.13), rate(192), rate(math.inf), rate(math.nan)
        ('2.0e-3', '0.13', '190', '∞', '–')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == 0 or 0.01 <= abs(value) < 100:
        return f"{value:.2g}"
    if 100 <= abs(value) < COUNTED:
        return f"{float(f'{value:.2g}'):.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def amount(value: float, *, whole: bool) -> str:
    """A value of what is tuned; of examples or steps there is a whole number, at least one.

    Example:
        >>> amount(4.6, whole=True), amount(0.3, whole=True), amount(0.0046, whole=False)
        ('5', '1', '4.6e-3')
    """
    return rate(max(1.0, round(value)) if whole and math.isfinite(value) else value)


def ranged(estimate: Estimate, say: Callable[[float], str] = rate) -> str:
    """A value with the ends of its interval: ``2e-3 (1e-3 to 4e-3)``."""
    return f"{say(estimate.value)} ({say(estimate.low)} to {say(estimate.high)})"


def percent(value: float) -> str:
    """A fraction of the loss as a percentage of two digits."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "no bound"
    if value < 1e-4:
        return "below 0.01%" if value > 0 else "0%"
    if value > 10:
        return "above 1000%"
    return f"{100 * value:.0f}%" if value >= 0.0995 else f"{100 * value:.2g}%"


def verdict_of(drift: Estimate, low: float, high: float) -> Verdict:
    """What a drift shows: that of staying is the region from low to high."""
    stays = drift.within(low, high)
    return {True: Verdict.TRANSFERS, False: Verdict.DRIFTS, None: Verdict.UNDECIDED}[stays]


def verdict_of_all(verdicts: Iterable[Verdict]) -> Verdict:
    """One drift is enough to show that a value does not transfer."""
    found = set(verdicts)
    return next((v for v in (Verdict.DRIFTS, Verdict.UNDECIDED) if v in found), Verdict.TRANSFERS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """How the optimum of one scheme moves with size along the study's axis.

    ``drift`` is in octaves of what is tuned per doubling of the size; ``regret`` is the excess
    loss: the loss at the largest size with the base's best value, minus the best loss there.
    ``interactions`` say by how much the drift changes per doubling of another axis, where sizes
    that grow along both were measured. ``bend`` is the drift's own change per doubling of the size.

    Attributes:
        scheme, title: by its name and in words.
        alpha, gamma: its exponents, exact, as text; empty where no scheme is known.
        optima: one for each size, slice by slice, the smallest first.
        verdict: transfers, drifts or undecided.
        why: the reason in a sentence.
        question: that the drift answers, in words.
        slices: indices of the optima of each slice, in which the axis alone changes.
        together: axes that always change with this one.
    """

    scheme: str
    title: str
    alpha: str
    gamma: str
    optima: tuple[Optimum, ...]
    drift: Estimate
    regret: Estimate
    verdict: Verdict
    why: str
    interactions: Mapping[str, Estimate] = field(default_factory=dict)
    bend: Estimate = UNKNOWN
    question: str = ""
    slices: tuple[tuple[int, ...], ...] = ()
    together: tuple[str, ...] = ()
