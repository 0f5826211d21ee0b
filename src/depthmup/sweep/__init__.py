"""Grids of cells, where and how they run, and what follows from them."""

from depthmup.sweep.calibrate import calibrate
from depthmup.sweep.cost import check_memory, core_seconds
from depthmup.sweep.executors import Executor, InProcess, Processes, Ray, WorkerError
from depthmup.sweep.grid import Grid
from depthmup.sweep.jobs import Job, Measure, Train, training
from depthmup.sweep.losses import stored_losses
from depthmup.sweep.run import Progress, run
from depthmup.sweep.shards import Shard, merge, share, share_left
from depthmup.sweep.store import MAIN_STORE, Asked, Store, StoreError, StoreWarning
from depthmup.sweep.study import study
from depthmup.sweep.trial_study import Losses, trial_losses, trial_studies
from depthmup.sweep.trials import (
    TrainTogether,
    TrainTrial,
    TrialGrid,
    Variant,
    together,
    trial_jobs,
)

__all__ = [
    "MAIN_STORE",
    "Asked",
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
    "calibrate",
    "check_memory",
    "core_seconds",
    "merge",
    "run",
    "share",
    "share_left",
    "stored_losses",
    "study",
    "together",
    "training",
    "trial_jobs",
    "trial_losses",
    "trial_studies",
]
