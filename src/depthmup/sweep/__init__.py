"""Grids of cells, where and how they run, and what follows from them."""

from depthmup.sweep.cost import check_memory
from depthmup.sweep.executors import Executor, InProcess, Processes, WorkerError
from depthmup.sweep.grid import Grid
from depthmup.sweep.run import Progress, groups, run
from depthmup.sweep.store import Store, StoreError
from depthmup.sweep.study import study

__all__ = [
    "Executor",
    "Grid",
    "InProcess",
    "Processes",
    "Progress",
    "Store",
    "StoreError",
    "WorkerError",
    "check_memory",
    "groups",
    "run",
    "study",
]
