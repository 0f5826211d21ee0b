"""Time limits for the code of a custom model before it trains: to load it, and to try it."""

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LOADING = 60.0
"""Seconds that loading may take whatever the limit of a run: PyTorch alone takes some."""


WHOSE = "the time limit of a run and a minute at least"


def loading_limit(trial_seconds: float | None) -> float:
    """Seconds for what comes before training: those of a run, and a minute at least."""
    return math.inf if trial_seconds is None else max(LOADING, trial_seconds)


@contextmanager
def time_limit(trial_seconds: float | None, what: str) -> Iterator[None]:
    """Interrupt the code inside after the ``loading_limit``; None or infinity is no limit.

    A loop inside a C library is interrupted only once it ends. Outside of the main thread, which
    alone receives signals, and on systems without alarms, there is no limit.
    """
    here = threading.current_thread() is threading.main_thread()
    seconds = loading_limit(trial_seconds)
    if math.isinf(seconds) or not here or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(
            f"{what} was stopped after {seconds:g} s, {WHOSE}. Allow more with --trial-seconds, or "
            "find out where it hangs."
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
