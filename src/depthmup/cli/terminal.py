"""Progress: a live bar on a terminal, plain lines elsewhere, never on stdout."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from depthmup.notebook import runs_done, time_left

if TYPE_CHECKING:
    from depthmup.sweep import Progress

# In a log file: often enough to see that it goes on, seldom enough for a sweep of hours.
SECONDS_BETWEEN_LINES = 10.0


class Display:
    """A sweep's progress and remaining time on stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._quiet = quiet
        self._live = console.is_terminal and not quiet
        self._spoke = time.monotonic()
        self._bar = Bar(
            TextColumn("training"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not self._live,
        )
        self._task = self._bar.add_task("runs", total=None, left="starting")

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self._live:
            self._bar.console.print(text)
        elif not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def tell(self, progress: "Progress") -> None:
        """Update the bar, or print a line every ten seconds; called many times a second."""
        left = time_left(progress)
        if self._live:
            self._bar.update(self._task, completed=progress.done, total=progress.cells, left=left)
        elif not self._quiet and time.monotonic() - self._spoke > SECONDS_BETWEEN_LINES:
            self._spoke = time.monotonic()
            comma = "" if left.startswith("(") else ","  # no time is known, the reason stands alone
            print(f"{runs_done(progress)}{comma} {left}", file=sys.stderr, flush=True)


class Done:
    """Progress in networks or layers: a line on stderr every few seconds."""

    def __init__(self, what: str = "networks") -> None:
        self._what = what
        self._started = self._spoke = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        live = sys.stderr.isatty()
        if done == total or now - self._spoke > (0.2 if live else 10.0):
            self._spoke = now
            text = f"{done} of {total} {self._what}, {now - self._started:.0f} s"
            end = "\r" if live and done < total else "\n"
            print(text, end=end, file=sys.stderr, flush=True)
