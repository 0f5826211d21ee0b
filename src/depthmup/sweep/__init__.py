"""Sweeps: what to train, where, how results are stored, and what is concluded from them."""

from depthmup.sweep.auto import Auto
from depthmup.sweep.built_in import BuiltIn, rate_unit
from depthmup.sweep.certify import certificate, certify
from depthmup.sweep.cost import check_memory, core_seconds, seconds_per_work, work
from depthmup.sweep.custom import Custom
from depthmup.sweep.design import Design, Size, Variant
from depthmup.sweep.executors import Executor, InProcess, Processes, Ray, WorkerError
from depthmup.sweep.jobs import Job, Train, together, training
from depthmup.sweep.run import Progress, run
from depthmup.sweep.sessions import environment_of
from depthmup.sweep.shards import Shard, merge, share, snapshot
from depthmup.sweep.store import MAIN_STORE, Asked, MissingRuns, Store, StoreError, StoreWarning
from depthmup.sweep.strategy import (
    SearchState,
    advance,
    begin_with,
    drift_found,
    outline,
    story,
)
from depthmup.sweep.study import losses_over, studies
from depthmup.sweep.sweep import Losses, Records, Sweep

__all__ = [
    "MAIN_STORE",
    "Asked",
    "Auto",
    "BuiltIn",
    "Custom",
    "Design",
    "Executor",
    "InProcess",
    "Job",
    "Losses",
    "MissingRuns",
    "Processes",
    "Progress",
    "Ray",
    "Records",
    "SearchState",
    "Shard",
    "Size",
    "Store",
    "StoreError",
    "StoreWarning",
    "Sweep",
    "Train",
    "Variant",
    "WorkerError",
    "advance",
    "begin_with",
    "certificate",
    "certify",
    "check_memory",
    "core_seconds",
    "drift_found",
    "environment_of",
    "losses_over",
    "merge",
    "outline",
    "rate_unit",
    "run",
    "seconds_per_work",
    "share",
    "snapshot",
    "story",
    "studies",
    "together",
    "training",
    "work",
]
