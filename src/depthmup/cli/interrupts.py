"""What Ctrl-C and SIGTERM do to a command: finished runs are stored, drafts removed, workers gone.

Schedulers of clusters send SIGTERM before they take a machine away.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143
"""Exit statuses after Ctrl-C and after SIGTERM, as shells count them: 128 and the signal."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def status_of(interrupt: KeyboardInterrupt) -> int:
    """The exit status of a command that was interrupted."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, SIGTERM raises ``Terminated``, and no interrupt is lost.

    A handler of SIGTERM that somebody has set stays. Python ignores what is raised in callbacks of
    its own, as there are many while modules are loaded: an interrupt that came there comes again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    replaced = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if replaced:
        signal.signal(signal.SIGTERM, _terminate)
    before, sys.unraisablehook = sys.unraisablehook, _again
    try:
        yield
    finally:
        sys.unraisablehook = before
        if replaced:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _again(ignored: "sys.UnraisableHookArgs") -> None:
    """Send an ignored interrupt again, once the callback that it fell into has ended."""
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    number = signal.SIGTERM if issubclass(ignored.exc_type, Terminated) else signal.SIGINT
    timer = threading.Timer(0.05, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
