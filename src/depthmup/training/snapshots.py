"""Snapshots of a cell's network during training, for what is measured on its weights.

A record holds losses alone, so whoever needs weights trains the cell again up to the snapshot.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch.nn import functional

from depthmup.records import Cell
from depthmup.training.built_in.data_and_weights import batches, build, dataset
from depthmup.training.built_in.residual_mlp import ResidualMLP
from depthmup.training.divergence import ceiling
from depthmup.training.engine import engine_for
from depthmup.training.loop import optimizer_of, set_rate
from depthmup.training.placement import threads
from depthmup.training.schedules import factors_of

# Takes steps [start, stop); the number of steps taken in all, fewer than ``stop`` if it diverged.
_Advance = Callable[[int, int], int]


def trained(cell: Cell, at: Sequence[int]) -> Iterator[ResidualMLP]:
    """The cell's network after each number of steps in ``at``; fewer if training diverges.

    One module, whose weights change when the next snapshot is taken.
    """
    if not at or at[0] < 0 or at[-1] > cell.steps or any(b <= a for a, b in pairwise(at)):
        raise ValueError(
            f"Expected increasing numbers of steps from 0 to {cell.steps}; got {list(at)}."
        )
    with threads(1):
        model = build(cell)
        advance = _kernel(cell, model) if engine_for(cell).name == "native" else _loop(cell, model)
    done = 0
    for stop in at:
        with threads(1):
            done = advance(done, stop)
        if done < stop:
            return
        yield model


def _kernel(cell: Cell, model: ResidualMLP) -> _Advance:
    from depthmup.training.native import library
    from depthmup.training.native.member import Member

    kernel = library()
    state, classes = Member(cell, kernel.register_length), dataset(cell.data).classes
    limit = math.inf

    def advance(start: int, stop: int) -> int:
        nonlocal limit
        done = start
        if start == 0 < stop:
            done = state.advance(kernel, 0, 1, limit)
            limit = ceiling(float(state.losses[0]), classes)
        done = state.advance(kernel, done, stop, limit)
        weights = state.arrays["weights"][..., : cell.network.width]
        with torch.no_grad():
            for branch, matrices in zip(model.branches, weights, strict=True):
                for linear, values in zip(branch.matrices, matrices, strict=True):  # type: ignore[arg-type]
                    linear.weight.copy_(values)
        return done

    return advance


def _loop(cell: Cell, model: ResidualMLP) -> _Advance:
    optimizer = optimizer_of(cell, [p for p in model.parameters() if p.requires_grad])
    data, order, factors = dataset(cell.data), batches(cell), factors_of(cell)
    limit = math.inf

    def advance(start: int, stop: int) -> int:
        nonlocal limit
        for step in range(start, stop):
            chosen = order[step]
            loss = functional.cross_entropy(model(data.inputs[chosen]), data.labels[chosen])
            value = float(loss.detach())
            if not value <= limit:  # also true of NaN
                return step
            if step == 0:
                limit = ceiling(value, data.classes)
            optimizer.zero_grad()
            loss.backward()
            set_rate(optimizer, cell.optimizer.lr * factors[step])
            optimizer.step()
        optimizer.zero_grad()
        return stop

    return advance
