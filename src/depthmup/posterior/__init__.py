"""One posterior of all runs of a variant: where the minima of its sizes lie, and what they follow.

Plain arrays come in, estimates go out; nothing here knows where the numbers came from.
"""

from depthmup.posterior.curve import Curves
from depthmup.posterior.mixture import NormalMixture
from depthmup.posterior.posterior import Posterior, drifts, posterior, slope_row

__all__ = ["Curves", "NormalMixture", "Posterior", "drifts", "posterior", "slope_row"]
