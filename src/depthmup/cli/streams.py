"""Standard streams that outlast the shell's closing them, and a reader that goes away."""

import io
import os
import sys
from pathlib import Path


class Lasting(io.TextIOWrapper):
    """A stream whose reader may go away (``| head``): what it would write is dropped.

    The command goes on, so that its runs are stored and its files are written.
    """

    unread = False

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        self.unread = True
        # What is buffered goes there, too; or Python would fail once more at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def open_streams() -> None:
    """Open what the shell has closed (``>&-``), and let both streams outlast their readers."""
    # A store's file would take the number of a closed stream.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif type(stream) is io.TextIOWrapper:
            setattr(sys, name, lasting(stream))


def lasting(stream: io.TextIOWrapper) -> Lasting:
    """The same stream, which outlasts its reader."""
    encoding, errors, at_lines = stream.encoding, stream.errors, stream.line_buffering
    return Lasting(stream.detach(), encoding=encoding, errors=errors, line_buffering=at_lines)


def flushed_unread() -> bool:
    """Whether the reader of standard output had gone before all was written."""
    sys.stdout.flush()
    return isinstance(sys.stdout, Lasting) and sys.stdout.unread
