"""The user's cache folder, and what of it can be trusted."""

import os
import stat
from pathlib import Path


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/depthmup``, by default in ``~/.cache``; an error without a home folder."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "depthmup"
    return Path.home() / ".cache" / "depthmup"


def is_private(folder: Path) -> bool:
    """Whether a folder is the user's own, and nobody else can write in it or replace it.

    Rights that others have in a folder of the user's own are taken away.
    """
    if not hasattr(os, "geteuid"):  # another system, whose folders of a user are its own
        return True
    try:
        path = folder.resolve(strict=True)
        about = path.stat()
        if about.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(about.st_mode) & 0o077:
            path.chmod(0o700)
        # Others must not be able to move what is above: they cannot write there, or it is sticky.
        return all(_is_safe_above(parent.stat()) for parent in path.parents)
    except OSError:
        return False


def is_trusted(file: Path) -> bool:
    """Whether a file is a plain one of the user's own that nobody else can write."""
    about = file.lstat()
    if not hasattr(os, "geteuid"):
        return stat.S_ISREG(about.st_mode)
    return (
        stat.S_ISREG(about.st_mode)
        and about.st_uid == os.geteuid()
        and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _is_safe_above(about: os.stat_result) -> bool:
    if about.st_uid not in (0, os.geteuid()):
        return False
    if about.st_mode & stat.S_ISVTX:
        return True
    # Many systems give each user a group of their own, which may write by their umask.
    others = bool(about.st_mode & stat.S_IWOTH)
    group = bool(about.st_mode & stat.S_IWGRP) and about.st_gid not in (0, os.getegid())
    return not (others or group)
