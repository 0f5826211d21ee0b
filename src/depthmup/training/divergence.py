"""When a run is over before its last step."""

import math

from depthmup.records import Status

EXPLODED = 1e3
"""A loss this many times the initial one (or chance) will not come back."""

ABSURD = 100.0
"""An initial loss this many times chance leaves nothing to train."""


def ceiling(initial_loss: float, classes: int) -> float:
    """The loss above which a run counts as diverged."""
    return EXPLODED * max(initial_loss, math.log(classes))


def status_at_init(initial_loss: float, classes: int) -> Status | None:
    """``Status.FAILED`` if training need not start, else None.

    Example:
        >>> status_at_init(2.7e3, classes=10)
        <Status.FAILED: 'failed'>
    """
    guess_loss = math.log(classes)
    return None if initial_loss <= ABSURD * guess_loss else Status.FAILED
