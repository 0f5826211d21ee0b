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
    with_experts,
)
from depthmup.rules.conventions import converted_lr
from depthmup.rules.experts import (
    EXPERT_RULES,
    MOE,
    MSSP,
    MSSP_FIXED,
    MSSP_SMALL,
    ExpertRule,
    Invariant,
    expert_rule,
    moe,
    sized_as_router,
)
from depthmup.rules.family import RESPONSES, Family, Response
from depthmup.rules.fold import Folded, fold
from depthmup.rules.optimizers import BETAS, CAVEATS, EPSILON, OPTIMIZERS, family, named
from depthmup.rules.power import ONE, Exponent, Power, Ratios, exponent
from depthmup.rules.predictions import ExpectedExponents, Observable, effect, predict
from depthmup.rules.regimes import REGIONS, Regime, decided, regime, region
from depthmup.rules.role import Kind, Part, Role
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
    "EXPERT_RULES",
    "HYPERP",
    "MAXIMAL_UPDATE",
    "MOE",
    "MSSP",
    "MSSP_FIXED",
    "MSSP_SMALL",
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
    "ExpectedExponents",
    "ExpertRule",
    "Exponent",
    "Family",
    "Folded",
    "Invariant",
    "Kind",
    "Laws",
    "Observable",
    "Part",
    "Power",
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
    "converted_lr",
    "decided",
    "effect",
    "expert_rule",
    "exponent",
    "family",
    "fold",
    "general",
    "growth",
    "moe",
    "named",
    "predict",
    "regime",
    "region",
    "rules_of",
    "run_rule",
    "said",
    "scheme",
    "sized_as_router",
    "with_experts",
    "with_run",
]
