"""Grids of cells, where and how they run, and what follows from them."""

from depthmup.sweep.cost import check_memory
from depthmup.sweep.executors import Executor, InProcess, Processes, WorkerError
from depthmup.sweep.grid import Grid
from depthmup.sweep.jobs import Job, Measure, Train, training
from depthmup.sweep.run import Progress, run
from depthmup.sweep.store import Asked, Store, StoreError
from depthmup.sweep.study import study

__all__ = [
    "Asked",
    "Executor",
    "Grid",
    "InProcess",
    "Job",
    "Measure",
    "Processes",
    "Progress",
    "Store",
    "StoreError",
    "Train",
    "WorkerError",
    "check_memory",
    "run",
    "study",
    "training",
]
