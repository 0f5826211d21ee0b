"""What Ctrl-C and SIGTERM do to a command: finished runs are stored, drafts removed, workers gone.

Schedulers of clusters send SIGTERM before they take a machine away.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

INTERRUPTED, UNREAD, TERMINATED = 130, 141, 143
"""Exit statuses after Ctrl-C, a reader that went away (SIGPIPE) and SIGTERM, as shells count them:
128 and the signal.
"""


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def status_of(interrupt: KeyboardInterrupt) -> int:
    """The exit status of a command that was interrupted."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


def stopped(interrupt: KeyboardInterrupt, store: Path) -> int:
    """Say where the finished runs of an interrupted command are; its exit status."""
    print(
        f"\nStopped. Finished runs are in {store}; the same command continues from there.",
        file=sys.stderr,
    )
    return status_of(interrupt)


FRAGILE = ("numpy", "torch")
"""Modules whose compiled parts take an interrupt while they are loaded for a missing package."""

_LATER = 0.05
"""Seconds after which an interrupt that came at a bad moment comes again."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, SIGTERM raises ``Terminated``, and no interrupt is lost.

    A handler that somebody has set stays. Python ignores what is raised in callbacks of its own, as
    there are many while modules are loaded: an interrupt that came there comes again. One that
    comes while a module of ``FRAGILE`` is loaded waits for its end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual: dict[int, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    replaced = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
    for number in replaced:
        signal.signal(number, _interrupt)
    before, sys.unraisablehook = sys.unraisablehook, _again
    try:
        yield
    finally:
        sys.unraisablehook = before
        for number in replaced:
            signal.signal(number, usual[number])


def _interrupt(number: int, frame: FrameType | None) -> None:
    specs = (getattr(sys.modules.get(name), "__spec__", None) for name in FRAGILE)
    if any(getattr(spec, "_initializing", False) for spec in specs):
        _send_later(number)
    else:
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _again(ignored: "sys.UnraisableHookArgs") -> None:
    """Send an ignored interrupt again, once the callback that it fell into has ended."""
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    _send_later(signal.SIGTERM if issubclass(ignored.exc_type, Terminated) else signal.SIGINT)


def _send_later(number: int) -> None:
    timer = threading.Timer(_LATER, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
