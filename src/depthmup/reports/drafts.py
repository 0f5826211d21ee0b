"""Writing files in one step: a reader never sees half of one, and a failure leaves nothing."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A new empty file beside ``path``, which replaces it at the end, or is removed on an error.

    Its name is random and it is opened exclusively: where others can write in the folder too, a
    link that they have planted under its name is not followed. It keeps the suffix.
    """
    draft = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    try:
        os.close(os.open(draft, flags, 0o666))
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        yield draft
        draft.replace(path)
    except BaseException as error:  # a full disk, Ctrl-C
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


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
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


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
    with draft_of(path) as draft:
        draft.write_bytes(content)
