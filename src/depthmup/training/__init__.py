"""Cells in, records out."""

from depthmup.training.engine import Engine, engine_for, train_group
from depthmup.training.ensemble import train_ensemble
from depthmup.training.loop import train
from depthmup.training.native import train_native
from depthmup.training.setup import Weights, batches, build, dataset, stream

__all__ = [
    "Engine",
    "Weights",
    "batches",
    "build",
    "dataset",
    "engine_for",
    "stream",
    "train",
    "train_ensemble",
    "train_group",
    "train_native",
]
