"""Evidence: what a paper says, what was measured, and whether the two agree."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from depthmup.records import Estimate


class Reproduction(StrEnum):
    """Whether a statement was reproduced."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    UNDECIDABLE = "not decidable at this scale"


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """The values that agree with a statement, fixed beforehand: a region [low, high].

    With ``contains``, an interval agrees if it holds this value and lies in the region, which then
    says how sharp the interval must be. Where a region was revised after a first result, the
    finding says so.

    Attributes:
        low, high: of the region.

    Example:
        >>> str(Accepted(low=-0.15, high=0.15)), str(Accepted(low=0.0))
        ('within −0.15 to 0.15', 'above 0')
        >>> str(Accepted(low=-2.5, high=-1.5, contains=-2.0))
        'an interval that holds −2, within −2.5 to −1.5'
    """

    low: float = float("-inf")
    high: float = float("inf")
    contains: float | None = None

    def judge(self, measured: Estimate) -> Reproduction:
        """Reproduced if the whole interval agrees, not if none of it does, else undecidable.

        Infinity is a value, as of a distance that is unbounded; only NaN is unknown.
        """
        if any(math.isnan(value) for value in (measured.value, measured.low, measured.high)):
            return Reproduction.UNDECIDABLE
        # However wide an interval is: one that misses the value contradicts it.
        if self.contains is not None and not measured.low <= self.contains <= measured.high:
            return Reproduction.NOT_REPRODUCED
        # An interval that reaches over an end of the region is neither inside nor outside.
        return {
            True: Reproduction.REPRODUCED,
            False: Reproduction.NOT_REPRODUCED,
            None: Reproduction.UNDECIDABLE,
        }[measured.within(self.low, self.high)]

    def __str__(self) -> str:
        low, high = (f"{v:g}".replace("-", "−") for v in (self.low, self.high))
        if self.low == float("-inf"):
            region = f"below {high}"
        elif self.high == float("inf"):
            region = f"above {low}"
        else:
            region = f"within {low} to {high}"
        if self.contains is None:
            return region
        return f"an interval that holds {f'{self.contains:g}'.replace('-', '−')}, {region}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One number of a claim: what the paper says, what was measured, what would agree.

    A comparison that is not ``decisive`` is shown beside the verdict and does not affect it.

    Attributes:
        what: the number, in words.
        paper: what the paper says of it.
        ours: what was measured, with its interval.
        accepted: the values that agree, fixed beforehand.
    """

    what: str
    paper: str
    ours: Estimate
    accepted: Accepted
    decisive: bool = True

    @property
    def verdict(self) -> Reproduction:
        return self.accepted.judge(self.ours)

    @property
    def times_to_decide(self) -> float:
        """How many times the runs would leave an interval on one side of every edge: 1 if decided.

        Example:
            >>> ours = Estimate(value=0.1, low=0.0, high=0.2)
            >>> stays = Accepted(low=-0.15, high=0.15)
            >>> Comparison(what="", paper="", ours=ours, accepted=stays).times_to_decide
            4.0
        """
        if self.verdict is not Reproduction.UNDECIDABLE:
            return 1.0
        value, half = self.ours.value, (self.ours.high - self.ours.low) / 2
        if not math.isfinite(half):
            return math.inf
        away = min(abs(value - edge) for edge in (self.accepted.low, self.accepted.high))
        return round((half / away) ** 2, 9) if away else math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A chart: its caption, its Vega-Lite specification, and what its slider steps through.

    Where there are ``frames``, the specification has a parameter ``window_index`` that picks one.
    ``legend`` are labels with their colours, for charts that are too small to hold them.

    Attributes:
        name: of its file.
        caption: below it.
        spec: its Vega-Lite specification.
    """

    name: str
    caption: str
    spec: Mapping[str, Any]
    frames: tuple[str, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A claim of the paper after measurement.

    ``remedy`` says what would decide an undecided claim; ``notes`` what the reader should know
    beyond the numbers; ``revised`` what was changed after a first result, of what is measured or
    accepted, if anything was.

    Attributes:
        claim: its key, such as fig10.
        title: in words.
        shows: what is to be seen.
        source: figure, table or section of the paper.
        comparisons: the numbers that decide.
        pictures: charts of the measurement.
        group: figures, claims, beyond or errata.
        config: what was run.
        command: that measures it again.
        runs, seconds: that it took, those of runs that other claims share included.
        going_on: the runs of its next round, where it was stopped.
    """

    claim: str
    title: str
    shows: str
    source: str
    comparisons: tuple[Comparison, ...]
    pictures: tuple[Picture, ...] = ()
    remedy: str = ""
    revised: str = ""
    notes: tuple[str, ...] = ()
    group: str = "figures"
    config: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    runs: int = 0
    seconds: float = 0.0
    going_on: int = 0

    @property
    def runs_to_decide(self) -> float:
        """Runs of this kind that would decide what is open, should the estimates stay: an error
        falls as the root of their number. Infinite where one lies on the edge, NaN if none is open.
        """
        times = [c.times_to_decide for c in self.comparisons if c.decisive]
        return self.runs * max((t for t in times if t > 1), default=math.nan)

    @property
    def verdict(self) -> Reproduction:
        """That of the decisive comparisons: one that fails decides, one that cannot be decided
        leaves the claim undecided."""
        verdicts = {c.verdict for c in self.comparisons if c.decisive}
        if not verdicts:
            return Reproduction.UNDECIDABLE
        # One number against the claim outweighs any that could not be decided.
        for worst in (Reproduction.NOT_REPRODUCED, Reproduction.UNDECIDABLE):
            if worst in verdicts:
                return worst
        return Reproduction.REPRODUCED


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Findings at one scale, in the paper's order, with configuration and environment.

    Attributes:
        scale: laptop, medium or paper.
        findings: in the paper's order.
        environment: versions and hardware.
        config: what was run for all of them.
    """

    scale: str
    findings: tuple[Finding, ...]
    environment: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)
