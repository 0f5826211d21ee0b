"""Methods: the equations of each kind of block and depth, for the one training loop.

Whoever derives other equations, or leaves out a term of these, subclasses one of them.
"""

from depthmup.limits.methods.blocks import Blocks, solve_blocks
from depthmup.limits.methods.continuum import Continuum, solve_at
from depthmup.limits.methods.mean_ode import Network
from depthmup.limits.methods.nonlinear import Nonlinear, solve_nonlinear
from depthmup.limits.methods.nonlinear_backward import Backward
from depthmup.limits.methods.nonlinear_state import State, pairs_among
from depthmup.limits.methods.particles import OneMatrix, TwoMatrix
from depthmup.limits.training import Method, train

__all__ = [
    "Backward",
    "Blocks",
    "Continuum",
    "Method",
    "Network",
    "Nonlinear",
    "OneMatrix",
    "State",
    "TwoMatrix",
    "pairs_among",
    "solve_at",
    "solve_blocks",
    "solve_nonlinear",
    "train",
]
