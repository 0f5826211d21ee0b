"""Snapshots of a cell's network during training, for what is measured on its weights.

A record holds losses alone, so whoever needs weights trains the cell again up to the snapshot.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch

from depthmup.records import Cell
from depthmup.training.backend import threads
from depthmup.training.built_in.data_and_weights import build, dataset
from depthmup.training.built_in.residual_mlp import ResidualMLP
from depthmup.training.cells import training_of
from depthmup.training.divergence import ceiling
from depthmup.training.engine import engine_for
from depthmup.training.loop import losses_of


def trained(cell: Cell, at: Sequence[int]) -> Iterator[ResidualMLP]:
    """The cell's network after each number of steps in ``at``; fewer if training diverges.

    One module, whose weights change when the next snapshot is taken.
    """
    if not at or at[0] < 0 or at[-1] > cell.steps or any(b <= a for a, b in pairwise(at)):
        raise ValueError(
            f"Expected increasing numbers of steps from 0 to {cell.steps}; got {list(at)}."
        )
    native = engine_for(cell).name == "native"
    yield from (_by_kernel if native else _by_loop)(cell, at)


def _by_loop(cell: Cell, at: Sequence[int]) -> Iterator[ResidualMLP]:
    training, limit = training_of(cell), math.inf
    model, losses = training.network, losses_of(training)
    assert isinstance(model, ResidualMLP)
    for done in range(at[-1] + 1):
        with threads(1):
            loss = next(losses, math.nan)  # there is none after the last step
        if done in at:
            model.zero_grad()
            yield model
        if not loss <= limit:  # also true of NaN
            return
        if done == 0:
            limit = training.ceiling(loss)


def _by_kernel(cell: Cell, at: Sequence[int]) -> Iterator[ResidualMLP]:
    from depthmup.training.native import library
    from depthmup.training.native.member import Member

    kernel, classes = library(), dataset(cell.data).classes
    with threads(1):
        model, state = build(cell), Member(cell, kernel.register_length)
    limit, done = math.inf, 0
    for stop in at:
        if done == 0 < stop:
            done = state.advance(kernel, 0, 1, limit)
            limit = ceiling(float(state.losses[0]), classes)
        done = state.advance(kernel, done, stop, limit)
        if done < stop:
            return
        weights = state.arrays["weights"][..., : cell.network.width]
        with torch.no_grad():
            for branch, matrices in zip(model.branches, weights, strict=True):
                for linear, values in zip(branch.matrices, matrices, strict=True):  # type: ignore[arg-type]
                    linear.weight.copy_(values)
        yield model
