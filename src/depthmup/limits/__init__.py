"""Training dynamics at infinite width, at finite and infinite depth, with no network trained."""

from depthmup.limits.diversity import feature_diversity
from depthmup.limits.gaussian import Activation, smooth
from depthmup.limits.kernel import Block, Kernel, kernel
from depthmup.limits.linear import linear
from depthmup.limits.linearization import linearization
from depthmup.limits.losses import Loss, cross_entropy, mse
from depthmup.limits.momentum import SGD
from depthmup.limits.neurons import Hermite, Neurons, Particles, Sobol
from depthmup.limits.nonlinear import nonlinear, printed_nonlinear
from depthmup.limits.optimal_rate import OptimalRate, optimal_rate
from depthmup.limits.problem import Branch, Problem, problem
from depthmup.limits.propagators import Propagators, propagators, proposition_residual
from depthmup.limits.regimes import DepthExponents, depth_exponents
from depthmup.limits.sign_sgd import sign_sgd
from depthmup.limits.solution import History, Solution, Status
from depthmup.limits.solve import solve
from depthmup.limits.step import Step
from depthmup.limits.two_matrix import mean_ode, two_matrix

__all__ = [
    "SGD",
    "Activation",
    "Block",
    "Branch",
    "DepthExponents",
    "Hermite",
    "History",
    "Kernel",
    "Loss",
    "Neurons",
    "OptimalRate",
    "Particles",
    "Problem",
    "Propagators",
    "Sobol",
    "Solution",
    "Status",
    "Step",
    "cross_entropy",
    "depth_exponents",
    "feature_diversity",
    "kernel",
    "linear",
    "linearization",
    "mean_ode",
    "mse",
    "nonlinear",
    "optimal_rate",
    "printed_nonlinear",
    "problem",
    "propagators",
    "proposition_residual",
    "sign_sgd",
    "smooth",
    "solve",
    "two_matrix",
]
