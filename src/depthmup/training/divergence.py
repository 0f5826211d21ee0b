"""When a run is stopped before its last step."""

import math
from array import array

from depthmup.records import Cell, Record, Status

EXPLODED = 1e3
"""A run counts as diverged above this many times its initial loss, or that of a uniform guess if it
is larger. That no run would come back from there is an assumption."""

ABSURD = 100.0
"""A network has failed before training at this many times the loss of a uniform guess."""


def ceiling(initial_loss: float, classes: int) -> float:
    """The loss above which a run is stopped; -inf where training need not start.

    A uniform guess over the classes has loss log(classes): without it, a network that happens to
    start at a tiny loss would be stopped by an ordinary fluctuation.

    Example:
        >>> ceiling(2.7e3, classes=10), round(ceiling(1.0, classes=10))
        (-inf, 2303)
    """
    guess_loss = math.log(classes)
    if not initial_loss <= ABSURD * guess_loss:  # also true of NaN
        return -math.inf
    return EXPLODED * max(initial_loss, guess_loss)


def record_of(cell: Cell, losses: "array[float]", above: float | None) -> Record[Cell]:
    """The record of a run; one with a loss ``above`` its ceiling has failed if it is the first."""
    if above is None:
        return Record(cell=cell, status=Status.FINISHED, losses=losses)
    if losses:
        return Record(cell=cell, status=Status.DIVERGED, losses=losses)
    return Record(cell=cell, status=Status.FAILED, losses=array("f", [above]))
