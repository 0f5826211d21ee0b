"""Methods: the equations of each kind of block and depth, for the one training loop.

Whoever derives other equations, or leaves out a term of these, subclasses one of them.
"""

from depthmup.limits.gaussian import pairs_among
from depthmup.limits.methods.nonlinear import Backward, Nonlinear, solve_nonlinear

__all__ = ["Backward", "Nonlinear", "pairs_among", "solve_nonlinear"]
