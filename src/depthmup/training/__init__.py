"""Cells in, records out."""

from depthmup.training.ensemble import shape_of, train_ensemble
from depthmup.training.loop import train
from depthmup.training.setup import Weights, batches, build, dataset, stream

__all__ = [
    "Weights",
    "batches",
    "build",
    "dataset",
    "shape_of",
    "stream",
    "train",
    "train_ensemble",
]
