"""The entrance of the command line: ready for interrupts before anything large is loaded."""

import atexit
import gc
import os
import sys
from collections.abc import Sequence

from depthmup.cli.interrupts import UNREAD, interruptible, status_of
from depthmup.cli.streams import flushed_unread, open_streams

GARBAGE = 100_000
"""New objects before garbage is looked for, for Python's 700: PyTorch makes 600,000 that stay."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb."""
    # One thread per process unless asked otherwise: two pools on the same cores crawl.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    gc.set_threshold(GARBAGE)
    if arguments is None:  # a process of its own, at whose end all would be looked through again
        atexit.register(gc.freeze)
        open_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with interruptible():
            # Loaded here, so that Ctrl-C in the tenths of a second that it takes is no traceback.
            from depthmup.cli.output import show_everywhere
            from depthmup.cli.verbs import run

            show_everywhere()
            status = run(words)
            return UNREAD if flushed_unread() and status == 0 else status
    except KeyboardInterrupt as interrupt:  # before a verb's own work
        return status_of(interrupt)
