"""Grids of cells, where and how they run, and what follows from them."""

from depthmup.sweep.certify import certificate, certify
from depthmup.sweep.cost import check_memory, core_seconds
from depthmup.sweep.design import Design, Losses, Variant, variant_of
from depthmup.sweep.executors import Executor, InProcess, Processes, Ray, WorkerError
from depthmup.sweep.grid import Grid
from depthmup.sweep.jobs import Job, Measure, Train, training
from depthmup.sweep.losses import stored_losses
from depthmup.sweep.run import Progress, run
from depthmup.sweep.shards import Shard, merge, share, share_left
from depthmup.sweep.store import MAIN_STORE, Asked, Store, StoreError, StoreWarning
from depthmup.sweep.study import losses_over, studies
from depthmup.sweep.trials import (
    TrainTogether,
    TrainTrial,
    TrialGrid,
    together,
    trial_jobs,
)

__all__ = [
    "MAIN_STORE",
    "Asked",
    "Design",
    "Executor",
    "Grid",
    "InProcess",
    "Job",
    "Losses",
    "Measure",
    "Processes",
    "Progress",
    "Ray",
    "Shard",
    "Store",
    "StoreError",
    "StoreWarning",
    "Train",
    "TrainTogether",
    "TrainTrial",
    "TrialGrid",
    "Variant",
    "WorkerError",
    "certificate",
    "certify",
    "check_memory",
    "core_seconds",
    "losses_over",
    "merge",
    "run",
    "share",
    "share_left",
    "stored_losses",
    "studies",
    "together",
    "training",
    "trial_jobs",
    "variant_of",
]
