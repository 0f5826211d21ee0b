"""Progress in a notebook: one line that changes in place, where a terminal would have a bar."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from depthmup.reports.sentences import duration

if TYPE_CHECKING:
    from depthmup.sweep import Progress

SECONDS_BETWEEN_UPDATES = 0.5
"""Every update is a message to the browser, and progress is told many times a second."""

EARLY = 0.1
"""Fraction of the work before which the remaining time is not predicted: workers start in it."""

WIDE = 4.0
"""Most time over least that is predicted: half way between, it is known within a factor of two."""


def time_left(progress: "Progress") -> str:
    """The remaining time in words; of a search that of its round, as its end is not known.

    Example:
        >>> from depthmup.sweep import Progress
        >>> time_left(Progress(done=3, cells=12, fraction=0.25, elapsed=20.0))
        '1 min 0 s left'
        >>> time_left(Progress(done=9, cells=12, fraction=0.5, elapsed=20.0, why="depth 16: seeds"))
        '20 s left in this round (depth 16: seeds)'
    """
    by_work, by_run = progress.remaining, progress.remaining_by_run
    least, most = min(by_work, by_run), max(by_work, by_run)
    # Before the first runs are done, little is known of the others.
    if progress.fraction <= EARLY or most > WIDE * least:
        return f"({progress.why})" if progress.why else "time left: not known yet"
    low, high = duration(least), duration(most)
    span = low if low == high else f"{low} to {high}"
    return f"{span} left in this round ({progress.why})" if progress.why else f"{span} left"


def runs_done(progress: "Progress") -> str:
    """The runs that are done, out of how many.

    Example:
        >>> from depthmup.sweep import Progress
        >>> runs_done(Progress(done=99, cells=101, fraction=0.9, elapsed=9.0))
        '99 of 101 runs, 90% of the work'
    """
    share = "" if progress.why else f", {progress.fraction:.0%} of the work"
    return f"{progress.done} of {progress.cells} runs{share}"


@contextmanager
def told(progress: Callable[["Progress"], None] | None) -> Iterator[Callable[["Progress"], None]]:
    """What takes a sweep's progress: the caller's function, a notebook's line, or nothing."""
    if progress is not None or not in_notebook():
        yield progress or (lambda progress: None)
        return
    line = _Line()
    try:
        yield line.tell
    except BaseException:
        line.end("stopped")
        raise
    line.end("done")


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this, which shows what ``display`` is given."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class _Line:
    """A line of output of the current cell; a display handle lets it be replaced."""

    def __init__(self) -> None:
        display = import_module("IPython.display").display

        self._started = self._spoke = time.monotonic()
        self._runs = 0
        self._handle = display(_text("training: starting"), raw=True, display_id=True)

    def tell(self, progress: "Progress") -> None:
        self._runs = progress.done
        if time.monotonic() - self._spoke > SECONDS_BETWEEN_UPDATES:
            self._spoke = time.monotonic()
            self._show(f"training: {runs_done(progress)}, {time_left(progress)}")

    def end(self, how: str) -> None:
        runs = "1 run" if self._runs == 1 else f"{self._runs} runs"
        self._show(f"training: {how}, {runs} in {duration(time.monotonic() - self._started)}")

    def _show(self, line: str) -> None:
        self._handle.update(_text(line), raw=True)


def _text(line: str) -> dict[str, str]:
    return {"text/plain": line}
