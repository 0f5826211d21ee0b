"""The paper's figures and claims, measured again: what each shows, and whether it was found."""

from depthmup.claims.claim import Claim, Conclusion, Experiment, Scale, Setting
from depthmup.claims.registry import CLAIMS, named
from depthmup.claims.reproduce import judge, plan_claims, reproduce

__all__ = [
    "CLAIMS",
    "Claim",
    "Conclusion",
    "Experiment",
    "Scale",
    "Setting",
    "judge",
    "named",
    "plan_claims",
    "reproduce",
]
