"""A time limit for the code of a custom model in this process."""

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def time_limit(seconds: float | None, what: str) -> Iterator[None]:
    """Interrupt the code inside after this many seconds; None or infinity is no limit.

    A loop inside a C library is interrupted only once it ends. Outside of the main thread, which
    alone receives signals, and on systems without alarms, there is no limit.
    """
    here = threading.current_thread() is threading.main_thread()
    if seconds is None or math.isinf(seconds) or not here or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(
            f"{what} was stopped after {seconds:g} s, the time limit of a run. Allow more with "
            "--trial-seconds, or find out where it hangs."
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
