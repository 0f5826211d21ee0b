"""What work leaves behind: cells, records, findings. Standard library only."""

from depthmup.records.check import Check, Exponent, NonFinite, Outcome, Size, deviation
from depthmup.records.environment import cores, environment, processor
from depthmup.records.finding import UNKNOWN, Estimate, Optimum, Place, Transfer, Verdict
from depthmup.records.measurement import Measurement, Task
from depthmup.records.run import NUMERICS, Cell, Data, Network, Optimizer, Record, Status
from depthmup.records.study import Curve, Point, Study, Window

__all__ = [
    "NUMERICS",
    "UNKNOWN",
    "Cell",
    "Check",
    "Curve",
    "Data",
    "Estimate",
    "Exponent",
    "Measurement",
    "Network",
    "NonFinite",
    "Optimizer",
    "Optimum",
    "Outcome",
    "Place",
    "Point",
    "Record",
    "Size",
    "Status",
    "Study",
    "Task",
    "Transfer",
    "Verdict",
    "Window",
    "cores",
    "deviation",
    "environment",
    "processor",
]
