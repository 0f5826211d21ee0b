"""What a study says beyond its drifts: rules judged, laws of several axes, notes on the runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from depthmup.records.certificate import AxisSlope
from depthmup.records.finding import UNKNOWN, Estimate, Verdict


class Defect(StrEnum):
    """What is wrong with a row, a size or a slice of a table; each is counted and listed."""

    MISSING = "a number is missing"
    NOT_POSITIVE = "a size or a rate is not positive"
    RATE = "a rate beyond any sense"
    IMPOSSIBLE = "a loss that cannot be"
    SHORT = "cut short"
    DUPLICATE = "a row stands twice"
    REPEATED = "a run stands twice with different losses"
    UNIT = "another unit than the rest"
    DIVERGED = "diverged"
    EDGE = "optimum at the edge of the grid"
    FAILED = "nothing trains"
    FEW = "fewer than three rates"
    FAR = "far from the law of the others"


EXCLUDED = frozenset(
    {
        Defect.MISSING,
        Defect.NOT_POSITIVE,
        Defect.RATE,
        Defect.IMPOSSIBLE,
        Defect.SHORT,
        Defect.DUPLICATE,
        Defect.UNIT,
    }
)
"""Defects whose rows are left out. The other ones are told, and used for what they say: a diverged
run bounds the rates that train, an optimum at an edge bounds an optimum."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What a reader must know of the runs behind a study.

    Attributes:
        text: a sentence.
        scheme: the variant that it is about; empty for all.
        defect: what is wrong, from a fixed list, if anything is.
        count: of the rows or sizes that it is about.
        rows: numbers of a table's rows, from 1, the first ones of many.
    """

    text: str
    scheme: str = ""
    defect: Defect | None = None
    count: int = 0
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AcrossGroups:
    """What the groups of a table say together.

    Attributes:
        mean: over all groups like these, with its 95% interval.
        scatter: root mean square of the standard deviation between groups, in the mean's unit.
        new_group: where one more group would lie, with its 95% interval.
        groups: how many were pooled.
        verdict: whether groups like these transfer on average.
    """

    mean: Estimate
    scatter: float
    new_group: Estimate
    groups: int
    verdict: Verdict


class Answer(StrEnum):
    """Whether measurements agree with a published rule."""

    CONSISTENT = "consistent"
    REJECTED = "rejected"
    UNDECIDED = "cannot tell"
    ELSEWHERE = "for the best batch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What the measurements say of one published rule along one axis.

    Attributes:
        scheme: the variant that was measured.
        rule: its name in ``depthmup.rules``.
        axis: along which the rule speaks.
        exponent: that it states, of the values that were measured.
        answer: consistent, rejected, undecided, or that the rule is for runs of another kind.
        cost: of following it to the largest size, in nats of loss.
        setting: optimizer, parametrization, and whatever else the rule presupposes.
        reach: the range in which its source measured or derived it.
        source: paper, and table or equation.
        standing: how well the rule's statement is known here.
    """

    scheme: str
    rule: str
    axis: str
    exponent: float
    answer: Answer
    cost: Estimate
    setting: str
    reach: str
    source: str
    standing: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JointLaw:
    """``log2 best = constant + sum_a exponent_a log2(size_a / base_a)`` over all sizes at once.

    A ``pooled`` law rests on all runs at once (``statistics.pooled``), as sizes have too few rates
    for optima of their own; it has no residuals.

    Attributes:
        scheme: the variant.
        base: the size that the law is written around.
        constant: log2 of the best value there.
        exponents: one for each axis.
        interactions: of products of two axes.
        sizes: those that it is fitted to.
        residuals: the optima less the law, of each of them.
        fit_error: root mean square of the residuals, over the degrees of freedom, in octaves.
        half, twice: what half and twice the best value cost at the largest size, in nats.
    """

    scheme: str
    base: Mapping[str, float]
    constant: Estimate
    exponents: tuple[AxisSlope, ...]
    interactions: tuple[AxisSlope, ...]
    sizes: tuple[Mapping[str, float], ...]
    residuals: tuple[float, ...]
    fit_error: float
    pooled: bool = False
    half: Estimate = UNKNOWN
    twice: Estimate = UNKNOWN
