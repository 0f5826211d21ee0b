"""Verdicts from tables of runs that exist: read, clean, measure, judge, predict."""

from depthmup.fitting.fit import KEEP, Reading, example, fit
from depthmup.fitting.formats import LARGEST_FILE
from depthmup.fitting.proposal import NextRuns, SearchOptions, next_runs
from depthmup.fitting.report import FILES, FitReport

__all__ = [
    "FILES",
    "KEEP",
    "LARGEST_FILE",
    "FitReport",
    "NextRuns",
    "Reading",
    "SearchOptions",
    "example",
    "fit",
    "next_runs",
]
