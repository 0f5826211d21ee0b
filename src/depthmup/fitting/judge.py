"""Published rules against what was measured: consistent, rejected or not to be told."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from depthmup.fitting.group import Group
from depthmup.fitting.measure import Slices, cost_of, fixed_of, widest
from depthmup.records import UNKNOWN, Estimate
from depthmup.records.fit import Answer, Exponent, Judgement, RuleAtTarget
from depthmup.rules import RUN_RULES, RunRule, Scheme, canonical, rules_of

_OF_RUNS = ("parameters", "compute", "tokens", "steps")
"""Axes along which a rule must say what the batch did."""

_SCALED_BY_SCHEMES = ("width", "depth")


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What one rule says of the table's own values along an axis, beyond the scheme's scaling."""

    rule: str
    exponent: Fraction
    setting: str
    reach: str
    source: str
    standing: str


def claims(axis: str, fixed: str, scheme: Scheme | None) -> Iterator[Claim]:
    """The published rules that speak of an axis, as exponents of the table's own values.

    Under a scheme the values are those at its base: what it scales by width and depth should stay,
    and rules of other parametrizations say nothing of them. What it scales by batch and duration is
    taken from the exponents of other rules.

    Args:
        axis: by any of its names.
        fixed: "tokens" or "steps", which stay as the batch grows; empty where that is not known.
        scheme: by which the table's values were scaled already, if any.
    """
    named = canonical(axis)
    if scheme is not None and named in _SCALED_BY_SCHEMES:
        yield Claim(
            rule=scheme.title,
            exponent=Fraction(0),
            setting="the table's values are its base's: they should stay",
            reach="any size, as the limit is approached",
            source=scheme.source,
            standing="this package's catalogue",
        )
        return
    # What the scheme has scaled already is gone from the table's values, so from the claim too.
    own = scaled_by(scheme, named, fixed)
    for rule in rules_of(axis):
        exponent = rule.along(named, fixed=fixed)
        if exponent is not None:
            yield Claim(
                rule=rule.name,
                exponent=exponent - own,
                setting=rule.setting + (f"; batch {rule.batch.value}" if named in _OF_RUNS else ""),
                reach=rule.reach,
                source=rule.source,
                standing=rule.standing.value,
            )


def scaled_by(scheme: Scheme | None, axis: str, fixed: str) -> Fraction:
    """The exponent that a scheme's own law of the run has along an axis.

    Args:
        scheme: by which the table's values were scaled, if any.
        axis: by its name here.
        fixed: "tokens" or "steps", which stay as the batch grows.
    """
    if scheme is None:
        return Fraction(0)
    law = scheme.run.lr
    if axis == "batch":
        return law.batch + (law.duration if fixed == "steps" else 0)
    return law.duration if axis in ("tokens", "steps") else Fraction(0)


def judgements(
    group: Group,
    along: Slices,
    measured: Exponent,
    *,
    scheme: Scheme | None,
    tolerance: float,
) -> tuple[Judgement, ...]:
    """Every published rule that speaks of an axis, judged by what was measured along it.

    Args:
        group: the cleaned runs.
        along: the slices of the axis.
        measured: the exponent along it.
        scheme: by which the table's values were scaled already, if any.
        tolerance: octaves per doubling within which an exponent counts as a rule's.

    Returns:
        One judgement for each rule; none where nothing was measured, or axes changed together.
    """
    if not measured.exponent.known or measured.together:
        return ()
    # The cost of following a rule is told over the widest range that was measured.
    longest = widest(group, along) if along.members else np.zeros(0, int)
    number = group.axes.index(along.axis)
    ends = group.sizes[longest[[0, -1]], number] if len(longest) else np.ones(2)
    doublings = float(np.log2(ends[1] / ends[0]))
    judged = []
    for claim in claims(along.axis, fixed_of(group, along), scheme):
        exponent = float(claim.exponent)
        octaves = exponent * doublings
        judged.append(
            Judgement(
                rule=claim.rule,
                axis=along.axis,
                exponent=exponent,
                answer=answer(measured.exponent, exponent, tolerance),
                cost=cost_of(group.fitted, int(longest[0]), int(longest[-1]), octaves)
                if len(longest)
                else UNKNOWN,
                setting=claim.setting,
                reach=claim.reach,
                source=claim.source,
                standing=claim.standing,
            )
        )
    return tuple(judged)


def answer(measured: Estimate, exponent: float, tolerance: float) -> Answer:
    """Consistent if the whole interval is within the tolerance of a rule, rejected if none is.

    Args:
        measured: an exponent with its interval.
        exponent: the rule's.
        tolerance: octaves per doubling within which they count as equal.

    Example:
        >>> answer(Estimate(value=-0.4, low=-0.5, high=-0.35), -0.45, 0.15)
        <Answer.CONSISTENT: 'consistent'>
    """
    if measured.inside(exponent - tolerance, exponent + tolerance):
        return Answer.CONSISTENT
    if measured.outside(exponent - tolerance, exponent + tolerance):
        return Answer.REJECTED
    return Answer.UNDECIDED


def at_target(
    base: Mapping[str, float],
    target: Mapping[str, float],
    log2_rate: float,
    scheme: Scheme | None,
) -> tuple[RuleAtTarget, ...]:
    """What every published rule that speaks of a growing axis prescribes at the target.

    A rule leaves the value as it is along axes that it does not speak of.

    Args:
        base: the size at which the best value is known.
        target: the size asked for, in the same axes.
        log2_rate: the best value at the base.
        scheme: by which values are scaled already, if any.
    """
    doublings = {canonical(a): math.log2(target[a] / base[a]) for a in base if target[a] != base[a]}
    under = scheme is not None
    axes = {a: d for a, d in doublings.items() if not (under and a in _SCALED_BY_SCHEMES)}
    prescribed = []
    for rule in RUN_RULES:
        exponents = {a: _along(rule, a, base, scheme) for a in axes}
        spoken = {a: e for a, e in exponents.items() if e is not None}
        if spoken:
            octaves = sum(float(e) * axes[a] for a, e in spoken.items())
            prescribed.append(
                RuleAtTarget(rule=rule.name, rate=2.0 ** (log2_rate + octaves), source=rule.source)
            )
    return tuple(prescribed)


def _along(
    rule: RunRule, axis: str, base: Mapping[str, float], scheme: Scheme | None
) -> Fraction | None:
    names = {canonical(a) for a in base}
    fixed = "tokens" if "tokens" in names else "steps" if "steps" in names else ""
    exponent = rule.along(axis, fixed=fixed)
    return None if exponent is None else exponent - scaled_by(scheme, axis, fixed)
