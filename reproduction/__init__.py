"""The paper's figures and claims, measured again: what each shows, and whether it was found."""

from reproduction.claims.claim import Claim, Conclusion, Experiment, Scale, Setting
from reproduction.claims.registry import CLAIMS, named
from reproduction.run import judge, plan_claims, reproduce

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
