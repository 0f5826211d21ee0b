"""Whether an error is due to a custom model's code or to this package.

An error is attributed to the code of the last traceback frame outside libraries: a factory that
divides by zero inside torch is the factory's error; a refusal that this package raises when a
factory calls it is this package's.
"""

import dis
import traceback
from pathlib import Path
from types import FrameType, TracebackType

from depthmup.model.command import CommandError
from depthmup.model.source_files import PACKAGE, is_library

_RAISES = dis.opmap["RAISE_VARARGS"]

FOLDERS = {PACKAGE}
"""Of this project's code; in a clone its reproduction of the paper joins them when it is loaded."""


def own_trace(error: BaseException) -> str | None:
    """The traceback of an error in custom code, from that code on; None for other errors."""
    frames = _frames(error)
    owners = [_owner(frame.tb_frame) for frame in frames]
    if "own" not in owners:
        return None
    first = owners.index("own")
    last = len(owners) - 1 - owners[::-1].index("own")
    if "depthmup" in owners[last:] and _is_raised(frames[-1]):
        return None  # the custom code asked this package for something that it refused
    own_start = frames[first]
    return "".join(traceback.format_exception(type(error), error, own_start)).rstrip()


def error_report(error: BaseException) -> str:
    """The traceback of an error in a run, from custom code on; of a command its message."""
    if isinstance(error, CommandError):
        return str(error)
    return own_trace(error) or "".join(traceback.format_exception(error)).rstrip()


def is_refusal(error: BaseException) -> bool:
    """Whether this package raised an error deliberately, so that its message suffices."""
    frames = _frames(error)
    if not frames:
        return False
    return _owner(frames[-1].tb_frame) == "depthmup" and _is_raised(frames[-1])


def _frames(error: BaseException) -> list[TracebackType]:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _owner(frame: FrameType) -> str:
    """The owner of a frame's code: ``own`` (custom code), ``depthmup`` or ``library``."""
    path = Path(frame.f_code.co_filename)
    if any(p.is_relative_to(folder) for p in (path, path.resolve()) for folder in FOLDERS):
        return "depthmup"
    if not path.is_file() or is_library(str(frame.f_globals.get("__name__", "")), path):
        return "library"
    return "own"


def _is_raised(trace: TracebackType) -> bool:
    """Whether a frame ended with a ``raise`` statement, not in a function written in C."""
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISES
