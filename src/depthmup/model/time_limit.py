"""A time limit for a person's own code in this process."""

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def time_limit(seconds: float | None, what: str) -> Iterator[None]:
    """Stop what runs within after so many seconds; no limit where it is None.

    Python code, waiting and reading are stopped; a loop inside a library that is written in C ends
    by itself first. Outside of the main thread, and on systems without alarms, nothing is stopped:
    signals reach the main thread alone.

    Args:
        seconds: the limit, positive; None or infinity for none.
        what: what is stopped, for the message.

    Raises:
        TimeoutError: it took longer.

    Example:
        >>> with time_limit(60.0, "adding"):
        ...     1 + 1
        2
    """
    here = threading.current_thread() is threading.main_thread()
    if seconds is None or math.isinf(seconds) or not here or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(
            f"{what} was stopped when it had taken {seconds:g} s, the time limit of a run. Allow "
            "more by --trial-seconds, or find out where it hangs."
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
