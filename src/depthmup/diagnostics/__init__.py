"""Probes on live networks, and networks against the theory."""

from depthmup.diagnostics.agreement import (
    Agreement,
    Approach,
    agreement_with_depth,
    agreement_with_width,
)
from depthmup.diagnostics.causes import likely_cause
from depthmup.diagnostics.coordinates import Subject, as_is, check, cross_entropy, planned
from depthmup.diagnostics.probes import Key, Observation, Points, first_nonfinite, locate, observe
from depthmup.diagnostics.slopes import Slope, holm, local_slopes, log_slopes

__all__ = [
    "Agreement",
    "Approach",
    "Key",
    "Observation",
    "Points",
    "Slope",
    "Subject",
    "agreement_with_depth",
    "agreement_with_width",
    "as_is",
    "check",
    "cross_entropy",
    "first_nonfinite",
    "holm",
    "likely_cause",
    "local_slopes",
    "locate",
    "log_slopes",
    "observe",
    "planned",
]
