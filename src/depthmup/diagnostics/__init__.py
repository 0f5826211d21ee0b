"""Probes on live networks, and networks against the theory."""

from depthmup.diagnostics.agreement import (
    Agreement,
    Approach,
    agreement_with_depth,
    agreement_with_width,
    approach,
)
from depthmup.diagnostics.causes import likely_cause
from depthmup.diagnostics.coordinates import check
from depthmup.diagnostics.diversity import (
    Diversity,
    GradientDiversity,
    diversity,
    diversity_at_infinite_depth,
    feature_distances,
    gradient_diversity,
)
from depthmup.diagnostics.effects import spectral_norm
from depthmup.diagnostics.factored import Blocks, train_factored
from depthmup.diagnostics.linearization import branch_linearizations, linearization_distance
from depthmup.diagnostics.networks import TrainedNetwork
from depthmup.diagnostics.observations import SAMPLE, Key, Observation, Paths, Points
from depthmup.diagnostics.points import locate
from depthmup.diagnostics.prediction import predict
from depthmup.diagnostics.preparation import Prepare, as_is, planned
from depthmup.diagnostics.probes import first_nonfinite, observe
from depthmup.diagnostics.regimes import (
    DECISIVE,
    MeasuredRegime,
    Property,
    measured_map,
    measured_regime,
)
from depthmup.diagnostics.sharpness import GaussNewton, Sharpness, sharpness
from depthmup.statistics import Slope, holm, local_slopes, log_slopes, moderated

__all__ = [
    "DECISIVE",
    "SAMPLE",
    "Agreement",
    "Approach",
    "Blocks",
    "Diversity",
    "GaussNewton",
    "GradientDiversity",
    "Key",
    "MeasuredRegime",
    "Observation",
    "Paths",
    "Points",
    "Prepare",
    "Property",
    "Sharpness",
    "Slope",
    "TrainedNetwork",
    "agreement_with_depth",
    "agreement_with_width",
    "approach",
    "as_is",
    "branch_linearizations",
    "check",
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
    "predict",
    "sharpness",
    "spectral_norm",
    "train_factored",
]
