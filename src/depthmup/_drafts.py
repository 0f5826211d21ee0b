"""Writing files in one step: no reader sees half of one, or of a result that has several."""

import errno
import os
import secrets
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, final

PREFIX = ".depthmup-"
"""Of a draft's name; what follows is random."""


@final
class Files:
    """The files of one result: drafts beside their places, which they take together at the end."""

    def __init__(self) -> None:
        self._drafts: dict[Path, Path] = {}
        self._removed: list[Path] = []
        self._open: list[int] = []

    def draft(self, path: Path) -> Path:
        """A new file beside ``path``, to be written; one draft each. It keeps the suffix."""
        if path not in self._drafts:
            with naming(path):
                self._drafts[path], descriptor = new_draft(path)
            self._open.append(descriptor)
        return self._drafts[path]

    def write(self, path: Path, content: str | bytes) -> None:
        """Draft a file. What UTF-8 does not have, such as bytes of a path, is escaped."""
        raw = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
        with naming(path):
            self.draft(path).write_bytes(raw)

    def remove(self, path: Path) -> None:
        """Remove a file of an earlier result, with the first of this one."""
        self._removed.append(path)

    def take_place(self) -> None:
        """Replace all files.

        What belongs to the first is removed before it: whenever this is cut short, by a kill or by
        a power cut, no file of one result lies beside those of another.
        """
        first, *others = self._drafts
        for path in self._drafts:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        with ExitStack() as stack:
            stack.enter_context(_interrupts_wait())
            for folder in sorted({path.parent for path in self._drafts}):
                stack.enter_context(_locked(folder))
            for path in (*self._removed, *others):
                path.unlink(missing_ok=True)
            for path in (first, *others):
                with naming(path):
                    self._drafts.pop(path).replace(path)

    def close(self) -> None:
        """Remove the drafts that took no place."""
        for draft in self._drafts.values():
            draft.unlink(missing_ok=True)
        for descriptor in self._open:
            with suppress(OSError):  # closed by code that closes what it has not opened
                os.close(descriptor)


@contextmanager
def together(files: Files | None = None) -> Iterator[Files]:
    """The files of one result, written together: all take their places at the end, or none does.

    Args:
        files: of a larger result, with which they take their places instead.

    Returns:
        The files, as a context, to which drafts are added.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with together() as files:
        ...         files.write(Path(folder, "data.json"), "[]")
        ...         files.write(Path(folder, "page.html"), "<p>none</p>")
        ...     sorted(os.listdir(folder))
        ['data.json', 'page.html']
    """
    if files is not None:
        yield files
        return
    files = Files()
    try:
        yield files
        if files._drafts:
            files.take_place()
    except OSError as error:
        drafted = {str(draft): path for path, draft in files._drafts.items()}
        if str(error.filename) in drafted:
            error.filename = str(drafted[str(error.filename)])
        raise
    finally:
        files.close()


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A draft of one file, which replaces it at the end, or is removed on an error."""
    with together() as files, naming(path):
        yield files.draft(path)


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step. What UTF-8 does not have, such as bytes of a path, is escaped.

    Args:
        path: of the file.
        text: its new content.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_text(Path(folder, "note.txt"), "finished")
        ...     Path(folder, "note.txt").read_text()
        'finished'
    """
    with together() as files:
        files.write(path, text)


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file in one step.

    Args:
        path: of the file.
        content: its new content.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_bytes(Path(folder, "chart.png"), b"PNG")
        ...     Path(folder, "chart.png").read_bytes()
        b'PNG'
    """
    with together() as files:
        files.write(path, content)


def new_draft(path: Path) -> tuple[Path, int]:
    """A new empty file beside ``path``, and its descriptor, whose lock says that it is written.

    Its name is random and it is opened exclusively: where others can write in the folder too, a
    link that they have planted under its name is not followed. Drafts that no process writes any
    more, as it was killed, are removed.
    """
    _remove_left(path.parent)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    while True:
        draft = path.with_name(f"{PREFIX}{secrets.token_hex(8)}{path.suffix}")
        descriptor = os.open(draft, flags, 0o666)
        _lock(descriptor, wait=False)
        if os.fstat(descriptor).st_nlink:
            return draft, descriptor
        os.close(descriptor)  # another process took it for one that was left, before its lock


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of a file's draft name the file: its own name is random, and nobody has seen it."""
    try:
        yield
    except OSError as error:
        given = error.filename
        if given is None or Path(os.fsdecode(given)).name.startswith(PREFIX):
            error.filename, error.filename2 = str(path), None
        raise


def _remove_left(folder: Path) -> None:
    """Remove the drafts of processes that are gone; their locks went with them."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    for draft in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):  # not ours to read, a link, or removed meanwhile
            descriptor = os.open(draft, flags)
            try:
                if _lock(descriptor, wait=False):
                    draft.unlink()
            finally:
                os.close(descriptor)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Inside, no other process that takes this lock replaces files of the folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # a system whose folders are no files
        yield
        return
    try:
        _lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Lock a file until it is closed; whether that is done. Not every system or disk has locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True


@contextmanager
def _interrupts_wait(
    numbers: Iterable[int] = (signal.SIGINT, signal.SIGTERM),
) -> Iterator[None]:
    """Ctrl-C and SIGTERM that come inside act at the end. Only the main thread hears them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    held = [number for number, handler in before.items() if handler is not None]
    for number in held:
        signal.signal(number, lambda given, frame: came.append(given))
    try:
        yield
    finally:
        for number in held:
            signal.signal(number, before[number])
        for number in came:
            signal.raise_signal(number)
