"""Measuring: what the modules of live networks give out, as numbers, and what makes them wrong.

The proof of a plan and ``check`` look with the same eyes; neither parameters' roles nor plans are
known here.
"""

from depthmup.measuring.causes import likely_cause
from depthmup.measuring.numbers import SAMPLE, mean_square, reals, sample
from depthmup.measuring.outputs import ADDED, Place, Seen, called, look
from depthmup.measuring.redraw import offsets, redraw, without

__all__ = [
    "ADDED",
    "SAMPLE",
    "Place",
    "Seen",
    "called",
    "likely_cause",
    "look",
    "mean_square",
    "offsets",
    "reals",
    "redraw",
    "sample",
    "without",
]
