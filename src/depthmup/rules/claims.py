"""What published rules claim of measured values: exponents along an axis, and a rate elsewhere."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from depthmup.rules.catalogue import CATALOGUE, SP
from depthmup.rules.power import ONE, Power
from depthmup.rules.run_rule import Batch, RunRule, canonical
from depthmup.rules.run_rules import RUN_RULES
from depthmup.rules.scheme import Scheme

_OF_RUNS = ("parameters", "compute", "tokens", "steps")
"""Axes along which a rule must say what the batch did."""

_LONGER = ("compute", "tokens", "steps")
"""Axes along which the best batch grows."""

SCALED_BY_SCHEMES = ("width", "depth")


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisClaim:
    """What one rule says of measured values along an axis, beyond the scheme's scaling.

    ``elsewhere``: it speaks of other runs than these, so they can neither confirm nor reject it.
    """

    rule: str
    exponent: Fraction
    setting: str
    reach: str
    source: str
    standing: str
    elsewhere: bool = False


def claims(
    axis: str, fixed: str, scheme: Scheme | None, *, batch_held: bool = False, quantity: str = "lr"
) -> Iterator[AxisClaim]:
    """The published rules that speak of a quantity along an axis, as exponents of its best values.

    Under a scheme the values are those at its base: what it scales by width and depth should stay,
    and rules of other parametrizations say nothing of them. What it scales by batch and duration is
    taken from the exponents of other rules. ``fixed`` is what stays as the batch grows, "tokens" or
    "steps"; empty where that is not known. Where the batch is held, rules for the best batch,
    which grows with the run, are for other runs. Of a ``quantity`` that is empty nobody speaks.
    """
    axis_name = canonical(axis)
    if not quantity or (scheme is not None and scheme.left_out):
        return  # nobody published it
    # Under SP nothing is scaled by size: the values are what rules speak of.
    scaled = scheme is not None and scheme.name != SP.name and axis_name in SCALED_BY_SCHEMES
    if scheme is not None and scaled and quantity != "batch":
        yield AxisClaim(
            rule=scheme.title,
            exponent=Fraction(0),
            setting="the values are its base's: they should stay",
            reach="any size, as the limit is approached",
            source=scheme.source,
            standing="this package's catalogue",
        )
        return
    if quantity == "branch" and axis_name == "depth":
        yield from _of_branches()
    # What the scheme has scaled already is gone from the values, so from the claim too.
    own = scaled_by(scheme, axis_name, fixed, quantity)
    for rule in RUN_RULES:
        exponent = rule.along(axis_name, fixed=fixed, quantity=quantity)
        if exponent is not None:
            batch = f"; batch {rule.batch.value}" if axis_name in _OF_RUNS else ""
            best = rule.batch is Batch.BEST and quantity != "batch"
            yield AxisClaim(
                rule=rule.name,
                exponent=exponent - own,
                setting=rule.setting + (batch if quantity != "batch" else ""),
                reach=rule.reach,
                source=rule.source,
                standing=rule.standing.value,
                elsewhere=batch_held and axis_name in _LONGER and best,
            )


def _of_branches() -> Iterator[AxisClaim]:
    """What schemes say of a branch's multiplier where none is applied, once for each exponent."""
    said: set[Fraction] = set()
    for scheme in CATALOGUE:
        exponent = scheme.branch.depth
        if scheme.follows_depth and exponent not in said:
            said.add(exponent)
            yield AxisClaim(
                rule=scheme.title,
                exponent=exponent,
                setting="the multiplier of every residual branch",
                reach="any depth, as the limit is approached",
                source=scheme.source,
                standing="this package's catalogue",
            )


def scaled_by(scheme: Scheme | None, axis: str, fixed: str, quantity: str = "lr") -> Fraction:
    """The exponent that a scheme's own law of the run has along an axis."""
    law: Power = ONE if scheme is None else getattr(scheme.run, quantity, ONE)
    if axis == "batch":
        return law.batch + (law.duration if fixed == "steps" else 0)
    return law.duration if axis in ("tokens", "steps") else Fraction(0)


def prescribed(
    base: Mapping[str, float], target: Mapping[str, float], log2_rate: float, scheme: Scheme | None
) -> Iterator[tuple[RunRule, float]]:
    """What every rule that speaks of a growing axis makes of the base's best rate at the target.

    A rule leaves the value as it is along axes that it does not speak of.
    """
    doublings = {canonical(a): math.log2(target[a] / base[a]) for a in base if target[a] != base[a]}
    under = scheme is not None
    axes = {a: d for a, d in doublings.items() if not (under and a in SCALED_BY_SCHEMES)}
    names = {canonical(a) for a in base}
    fixed = "tokens" if "tokens" in names else "steps" if "steps" in names else ""
    for rule in RUN_RULES:
        along = {a: rule.along(a, fixed=fixed) for a in axes}
        octaves = [
            float(exponent - scaled_by(scheme, a, fixed)) * axes[a]
            for a, exponent in along.items()
            if exponent is not None
        ]
        if octaves:
            yield rule, 2.0 ** (log2_rate + sum(octaves))
