"""What a study says beyond its drifts: rules judged, laws of several axes, all groups together."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from depthmup.records.certificate import AxisSlope
from depthmup.records.finding import UNKNOWN, Estimate, Verdict


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
        cost: of following it to the largest size, in units of the loss.
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
        sizes: those that it is fitted to.
        residuals: the optima less the law, of each of them.
        fit_error: root mean square of the residuals, over the degrees of freedom, in octaves.
        half, twice: the loss that half and twice the best value add at the largest size.
    """

    scheme: str
    base: Mapping[str, float]
    constant: Estimate
    exponents: tuple[AxisSlope, ...]
    sizes: tuple[Mapping[str, float], ...]
    residuals: tuple[float, ...]
    fit_error: float
    pooled: bool = False
    half: Estimate = UNKNOWN
    twice: Estimate = UNKNOWN
