"""What each single rule of a scheme does: a sweep without it, against the sweep with all."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from depthmup.records.finding import Estimate


class Need(StrEnum):
    """What becomes of a network whose scheme does without one rule, or has it alone."""

    NEEDED = "needed"  # without it the optimum drifts, or the loss is higher
    HARMFUL = "better without"  # without it the loss is lower
    NO_EFFECT = "without effect"  # optimum and loss stay within their margins
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True, slots=True)
class AlongAxis:
    """One rule along one axis, at the largest size.

    Attributes:
        axis: along which sizes grow.
        size: the largest that both have.
        whole: drift of what it is compared with, in octaves per doubling.
        drift: the same with the one change.
        change: of the drift.
        tuned: by how much the loss is lower, in nats of its logarithm, each at its own best value.
        as_trained: the same, each at the value that its optimum at the base hands on.
        verdict, why: along this axis.
    """

    axis: str
    size: Mapping[str, float]
    whole: Estimate
    drift: Estimate
    change: Estimate
    tuned: Estimate
    as_trained: Estimate
    verdict: Need
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ablation:
    """One rule, taken away from all of them, or added to standard practice.

    Attributes:
        rule: by its name, such as ``readout.lr``.
        of: the variant with that change.
        over: the variant that it is compared with.
        added: whether the rule was added to standard practice, not taken away.
        along: one for each axis along which the rule acts.
        verdict: of all axes.
    """

    rule: str
    of: str
    over: str
    added: bool
    along: tuple[AlongAxis, ...]
    verdict: Need

    @property
    def deciding(self) -> AlongAxis | None:
        """The axis that has the verdict, the one with the largest change of loss."""
        own = [each for each in self.along if each.verdict is self.verdict]
        return max(own, key=lambda each: abs(each.as_trained.value), default=None)
