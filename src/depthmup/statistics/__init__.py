"""From losses to verdicts: intervals, the optimum of a curve, its drift, laws and certificates.

Plain arrays come in, estimates go out; nothing here knows where the numbers came from.
"""

from depthmup.posterior.curve import Curves
from depthmup.posterior.intervals import (
    CONFIDENCE,
    Array,
    around,
    geometric_mean,
    holm,
    jackknife_error,
    mean,
    student,
    together,
)
from depthmup.posterior.law import Size
from depthmup.statistics.certificate import calibrate, check_asked
from depthmup.statistics.cost import cost
from depthmup.statistics.drift import TOLERANCE, drift, drift_unit, judge
from depthmup.statistics.exponents import (
    Slope,
    local_slopes,
    log_slopes,
    moderated,
)
from depthmup.statistics.groups import across_groups
from depthmup.statistics.minimum import Minima, loss_estimate, measured, minima
from depthmup.statistics.next_run import next_round
from depthmup.statistics.optimum import Optima, optima
from depthmup.statistics.pooled import Pooled, pooled_law
from depthmup.statistics.search import LOOKS, MOST_SEEDS, Ask, Round, Search, curves_of

__all__ = [
    "CONFIDENCE",
    "LOOKS",
    "MOST_SEEDS",
    "TOLERANCE",
    "Array",
    "Ask",
    "Curves",
    "Minima",
    "Optima",
    "Pooled",
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
    "geometric_mean",
    "holm",
    "jackknife_error",
    "judge",
    "local_slopes",
    "log_slopes",
    "loss_estimate",
    "mean",
    "measured",
    "minima",
    "moderated",
    "next_round",
    "optima",
    "pooled_law",
    "student",
    "together",
]
