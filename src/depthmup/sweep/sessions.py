"""Sessions: what a store remembers of each command that worked on it.

A session is a text in the store that another version or another program may have written. So it is
checked when read: sessions from which no page could be made are left out, with the reason.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Any

from depthmup.records.printable import printable_values
from depthmup.sweep.design import LARGEST_SIZE
from depthmup.sweep.sweep import Sweep

DEEPEST = 32
"""Most levels of a session's JSON; this package writes 4. Deep nesting would exhaust the stack."""

SWEEPS = 50
"""Most sweeps whose sessions are read, the last ones: of each, runs are made."""

RUNS_TRIED = 100
"""Of one sweep: a text of kilobytes may describe millions."""

# What a page is made from, with its kind; numbers of both kinds count as float.
_NEEDED: dict[str, dict[str, type]] = {
    "sweep": {"sweep": dict, "tolerance": float, "environment": dict, "started": float},
    "claims": {
        "claims": list,
        "scale": str,
        "data": list,
        "command": list,
        "environment": dict,
        "started": float,
    },
}


def read_session(
    about: Any, seconds: Any, checked: dict[str, str] | None = None
) -> tuple[dict[str, Any], str]:
    """A session from its columns, and what is wrong with it, if anything; ``checked`` by sweep."""
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
    return session, _problem(session, {} if checked is None else checked)


def _problem(session: Mapping[str, Any], checked: dict[str, str]) -> str:
    kind = next((kind for kind in ("claims", "sweep") if kind in session), "")
    for name, expected in _NEEDED.get(kind, {}).items():
        value = session.get(name)
        right = _is_number(value) if expected is float else isinstance(value, expected)
        if not right:
            return f"its {name} is not what this version writes"
    if kind == "claims":
        texts = [*session["claims"], *session["data"], *session["command"]]
        return "" if all(isinstance(text, str) for text in texts) else "its names are no texts"
    if kind != "sweep":
        return ""
    if not isinstance(session.get("command", []), list):
        return "its command is no list of words"
    if not _is_target(session.get("target")):
        return "its target is no size"
    text = json.dumps(session["sweep"])
    if text not in checked:
        if len(checked) == SWEEPS:
            return f"{SWEEPS} other sweeps were started since"
        checked[text] = _problem_of_sweep(session["sweep"])
    return checked[text]


def _problem_of_sweep(described: Any) -> str:
    """Make a run of every variant at the ends of sizes and rates: only these check settings."""
    try:
        sweep = Sweep.from_dict(described)
        design = sweep.design
        if design.auto is not None and design.auto.start is None:
            raise ValueError("its learning rates are found from a start, and it has none")
        rates, sizes = design.log2_lrs or (0.0,), design.all_sizes
        corners = product(design.variants, {0, len(sizes) - 1}, {rates[0], rates[-1]})
        for variant, size, log2_lr in islice(corners, RUNS_TRIED):
            run = sweep.run(variant, sizes[size], log2_lr, seed=0)
            hash(run)
            run.to_json()
    except Exception as error:  # whatever another version, or another program, may have written
        first = (str(error).splitlines() or [""])[0][:200]
        return f"its sweep is not one of this version ({type(error).__name__}: {first})"
    return ""


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # not for NaN, nor for whole numbers beyond


def _is_target(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and all(
        isinstance(n, int) and n <= LARGEST_SIZE for n in value.values()
    )


def _depth(value: Any) -> int:
    """Levels of lists and objects, counted without recursion: they may be arbitrarily many."""
    level, deepest = [value], 0
    while level and deepest <= DEEPEST:
        inner: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                inner += node.values()
            elif isinstance(node, list):
                inner += node
        if not inner and not any(isinstance(node, dict | list) for node in level):
            break
        level, deepest = inner, deepest + 1
    return deepest


def engines_of(sessions: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The engines that trained, each once, in the order in which they first did."""
    named = [session["environment"].get("engine") for session in sessions]
    return tuple(dict.fromkeys(str(engine) for engine in named if engine is not None))


def environment_of(sessions: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """The environment and date of the last session, and the time and engines of all of them."""
    # Engines agree to rounding but not to the bit, so all that trained are named.
    last, engines = sessions[-1], engines_of(sessions)
    several = {"engine": "; and ".join(engines)} if len(engines) > 1 else {}
    return {
        **last["environment"],
        **several,
        "date": time.strftime("%Y-%m-%d", time.gmtime(last["started"])),
        "seconds, all sessions": round(sum(session["seconds"] for session in sessions), 1),
    }
