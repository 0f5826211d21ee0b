"""Training: descriptions of runs (cells, trials) in, records of their losses out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from depthmup.training.backend import ENGINES, Backend, EngineName, check_backend
from depthmup.training.engine import Engine, engine_for, train_group, train_trials

if TYPE_CHECKING:
    from depthmup.training.built_in.data_and_weights import Weights, batches, build, dataset, stream
    from depthmup.training.built_in.sources import find_data
    from depthmup.training.cells import optimizer_of, train, train_ensemble
    from depthmup.training.native.train import train_native
    from depthmup.training.snapshots import trained

# Loaded when first used: to choose an engine needs no PyTorch.
_LAZY = {
    "Weights": "built_in.data_and_weights",
    "batches": "built_in.data_and_weights",
    "build": "built_in.data_and_weights",
    "dataset": "built_in.data_and_weights",
    "find_data": "built_in.sources",
    "optimizer_of": "cells",
    "stream": "built_in.data_and_weights",
    "train": "cells",
    "train_ensemble": "cells",
    "train_native": "native.train",
    "trained": "snapshots",
}

__all__ = [
    "ENGINES",
    "Backend",
    "Engine",
    "EngineName",
    "Weights",
    "batches",
    "build",
    "check_backend",
    "dataset",
    "engine_for",
    "find_data",
    "optimizer_of",
    "stream",
    "train",
    "train_ensemble",
    "train_group",
    "train_native",
    "train_trials",
    "trained",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"depthmup.training.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
