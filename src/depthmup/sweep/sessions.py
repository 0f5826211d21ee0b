"""Sessions: what a store remembers of the work that was done on it."""

import time
from collections.abc import Mapping, Sequence
from typing import Any


def environment_of(sessions: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Where and when the last of some sessions worked, and how long all of them did."""
    last = sessions[-1]
    return {
        **last["environment"],
        "date": time.strftime("%Y-%m-%d", time.gmtime(last["started"])),
        "seconds, all sessions": round(sum(each["seconds"] for each in sessions), 1),
    }
