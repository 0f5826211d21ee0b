"""From losses to verdicts: intervals, the optimum of a curve, its drift, laws and certificates.

Plain arrays come in, estimates go out; nothing here knows where the numbers came from.
"""

from depthmup.statistics.best import best_log2_lr, best_log_loss, log_ratio_of_best
from depthmup.statistics.certificate import calibrate, check_asked
from depthmup.statistics.curve import Curves
from depthmup.statistics.drift import (
    DRIFT_UNIT,
    TOLERANCE,
    drift,
    drifts,
    excess_loss,
    judge,
    measured,
)
from depthmup.statistics.exponents import (
    Slope,
    local_slopes,
    log_slope,
    log_slopes,
    moderated,
    slope_weights,
)
from depthmup.statistics.intervals import (
    CONFIDENCE,
    Array,
    around,
    exact,
    geometric_mean,
    holm,
    jackknife,
    jackknife_error,
    mean,
    share,
    standard_errors,
    student,
    surprising,
)
from depthmup.statistics.optimum import Optima, optima

__all__ = [
    "CONFIDENCE",
    "DRIFT_UNIT",
    "TOLERANCE",
    "Array",
    "Curves",
    "Optima",
    "Slope",
    "around",
    "best_log2_lr",
    "best_log_loss",
    "calibrate",
    "check_asked",
    "drift",
    "drifts",
    "exact",
    "excess_loss",
    "geometric_mean",
    "holm",
    "jackknife",
    "jackknife_error",
    "judge",
    "local_slopes",
    "log_ratio_of_best",
    "log_slope",
    "log_slopes",
    "mean",
    "measured",
    "moderated",
    "optima",
    "share",
    "slope_weights",
    "standard_errors",
    "student",
    "surprising",
]
