"""The scaling rules of the literature as data: exact exponents, no PyTorch."""

from depthmup.rules.catalogue import (
    BLOCK_MULTIPLIER,
    CATALOGUE,
    COMPLETE_DP,
    DEPTH_MUP,
    HYPERP,
    MUP,
    ODE,
    SP,
    completep,
    general,
    scheme,
)
from depthmup.rules.family import RESPONSES, Family, Response
from depthmup.rules.fold import Folded, fold
from depthmup.rules.optimizers import BETAS, CAVEATS, EPSILON, OPTIMIZERS, family, named
from depthmup.rules.power import ONE, Exponent, Power, Ratios, exponent
from depthmup.rules.predictions import Observable, Prediction, effect, predict
from depthmup.rules.regimes import REGIONS, Regime, decided, regime, region
from depthmup.rules.role import Kind, Role
from depthmup.rules.run_rule import RunRule, canonical
from depthmup.rules.run_rules import NO_RULE, RUN_RULES, rules_of, run_rule, with_run
from depthmup.rules.said import Said, growth, said
from depthmup.rules.scheme import Departure, Laws, RunLaws, Scheme
from depthmup.rules.width import MAXIMAL_UPDATE, STANDARD, Readout, WidthLaw, WidthRule

__all__ = [
    "BETAS",
    "BLOCK_MULTIPLIER",
    "CATALOGUE",
    "CAVEATS",
    "COMPLETE_DP",
    "DEPTH_MUP",
    "EPSILON",
    "HYPERP",
    "MAXIMAL_UPDATE",
    "MUP",
    "NO_RULE",
    "ODE",
    "ONE",
    "OPTIMIZERS",
    "REGIONS",
    "RESPONSES",
    "RUN_RULES",
    "SP",
    "STANDARD",
    "Departure",
    "Exponent",
    "Family",
    "Folded",
    "Kind",
    "Laws",
    "Observable",
    "Power",
    "Prediction",
    "Ratios",
    "Readout",
    "Regime",
    "Response",
    "Role",
    "RunLaws",
    "RunRule",
    "Said",
    "Scheme",
    "WidthLaw",
    "WidthRule",
    "canonical",
    "completep",
    "decided",
    "effect",
    "exponent",
    "family",
    "fold",
    "general",
    "growth",
    "named",
    "predict",
    "regime",
    "region",
    "rules_of",
    "run_rule",
    "said",
    "scheme",
    "with_run",
]
