"""Probes on live networks, and networks against the theory."""

from depthmup.diagnostics.agreement import (
    Agreement,
    Approach,
    agreement_with_depth,
    agreement_with_width,
)
from depthmup.diagnostics.causes import likely_cause
from depthmup.diagnostics.coordinates import Subject, as_is, check, cross_entropy, planned
from depthmup.diagnostics.diversity import (
    Diversity,
    GradientDiversity,
    diversity,
    diversity_at_infinite_depth,
    feature_distances,
    gradient_diversity,
)
from depthmup.diagnostics.linearization import branch_linearizations, linearization_distance
from depthmup.diagnostics.probes import (
    Key,
    Observation,
    Paths,
    Points,
    first_nonfinite,
    locate,
    observe,
)
from depthmup.diagnostics.regimes import MeasuredRegime, Property, measured_map, measured_regime
from depthmup.diagnostics.slopes import Slope, holm, local_slopes, log_slopes, moderated

__all__ = [
    "Agreement",
    "Approach",
    "Diversity",
    "GradientDiversity",
    "Key",
    "MeasuredRegime",
    "Observation",
    "Paths",
    "Points",
    "Property",
    "Slope",
    "Subject",
    "agreement_with_depth",
    "agreement_with_width",
    "as_is",
    "branch_linearizations",
    "check",
    "cross_entropy",
    "diversity",
    "diversity_at_infinite_depth",
    "feature_distances",
    "first_nonfinite",
    "gradient_diversity",
    "holm",
    "likely_cause",
    "linearization_distance",
    "local_slopes",
    "locate",
    "log_slopes",
    "measured_map",
    "measured_regime",
    "moderated",
    "observe",
    "planned",
]
