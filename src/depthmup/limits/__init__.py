"""Training dynamics at infinite width, at finite and infinite depth, with no network trained."""

from depthmup.limits.averages import Hermite, Neurons, Particles, Sobol
from depthmup.limits.gaussian import Activation, resolve, smooth
from depthmup.limits.kernel import Block, Kernel, kernel
from depthmup.limits.networks import linear, mean_ode, nonlinear, sign_sgd, two_matrix
from depthmup.limits.numerics.chebyshev import Rule, rule
from depthmup.limits.numerics.volterra import solve_volterra
from depthmup.limits.optimal_rate import OptimalRate, optimal_rate
from depthmup.limits.problem import Branch, Problem, problem
from depthmup.limits.sgd import SGD
from depthmup.limits.solution import History, Solution, SolveStatus
from depthmup.limits.solution import SolveStatus as Status  # its name before runs had a status
from depthmup.limits.solve import solve
from depthmup.limits.step import Loss, Step, cross_entropy, mse

__all__ = [
    "SGD",
    "Activation",
    "Block",
    "Branch",
    "Hermite",
    "History",
    "Kernel",
    "Loss",
    "Neurons",
    "OptimalRate",
    "Particles",
    "Problem",
    "Rule",
    "Sobol",
    "Solution",
    "SolveStatus",
    "Status",
    "Step",
    "cross_entropy",
    "kernel",
    "linear",
    "mean_ode",
    "mse",
    "nonlinear",
    "optimal_rate",
    "problem",
    "resolve",
    "rule",
    "sign_sgd",
    "smooth",
    "solve",
    "solve_volterra",
    "two_matrix",
]
