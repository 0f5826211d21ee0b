"""What work leaves behind: cells, records, findings. Standard library only."""

from depthmup.records.environment import cores, environment, processor
from depthmup.records.finding import UNKNOWN, Estimate, Optimum, Place, Transfer, Verdict
from depthmup.records.run import NUMERICS, Cell, Data, Network, Optimizer, Record, Status
from depthmup.records.study import Curve, Point, Study, Window

__all__ = [
    "NUMERICS",
    "UNKNOWN",
    "Cell",
    "Curve",
    "Data",
    "Estimate",
    "Network",
    "Optimizer",
    "Optimum",
    "Place",
    "Point",
    "Record",
    "Status",
    "Study",
    "Transfer",
    "Verdict",
    "Window",
    "cores",
    "environment",
    "processor",
]
