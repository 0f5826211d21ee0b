"""Training dynamics at infinite width, at finite and infinite depth, with no network trained."""

from depthmup.limits.gaussian import Activation, smooth
from depthmup.limits.linear import linear
from depthmup.limits.losses import Loss, cross_entropy, mse
from depthmup.limits.nonlinear import nonlinear
from depthmup.limits.solution import History, Solution, Status
from depthmup.limits.step import Step

__all__ = [
    "Activation",
    "History",
    "Loss",
    "Solution",
    "Status",
    "Step",
    "cross_entropy",
    "linear",
    "mse",
    "nonlinear",
    "smooth",
]
