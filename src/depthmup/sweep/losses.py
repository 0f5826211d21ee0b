"""From records to losses: means over a window of training, the points of curves."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from depthmup.records import Record
from depthmup.statistics.intervals import Array
from depthmup.sweep.store import Store

Points = Iterable[Iterable[Iterable[Any]]]
"""Runs by size, learning rate and seed."""


def stored_losses(points: Sequence[Sequence[Sequence[Any]]], store: Store, window: slice) -> Array:
    """``mean_losses`` of the runs that a store holds.

    Args:
        points: runs by size, learning rate and seed.
        store: which holds them.
        window: of steps.

    Raises:
        StoreError: some are missing.
    """
    runs = (run for of_rates in points for of_seeds in of_rates for run in of_seeds)
    return mean_losses(points, store.records(runs), window)


def mean_losses(points: Points, records: Mapping[Any, Record[Any]], window: slice) -> Array:
    """Mean losses over the steps of a window, (sizes, learning rates, seeds).

    Infinite where a run diverged before the window's end.

    Args:
        points: runs by size, learning rate and seed.
        records: of these runs.
        window: of steps.
    """
    return np.array(
        [
            [
                [records[run].mean_loss(window.start, window.stop) for run in of_seeds]
                for of_seeds in of_rates
            ]
            for of_rates in points
        ]
    )


def early_window(steps: int, window: int) -> slice | None:
    """The window that ends in the middle of training, or None if training is too short for it.

    Example:
        >>> early_window(300, 60), early_window(100, 60)
        (slice(90, 150, None), None)
    """
    stop = steps // 2
    return slice(stop - window, stop) if stop >= window else None
