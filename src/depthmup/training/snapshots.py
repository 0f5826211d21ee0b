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
from depthmup.training.divergence import ceiling, status_at_init
from depthmup.training.engine import engine_for
from depthmup.training.ensemble import one_thread
from depthmup.training.loop import optimizer_of, set_rate
from depthmup.training.schedules import factors_of

# Takes steps [start, stop); the number of steps taken in all, fewer than ``stop`` if it diverged.
_Advance = Callable[[int, int], int]


def trained(cell: Cell, at: Sequence[int]) -> Iterator[ResidualMLP]:
    """The cell's network after each number of steps in ``at``; 0 is its initialization.

    One module, whose weights change when the next snapshot is taken. There are fewer snapshots if
    training diverges. The compiled kernel trains where it can, the plain loop elsewhere.
    """
    if not at or at[0] < 0 or at[-1] > cell.steps or any(b <= a for a, b in pairwise(at)):
        raise ValueError(
            f"Expected increasing numbers of steps from 0 to {cell.steps}; got {list(at)}."
        )
    with one_thread():
        model = build(cell)
        advance = _kernel(cell, model) if engine_for(cell).name == "native" else _loop(cell, model)
    done = 0
    for stop in at:
        with one_thread():
            done = advance(done, stop)
        if done < stop:
            return
        yield model


def _kernel(cell: Cell, model: ResidualMLP) -> _Advance:
    from depthmup.training.native import library
    from depthmup.training.native.member import member

    kernel = library()
    state, classes = member(cell, kernel.register_length), dataset(cell.data).classes
    limit = math.inf

    def advance(start: int, stop: int) -> int:
        nonlocal limit
        done = start
        if start == 0 < stop:
            done = state.advance(kernel, 0, 1, limit)
            limit = _limit(float(state.losses[0]), classes)
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
                limit = _limit(value, data.classes)
            optimizer.zero_grad()
            loss.backward()
            set_rate(optimizer, cell.optimizer.lr * factors[step])
            optimizer.step()
        optimizer.zero_grad()
        return stop

    return advance


def _limit(first: float, classes: int) -> float:
    """The loss beyond which training ends: -inf, so at once, if the first loss counts as failed."""
    return -math.inf if status_at_init(first, classes) else ceiling(first, classes)
