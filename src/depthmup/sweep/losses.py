"""From records to losses: means over a window of training, the points of curves."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from depthmup.records import Record
from depthmup.statistics.intervals import Array
from depthmup.sweep.store import Store


def stored_losses(points: Sequence[Sequence[Sequence[Any]]], store: Store, window: slice) -> Array:
    """Mean losses over the steps of a window, (sizes, learning rates, seeds).

    Infinite where a run diverged before the window's end.
    """
    runs = [run for of_rates in points for of_seeds in of_rates for run in of_seeds]
    records = store.records(runs)
    return np.array(
        [
            [
                [records[run].mean_loss(window.start, window.stop) for run in seeds]
                for seeds in rates
            ]
            for rates in points
        ]
    )


def loss_over(run: Any, record: Record[Any], window: slice, *, steps: int) -> float:
    """The mean loss of a run over the window that is ``window`` in a run of so many steps."""
    own = stretched(window, run.steps / steps)
    return record.mean_loss(own.start, own.stop)


def positive_loss_over(run: Any, record: Record[Any], window: slice, *, steps: int) -> float:
    """``loss_over``, of which curves are compared by the logarithm."""
    loss = loss_over(run, record, window, steps=steps)
    if not loss > 0:
        raise ValueError(
            f"Expected positive losses; over steps {window.start} to {window.stop} the mean of a "
            f"run is {loss:.4g}. Curves are compared by the logarithm of the loss: train fewer "
            "steps, or on data that the model cannot fit exactly."
        )
    return loss


def stretched(window: slice, by: float) -> slice:
    """A window of a run that takes ``by`` times the steps, of at least one step.

    Example:
        >>> stretched(slice(160, 200), 2.5), stretched(slice(160, 200), 0.01)
        (slice(400, 500, None), slice(1, 2, None))
    """
    stop = max(1, round(window.stop * by))
    return slice(min(round(window.start * by), stop - 1), stop)


def early_window(steps: int, window: int) -> slice | None:
    """The window that ends in the middle of training, or None if training is too short for it.

    Example:
        >>> early_window(300, 60), early_window(100, 60)
        (slice(90, 150, None), None)
    """
    stop = steps // 2
    return slice(stop - window, stop) if stop >= window else None
