"""Sessions: what a store remembers of the work that was done on it.

A session is a text in the store, which another version may have written, or a program that is none
of ours. So it is read with care: what a page could not be made from is left out, and says why.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from depthmup.records.printable import printable_values
from depthmup.sweep.grid import Grid
from depthmup.sweep.trials import TrialGrid

DEEPEST = 32
"""Levels of a session's JSON; the deepest that is written has 4."""

# What a page is made from, with its kind; numbers of both kinds count as float.
_MEASURED = {"grid": dict, "tolerance": float, "environment": dict, "started": float}
_NEEDED: dict[str, dict[str, type]] = {
    "networks": {**_MEASURED, "command": list},
    "trials": {**_MEASURED, "title": str},
    "claims": {
        "claims": list,
        "scale": str,
        "data": list,
        "command": list,
        "environment": dict,
        "started": float,
    },
}


def read_session(about: Any, seconds: Any) -> tuple[dict[str, Any], str]:
    """A session from its columns, and what is wrong with it: nothing where the text is empty."""
    try:
        session = json.loads(about)
    except (TypeError, ValueError, RecursionError) as error:
        return {}, f"it cannot be read ({type(error).__name__})"
    if not isinstance(session, dict):
        return {}, "it is no list of named values"
    if _depth(session) > DEEPEST:
        return {}, f"it is nested deeper than {DEEPEST} levels"
    if not _is_number(seconds):
        return {}, "it has no time"
    session = {**printable_values(session), "seconds": seconds}
    return session, _problem(session)


def _problem(session: Mapping[str, Any]) -> str:
    kind = _kind(session)
    for name, expected in _NEEDED.get(kind, {}).items():
        value = session.get(name)
        right = _is_number(value) if expected is float else isinstance(value, expected)
        if not right:
            return f"its {name} is not what this version writes"
    if kind == "claims":
        texts = [*session["claims"], *session["data"], *session["command"]]
        return "" if all(isinstance(text, str) for text in texts) else "its names are no texts"
    if kind == "other":
        return ""
    if "target" in session and not _is_target(session["target"]):
        return "its target is no size"
    try:
        (TrialGrid if kind == "trials" else Grid).from_dict(session["grid"])
    except Exception as error:  # whatever another version, or another program, may have written
        first = (str(error).splitlines() or [""])[0][:200]
        return f"its grid is not one of this version ({type(error).__name__}: {first})"
    return ""


def _kind(session: Mapping[str, Any]) -> str:
    if "claims" in session:
        return "claims"
    if "grid" not in session:
        return "other"
    return "trials" if session.get("kind") == "trials" else "networks"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_target(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and len(value) == 2 and all(isinstance(n, int) for n in value)


def _depth(value: Any) -> int:
    """Levels of lists and objects; counted without recursion, as the text may be anything."""
    level, deepest = [value], 0
    while level and deepest <= DEEPEST:
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner and not any(isinstance(each, dict | list) for each in level):
            break
        level, deepest = inner, deepest + 1
    return deepest


def environment_of(sessions: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Where and when the last of some sessions worked, and how long all of them did.

    Engines agree to rounding and not to the bit, so where several of them trained, all are named.
    """
    last = sessions[-1]
    engines = dict.fromkeys(
        str(each["environment"]["engine"]) for each in sessions if "engine" in each["environment"]
    )
    several = {"engine": "; and ".join(engines)} if len(engines) > 1 else {}
    return {
        **last["environment"],
        **several,
        "date": time.strftime("%Y-%m-%d", time.gmtime(last["started"])),
        "seconds, all sessions": round(sum(each["seconds"] for each in sessions), 1),
    }
