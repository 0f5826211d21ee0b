"""From losses to verdicts: intervals, the optimum of a curve, its drift, laws and certificates.

Plain arrays come in, estimates go out; nothing here knows where the numbers came from.
"""

from depthmup.statistics.certificate import calibrate, check_asked
from depthmup.statistics.cost import cost
from depthmup.statistics.curve import Curves
from depthmup.statistics.drift import (
    TOLERANCE,
    drift,
    drift_unit,
    drifts,
    judge,
)
from depthmup.statistics.exponents import (
    Slope,
    local_slopes,
    log_slopes,
    moderated,
)
from depthmup.statistics.groups import across_groups
from depthmup.statistics.intervals import (
    CONFIDENCE,
    Array,
    around,
    geometric_mean,
    holm,
    jackknife_error,
    mean,
    student,
)
from depthmup.statistics.law import Size
from depthmup.statistics.looks import LOOKS, looked_at
from depthmup.statistics.minimum import Minima, loss_estimate, measured, minima, rate_estimate
from depthmup.statistics.next_run import next_round
from depthmup.statistics.optimum import Optima, optima
from depthmup.statistics.pooled import Pooled, pooled_law
from depthmup.statistics.refusals import noisy_sizes
from depthmup.statistics.regression import Regression, line_of
from depthmup.statistics.search import Ask, Round, Search, curves_of

__all__ = [
    "CONFIDENCE",
    "LOOKS",
    "TOLERANCE",
    "Array",
    "Ask",
    "Curves",
    "Minima",
    "Optima",
    "Pooled",
    "Regression",
    "Round",
    "Search",
    "Size",
    "Slope",
    "across_groups",
    "around",
    "calibrate",
    "check_asked",
    "cost",
    "curves_of",
    "drift",
    "drift_unit",
    "drifts",
    "geometric_mean",
    "holm",
    "jackknife_error",
    "judge",
    "line_of",
    "local_slopes",
    "log_slopes",
    "looked_at",
    "loss_estimate",
    "mean",
    "measured",
    "minima",
    "moderated",
    "next_round",
    "noisy_sizes",
    "optima",
    "pooled_law",
    "rate_estimate",
    "student",
]
