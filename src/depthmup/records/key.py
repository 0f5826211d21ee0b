"""Keys: the names under which results are stored and looked up."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical(description: Mapping[str, Any]) -> str:
    """The one JSON text of a description: the same for equal ones on every machine."""
    return _CANONICAL.encode(description)


# Made once: json.dumps would make an encoder for every key.
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(text: str) -> str:
    """A stable hash of a canonical description."""
    # 128 bits: two of 10^9 results share a key with a probability of 10^-21.
    return hashlib.sha256(text.encode()).hexdigest()[:32]
