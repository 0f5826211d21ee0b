"""Whose error it is: the person's own code, or this package.

An error belongs to the code whose frames the traceback goes through last: a factory that divides
by zero inside torch is the factory's, a refusal that this package raises when a factory calls it is
this package's.
"""

import dis
import traceback
from pathlib import Path
from types import FrameType, TracebackType

from depthmup.model.source_files import PACKAGE, is_library

_RAISES = dis.opmap["RAISE_VARARGS"]


def own_trace(error: BaseException) -> str | None:
    """The traceback of an error from the person's own code on; None if it is not theirs.

    What this package did before it called their code is left out.
    """
    frames = _frames(error)
    owners = [_owner(frame.tb_frame) for frame in frames]
    if "own" not in owners:
        return None
    first = owners.index("own")
    last = len(owners) - 1 - owners[::-1].index("own")
    if "depthmup" in owners[last:] and _is_raised(frames[-1]):
        return None  # their code asked this package for something that it refused
    own_start = frames[first]
    return "".join(traceback.format_exception(type(error), error, own_start)).rstrip()


def told(error: BaseException) -> str:
    """What is reported of an error in a run: the person's own part of the traceback, or all."""
    return own_trace(error) or "".join(traceback.format_exception(error)).rstrip()


def is_refusal(error: BaseException) -> bool:
    """Whether this package itself raised an error by a ``raise``, so that its text says it all."""
    frames = _frames(error)
    if not frames or _owner(frames[-1].tb_frame) != "depthmup":
        return False
    return _is_raised(frames[-1])


def _frames(error: BaseException) -> list[TracebackType]:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _owner(frame: FrameType) -> str:
    """Whose a frame is: ``own``, ``depthmup`` or ``library``."""
    path = Path(frame.f_code.co_filename)
    if path.is_relative_to(PACKAGE) or path.resolve().is_relative_to(PACKAGE):
        return "depthmup"
    if not path.is_file() or is_library(str(frame.f_globals.get("__name__", "")), path):
        return "library"
    return "own"


def _is_raised(trace: TracebackType) -> bool:
    """Whether a frame ended by a ``raise`` of its own, not in a function written in C."""
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISES
