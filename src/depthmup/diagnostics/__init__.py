"""Probes on live networks, and networks against the theory."""

from depthmup.diagnostics.coordinates import check
from depthmup.diagnostics.effects import spectral_norm
from depthmup.diagnostics.networks import TrainedNetwork
from depthmup.diagnostics.observations import Key, Observation, Paths, Points
from depthmup.diagnostics.points import locate
from depthmup.diagnostics.prediction import predict
from depthmup.diagnostics.preparation import Prepare, as_is, planned
from depthmup.diagnostics.probes import first_nonfinite, observe
from depthmup.diagnostics.sharpness import GaussNewton, Sharpness, sharpness
from depthmup.measuring import SAMPLE, likely_cause
from depthmup.statistics import Slope, holm, local_slopes, log_slopes, moderated

__all__ = [
    "SAMPLE",
    "GaussNewton",
    "Key",
    "Observation",
    "Paths",
    "Points",
    "Prepare",
    "Sharpness",
    "Slope",
    "TrainedNetwork",
    "as_is",
    "check",
    "first_nonfinite",
    "holm",
    "likely_cause",
    "local_slopes",
    "locate",
    "log_slopes",
    "moderated",
    "observe",
    "planned",
    "predict",
    "sharpness",
    "spectral_norm",
]
