"""Listing: all that the package knows by name, as tables. Help and the reference are made of it."""

from collections.abc import Mapping

from depthmup.rules.catalogue import CATALOGUE
from depthmup.rules.disputed import DISPUTED
from depthmup.rules.experts import EXPERT_RULES
from depthmup.rules.family import Family
from depthmup.rules.optimizers import OPTIMIZERS
from depthmup.rules.role import HIDDEN_IN_BRANCH
from depthmup.rules.run_rule import RunRule
from depthmup.rules.run_rules import RUN_RULES

Rows = list[dict[str, str]]

NAMES: Mapping[str, tuple[str, ...]] = {
    "schemes": tuple(scheme.name for scheme in CATALOGUE),
    "expert rules": tuple(rule.name for rule in EXPERT_RULES),
    "optimizers": tuple(OPTIMIZERS),
    "families": tuple(Family),
    "run rules": tuple(rule.key for rule in RUN_RULES if rule.key),
}
"""The names that options take, by what they name."""


def listing() -> dict[str, Rows]:
    """Schemes, rules for experts, optimizers, rules of the run and disputes, a table each.

    Returns:
        Rows by title; a cell is a text.

    Example:
        >>> listing()["Schemes"][0]["name"]
        'sp'

    *Source:* each one's own, which stands in its row.
    """
    return {
        "Schemes": [
            {
                "name": scheme.name,
                "branch": str(scheme.branch),
                "Adam's rate in branches": str(scheme.laws(HIDDEN_IN_BRANCH, Family.ENTRYWISE).lr),
                "source": scheme.source,
            }
            for scheme in CATALOGUE
        ],
        "Rules for mixtures of experts": [
            {
                "name": f"+{rule.name}",
                "held": "; ".join(held.what for held in rule.invariants) or "nothing",
                "source": rule.source,
            }
            for rule in EXPERT_RULES
        ],
        "Optimizers": [
            {
                "family": family.value,
                "optimizers": ", ".join(n for n, of in OPTIMIZERS.items() if of is family),
            }
            for family in Family
        ],
        "Rules of the run": [
            {
                "name": rule.key,
                "lr": str(rule.laws.lr),
                "decay": str(rule.laws.decay),
                "epsilon": str(rule.laws.epsilon),
                "averages": _averages(rule),
                "source": _source(rule),
            }
            for rule in RUN_RULES
            if rule.key
        ],
        "Published exponents of the best learning rate": [
            {
                "rule": rule.name,
                "exponents": ", ".join(
                    f"{axis}^{float(stated.value):g}" for axis, stated in rule.exponents.items()
                ),
                "setting": rule.setting,
                "source": _source(rule),
            }
            for rule in RUN_RULES
            if rule.exponents
        ],
        "Laws on which sources differ": [
            {
                "law": one.what,
                "plans": f"{one.here}: {one.because}",
                "elsewhere": str(one.there),
                "source": f"{one.source}; {one.standing.value}",
            }
            for one in DISPUTED
        ],
    }


def _averages(rule: RunRule) -> str:
    """What becomes of the decay rates of Adam's averages."""
    one_minus, log_beta2 = str(rule.laws.one_minus_beta), str(rule.laws.log_beta2)
    if log_beta2 != "1":
        return f"beta2^({log_beta2})"
    return "1" if one_minus == "1" else f"(1 - beta) {one_minus}"


def _source(rule: RunRule) -> str:
    return f"{rule.source}; {rule.standing.value}"
