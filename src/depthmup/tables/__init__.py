"""Tables of runs that exist: read, clean, group; and which runs a table lacks most."""

from depthmup.tables.formats import LARGEST_FILE, example
from depthmup.tables.proposal import NextRuns, next_runs
from depthmup.tables.question import KEEP, Reading

__all__ = [
    "KEEP",
    "LARGEST_FILE",
    "NextRuns",
    "Reading",
    "example",
    "next_runs",
]
