"""Texts that are slow to make, kept in the user's cache folder where nobody else can put them."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from depthmup._drafts import draft_of
from depthmup.records.cache import cache_folder, is_private, is_trusted


def kept_text(name: str, make: Callable[[], str]) -> str:
    """A text that is made once for a user; each time where the cache folder is not theirs alone.

    Its file is named by its content, as a bit may flip, and moved into place in one step.
    """
    with suppress(OSError, RuntimeError, ValueError):
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(folder):
            for file in sorted(folder.glob(f"{name}-*.txt")):
                content = file.read_bytes() if is_trusted(file) else b""
                if content and file == _file(folder, name, content):
                    return content.decode()
            content = make().encode()
            with suppress(OSError), draft_of(_file(folder, name, content)) as draft:
                draft.chmod(0o600)  # some umasks let a group write
                draft.write_bytes(content)
            return content.decode()
    return make()


def _file(folder: Path, name: str, content: bytes) -> Path:
    return folder / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.txt"
