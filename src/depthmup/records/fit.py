"""What a fit of a person's own table leaves: what was excluded, what was measured, what is said."""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from depthmup.records.certificate import Certificate, SizeOptimum, Slope
from depthmup.records.codec import decode, encode, parse
from depthmup.records.finding import Estimate, Verdict

SCHEMA = 1
"""Version of the file's layout."""


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


class Answer(StrEnum):
    """Whether measurements agree with a published rule."""

    CONSISTENT = "consistent"
    REJECTED = "rejected"
    UNDECIDED = "cannot tell"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One defect of one group: how many rows or sizes, and in a sentence what was done with them.

    ``rows`` are numbers of the table's rows, from 1, the first ones of many.

    Attributes:
        defect: its kind, from a fixed list.
        count: of rows or sizes.
        sentence: what was done with them.
    """

    defect: Defect
    count: int
    sentence: str
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """The seed-averaged loss of one size at one rate; infinite where a run diverged.

    Attributes:
        size: the index of the size in the group's ``optima``.
        log2_rate: log2 of what is tuned, as the table has it.
        loss: the mean over seeds.
        runs: how many were averaged.
    """

    size: int
    log2_rate: float
    loss: float
    runs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Exponent:
    """How the best value moves along an axis: ``best ~ size**exponent``, all else equal.

    ``question`` says what the number answers. ``slices`` lists the sizes (by index) of each slice
    in which the axis alone changes. ``bend`` is the change of the exponent per doubling.
    ``kept_cost`` is what the smallest size's best value costs at the largest, in nats.

    Attributes:
        axis: which varies.
        exponent: with its 95% interval.
        verdict: transfers if it is near 0 for sure, drifts if it is not.
        why: the reason in a sentence.
        together: axes that vary with this one in every slice.
    """

    axis: str
    question: str
    slices: tuple[tuple[int, ...], ...]
    exponent: Estimate
    bend: Estimate
    kept_cost: Estimate
    verdict: Verdict
    why: str
    together: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What the measurements say of one published rule along one axis.

    Attributes:
        rule: its name in ``depthmup.rules``.
        axis: along which the rule speaks.
        exponent: that it states.
        answer: consistent, rejected, or undecided.
        cost: of following it to the largest size, in nats of loss.
        setting: optimizer, parametrization, and whatever else the rule presupposes.
        reach: the range in which its source measured or derived it.
        source: paper, and table or equation.
        standing: how well the rule's statement is known here.
    """

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

    ``interactions`` are products of two axes, with the axes joined by " x "; ``residuals`` are the
    optima less the law, of each size that was used. A ``pooled`` law rests on all runs at once
    (``statistics.pooled``), as sizes have too few rates for optima of their own; it has none.

    Attributes:
        base: the size that the law is written around.
        constant: log2 of the best value there.
        exponents: one for each axis.
        used: indices of the sizes that it is fitted to.
        fit_error: root mean square of the residuals, over the degrees of freedom, in octaves.
    """

    base: Mapping[str, float]
    constant: Estimate
    exponents: tuple[Slope, ...]
    interactions: tuple[Slope, ...]
    residuals: tuple[float, ...]
    used: tuple[int, ...]
    fit_error: float
    pooled: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleAtTarget:
    """The rate that a published rule prescribes at the target, from the best one at the base.

    Attributes:
        rule: its name.
        rate: that it prescribes.
        source: of the rule.
    """

    rule: str
    rate: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupFit:
    """One group of a table, a variant of its own: its curves, optima, exponents and verdicts.

    Attributes:
        name: such as "optimizer adamw"; empty if the table is one group.
        runs, seeds: rows that were used, and repetitions.
        findings: what was wrong with rows, and what was done.
        optima: the best value of every size.
        points: the curves that they come from.
        exponents: how the optimum moves along each axis.
        joint: the law over all sizes at once, if they suffice.
        judgements: of published rules.
        confounded: axes that always change together, and what else limits the fit, in words.
        prediction: at the target, or its refusal.
        at_target: what published rules prescribe there.
        octave_costs: of each size: what a value off by a factor of two costs, in nats.
        problem: why the group could not be fitted; empty if it was.
    """

    name: str
    runs: int
    seeds: int
    findings: tuple[Finding, ...]
    optima: tuple[SizeOptimum, ...]
    points: tuple[CurvePoint, ...]
    exponents: tuple[Exponent, ...]
    joint: JointLaw | None
    judgements: tuple[Judgement, ...]
    confounded: tuple[str, ...]
    prediction: Certificate | None = None
    at_target: tuple[RuleAtTarget, ...] = ()
    octave_costs: tuple[Estimate, ...] = ()
    problem: str = ""

    @property
    def verdict(self) -> Verdict:
        """Drifts if it does along any axis; transfers if along all."""
        # A rule transfers along all axes or not at all, and one axis is enough to show that it does
        # not.
        verdicts = {exponent.verdict for exponent in self.exponents}
        if Verdict.DRIFTS in verdicts:
            return Verdict.DRIFTS
        return Verdict.TRANSFERS if verdicts == {Verdict.TRANSFERS} else Verdict.UNDECIDED


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """A table of results that existed, and what it says.

    ``columns`` says which column stands for what; ``tuned`` is the hyperparameter in words.

    Attributes:
        title: of the page.
        rows: of the table.
        groups: variants that were fitted apart.
        excluded: how many rows were left out.
        tolerance: octaves per doubling within which an optimum counts as staying.
        scheme: the runs were trained under, if that was said.
        target: the size that was predicted for, if any.
        notes: what a reader should know beyond the numbers.
        code: versions of the package and of its fit.
        schema: version of this file's layout.
    """

    title: str
    tuned: str
    columns: Mapping[str, Any]
    rows: int
    groups: tuple[GroupFit, ...]
    excluded: int
    tolerance: float
    scheme: str = ""
    target: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    code: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def to_json(self) -> str:
        """Strict JSON; NaN is null, infinities are text. ``from_json`` reads it back."""
        return json.dumps(encode(self), indent=2, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> "Fit":
        """The fit that ``to_json`` wrote.

        Raises:
            ValueError: it is of another schema version, or no fit; where it does not fit.
        """
        raw = parse(text, "a fit")
        if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
            version = raw.get("schema") if isinstance(raw, dict) else type(raw).__name__
            raise ValueError(
                f"Expected a fit of schema version {SCHEMA}; got {reprlib.repr(version)}. Read it "
                "with the depthmup version that wrote it, or fit the table again."
            )
        if lacking := {f.name for f in fields(Fit)} - raw.keys():
            raise ValueError(f"Expected a fit; it lacks {', '.join(sorted(lacking))}.")
        return decode(Fit, {f.name: raw[f.name] for f in fields(Fit)}, "the fit")
