"""Run a command, and end all that it has started once it ends or nobody waits for it.

A program of its own, which loads the standard library alone: ``python -I -S watch.py COMMAND``.
Its input is a pipe that nobody writes to. The pipe ends when the process that holds its other end
closes it or dies, however it dies; then everything that the command has started is killed.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Of Linux's prctl: die with the parent; become the parent of grandchildren left alone."""

NOT_FOUND, NOT_EXECUTABLE, STOPPED = 127, 126, 124
"""Exit statuses, as shells have them."""

PATIENCE = 10.0
"""Seconds in which killed processes end."""


def main(words: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    if control:
        control(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def with_parent() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if control:
            control(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    try:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=with_parent
        )
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(error, file=sys.stderr)
        return NOT_EXECUTABLE

    def end(*_: object) -> None:
        clear(child)
        os._exit(STOPPED)

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=lambda: end(os.read(0, 1)), daemon=True).start()
    status = child.wait()
    clear(child)
    return status if status >= 0 else 128 - status


def clear(child: "subprocess.Popen[bytes]") -> None:
    """Kill the command's group, and whatever has left the group."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        left = children()
        for pid in left:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        if not left:
            return


def children() -> list[int]:
    """Processes whose parent is this one; none where the system has no /proc."""
    own, found = os.getpid(), []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                _, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:  # it has ended
            continue
        if int(parent) == own:
            found.append(int(name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
