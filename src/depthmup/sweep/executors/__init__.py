"""Where jobs are done: in this process, in processes beside it, or on a Ray cluster."""

from depthmup.sweep.executors.backlog import Listener
from depthmup.sweep.executors.executor import Executor, InProcess, WorkerError
from depthmup.sweep.executors.processes import Processes
from depthmup.sweep.executors.ray import Ray

__all__ = ["Executor", "InProcess", "Listener", "Processes", "Ray", "WorkerError"]
