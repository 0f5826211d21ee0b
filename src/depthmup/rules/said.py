"""What every published rule of the run says for one base and one target, side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from depthmup.rules.claims import SCALED_BY_SCHEMES
from depthmup.rules.power import Ratios
from depthmup.rules.run_rule import RunRule, canonical
from depthmup.rules.run_rules import RUN_RULES
from depthmup.rules.scheme import Scheme

_ROLES = {"width": "fan_in", "depth": "depth", "batch": "batch", "tokens": "duration"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What one rule says, as factors on the values of the base.

    ``silent`` are the axes that grow and of which the rule does not speak: there it is taken to
    leave the learning rate as it is.

    Attributes:
        rule: that says it.
        lr, decay, epsilon: factors on these.
        one_minus_beta: the factor of 1 - beta.
        beta2_power: the power to which beta2 is taken.
    """

    rule: RunRule
    lr: float
    decay: float
    epsilon: float
    one_minus_beta: float
    beta2_power: float
    silent: tuple[str, ...]


def growth(base: Mapping[str, float], target: Mapping[str, float]) -> dict[str, float]:
    """How many times as large the target is along every axis, those that follow included.

    Two of batch, steps and tokens give the third; width and depth give the parameters of hidden
    matrices, unless they are named; parameters and tokens the compute.

    Args:
        base: a value for every axis.
        target: values of some of them; the others are the base's.

    Returns:
        The multiples, by axis.

    Raises:
        ValueError: the target names an axis that the base does not, an axis has two names, or a
            size is not positive.

    Example:
        >>> growth({"width": 64, "batch": 32, "steps": 100}, {"width": 128, "batch": 64})
        {'width': 2.0, 'batch': 2.0, 'steps': 1.0, 'tokens': 2.0, 'parameters': 4.0, 'compute': 8.0}

    *Source:* compute is proportional to parameters times tokens, embeddings left out: Kaplan et
    al. 2020 (arXiv 2001.08361) Section 2.1.
    """
    for sizes in (base, target):
        names: dict[str, list[str]] = {}
        for name in sizes:
            names.setdefault(canonical(name), []).append(name)
        if twice := next((of for of in names.values() if len(of) > 1), None):
            raise ValueError(
                f"Expected one value for each axis; got {' and '.join(twice)}, which are one."
            )
    at_base = {canonical(axis): float(value) for axis, value in base.items()}
    at_target = {canonical(axis): float(value) for axis, value in target.items()}
    if extra := sorted(set(at_target) - set(at_base)):
        raise ValueError(
            f"Expected the base to say where {', '.join(extra)} starts; it has "
            f"{', '.join(at_base)}. Give the base a value for every axis of the target."
        )
    for axis, value in (*at_base.items(), *at_target.items()):
        if not 0 < value < math.inf:
            raise ValueError(f"Expected the {axis} to be positive and finite; got {value:g}.")
    if {"batch", "steps", "tokens"} <= set(at_base):
        raise ValueError(
            "Expected two of batch, steps and tokens, as the third follows from them; got all "
            "three."
        )
    of = {axis: at_target.get(axis, value) / value for axis, value in at_base.items()}
    if "steps" in of:
        of["tokens"] = of["steps"] * of.get("batch", 1.0)
    elif "tokens" in of:
        of["steps"] = of["tokens"] / of.get("batch", 1.0)
    elif "batch" in of:
        raise ValueError(
            "Expected steps or tokens next to the batch: rules differ by which of them stays fixed "
            "while the batch grows. Add the one that is fixed to the base, such as steps=1000."
        )
    if "parameters" not in of and {"width", "depth"} & set(of):
        of["parameters"] = of.get("width", 1.0) ** 2 * of.get("depth", 1.0)
    if {"parameters", "tokens"} & set(of):
        of.setdefault("compute", of.get("parameters", 1.0) * of.get("tokens", 1.0))
    return of


def said(of: Mapping[str, float], *, scheme: Scheme | None = None) -> tuple[Said, ...]:
    """What every rule says that speaks of an axis that grows, by its learning rate, least first.

    Args:
        of: ratios by axis, as ``growth`` gives them.
        scheme: the parametrization by which width and depth are scaled already: rules of other
            parametrizations, which speak of width, depth or the number of parameters, are left out
            where these grow.

    Returns:
        A sentence's data for each rule, the least learning rate first.

    Raises:
        ValueError: a ratio that is not positive.

    Example:
        >>> of = growth({"batch": 32, "tokens": 3200}, {"batch": 128})
        >>> [(one.rule.key, one.lr) for one in said(of)][-1]
        ('linear-batch', 4.0)
    """
    for axis, ratio in of.items():
        if not 0 < ratio < math.inf:
            raise ValueError(f"Expected the ratio of {axis} to be positive; got {ratio!r}.")
    ratios = Ratios(**{role: of.get(axis, 1.0) for axis, role in _ROLES.items()})
    parameters = of.get("parameters", of.get("width", 1.0) ** 2 * of.get("depth", 1.0))
    resized = parameters != 1
    statements = []
    for rule in RUN_RULES:
        # What the base does not name stays as it is.
        growing = [axis for axis in rule.exponents if of.get(axis, 1.0) != 1]
        scaled = {*SCALED_BY_SCHEMES, "parameters"} & set(growing)
        if scheme is not None and (scaled or ("compute" in growing and resized)):
            continue
        lr = math.prod(of[a] ** float(rule.exponents[a].value) for a in growing)
        beside = rule.beside
        other = {
            # What follows the number of parameters follows it however the sizes name it.
            "decay": beside.of_run.decay.at(ratios) * parameters ** float(beside.of_parameters),
            "epsilon": beside.epsilon.at(ratios),
            "one_minus_beta": beside.one_minus_beta.at(ratios),
            "beta2_power": beside.log_beta2.at(ratios),
        }
        if growing or any(factor != 1 for factor in other.values()):
            statements.append(Said(rule=rule, lr=lr, **other, silent=_silent(rule, of, scheme)))
    return tuple(sorted(statements, key=lambda one: one.lr))


def _silent(rule: RunRule, of: Mapping[str, float], scheme: Scheme | None) -> tuple[str, ...]:
    """The axes, independent of each other, that grow and that a rule does not speak of."""
    covered = {*rule.exponents}
    if "steps" in covered:
        covered.add("tokens")
    if "compute" in covered:
        covered |= {"tokens", "parameters"}
    if "parameters" in covered or scheme is not None:
        covered |= {*SCALED_BY_SCHEMES}
    # Those that follow from others are not asked for; tokens stand for the duration.
    axes = [axis for axis in of if axis not in ("parameters", "compute", "steps")]
    return tuple(axis for axis in axes if of[axis] != 1 and axis not in covered)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contradiction:
    """Two rules that move the learning rate apart along an axis, by their exponents.

    Attributes:
        axis: along which they speak.
        least, most: the rules with the least and the largest exponent.
    """

    axis: str
    least: RunRule
    most: RunRule

    def __str__(self) -> str:
        low, high = (rule.exponents[self.axis].value for rule in (self.least, self.most))
        return (
            f"along {self.axis}, {self.axis}^{float(low):+.3g} ({self.least.name}) against "
            f"{self.axis}^{float(high):+.3g} ({self.most.name})"
        )


def contradictions(rules: Sequence[Said], of: Mapping[str, float]) -> tuple[Contradiction, ...]:
    """The axes that grow along which rules have different exponents, most apart first.

    Args:
        rules: that are said.
        of: ratios by axis.

    Returns:
        One for each axis of which at least two rules speak, and not alike.

    Example:
        >>> of = {"rank": 8.0}
        >>> print(contradictions(said(of), of)[0])
        along rank, rank^-0.5 (muA, B at zero) against rank^+0.21 (adapters of 35 models)

    *Source:* each rule's own.
    """
    found = []
    for axis, ratio in of.items():
        speaking = [one.rule for one in rules if ratio != 1 and axis in one.rule.exponents]
        ordered = sorted(speaking, key=lambda rule: rule.exponents[axis].value)
        if ordered and ordered[0].exponents[axis].value != ordered[-1].exponents[axis].value:
            found.append(Contradiction(axis=axis, least=ordered[0], most=ordered[-1]))

    def apart(one: Contradiction) -> float:
        difference = one.most.exponents[one.axis].value - one.least.exponents[one.axis].value
        return abs(float(difference) * math.log(of[one.axis]))

    return tuple(sorted(found, key=apart, reverse=True))
