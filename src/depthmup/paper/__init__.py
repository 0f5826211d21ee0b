"""The paper's figures and claims, measured again: what each shows, and whether it was found."""

from depthmup.paper.claim import Claim, Conclusion, Experiment, Scale, Setting
from depthmup.paper.registry import CLAIMS, named
from depthmup.paper.reproduce import judge, plan_claims, reproduce

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
