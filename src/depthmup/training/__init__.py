"""Cells in, records out."""

from depthmup.training.ensemble import train_ensemble
from depthmup.training.loop import train
from depthmup.training.setup import Weights, batches, build, dataset, stream

__all__ = [
    "Weights",
    "batches",
    "build",
    "dataset",
    "stream",
    "train",
    "train_ensemble",
]
