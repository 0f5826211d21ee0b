"""When a run is stopped before its last step."""

import math

from depthmup.records import Status

EXPLODED = 1e3
"""A run counts as diverged above this many times its initial loss, or that of a uniform guess if it
is larger. That no run would come back from there is an assumption."""

ABSURD = 100.0
"""A network has failed before training at this many times the loss of a uniform guess."""


def ceiling(initial_loss: float, classes: int) -> float:
    """The loss above which a run counts as diverged.

    A uniform guess over the classes has loss log(classes): without it, a network that happens to
    start at a tiny loss would be stopped by an ordinary fluctuation.
    """
    return EXPLODED * max(initial_loss, math.log(classes))


def status_at_init(initial_loss: float, classes: int) -> Status | None:
    """``Status.FAILED`` if training need not start, else None.

    Example:
        >>> status_at_init(2.7e3, classes=10)
        <Status.FAILED: 'failed'>
    """
    guess_loss = math.log(classes)
    return None if initial_loss <= ABSURD * guess_loss else Status.FAILED
