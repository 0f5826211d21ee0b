"""Names of runs that hold settings, as columns by a pattern: ``w{width}_lr{lr}_*``."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from depthmup.records.printable import printable

if TYPE_CHECKING:
    import pandas as pd

NAME = re.compile(r"\{(\w+)\}")
"""A name in braces."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[kKmMbB](?![A-Za-z]))?")
_LETTERS = "abcdefghij"


_METADATA = re.compile(
    r"\d{4}-\d\d?-\d\d?([T _]\d\d?[:h_-]\d\d.*)?|\d\d?:\d\d(:\d\d.*)?"  # a time
    r"|\d{1,3}(\.\d{1,3}){3}(:\d+)?|[\da-f]*(:[\da-f]*){4,}",  # an address
    re.IGNORECASE,
)
"""Values that are a time or a network's address. A path, a link or a digest may be a data set or
code: where several runs share one, it is a setting."""


def is_metadata(texts: Iterable[str]) -> bool:
    """Whether all texts are times or addresses.

    Example:
        >>> is_metadata(["2026-01-31 10:00", "2026-02-01"])
        True
    """
    return all(map(_METADATA.fullmatch, texts))


def fitting(pattern: str) -> re.Pattern[str]:
    """What fits a pattern of names in braces and stars; none of them holds a slash.

    Example:
        >>> fitting("w{width}_lr{lr}_*").fullmatch("w64_lr1e-3_s0").groupdict()
        {'width': '64', 'lr': '1e-3'}
    """
    parts, seen = [], set[str]()
    for part in re.split(r"(\{\w+\}|\*)", pattern):
        if name := NAME.fullmatch(part):
            parts.append(f"(?P={name[1]})" if name[1] in seen else f"(?P<{name[1]}>[^/]+?)")
            seen.add(name[1])
        else:
            parts.append("[^/]*" if part == "*" else re.escape(part))
    return re.compile("".join(parts))


def typed(text: str) -> Any:
    """A number where a text is one."""
    try:
        value = json.loads(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return text
    return value if isinstance(value, int | float) and not isinstance(value, bool) else text


def with_settings(frame: "pd.DataFrame", pattern: str) -> "pd.DataFrame":
    """A table with the settings in the column that fits a pattern; empty where a text does not."""
    fits = fitting(pattern)
    found = {
        name: [fits.fullmatch(text) for text in frame[name]]
        for name in frame.columns
        if frame[name].map(lambda cell: isinstance(cell, str)).all()
    }
    name = max(found, key=lambda n: sum(map(bool, found[n])), default="")
    if not fits.groupindex or not name or not any(found[name]):
        raise ValueError(
            "Expected a pattern of names in braces that texts of a column fit, such as "
            f"'w{{width}}_lr{{lr}}_*'; got {printable(repr(pattern))}."
        )
    columns = {
        group: [typed(match[group]) if match else None for match in found[name]]
        for group in fits.groupindex
    }
    return frame.assign(**columns)


def pattern_of(texts: Sequence[str]) -> str:
    """A pattern that most of some names fit, the numbers that differ in braces; empty without one.

    Example:
        >>> pattern_of(["gpt-64x2_lr1e-3", "gpt-64x4_lr1e-3", "gpt-128x2_lr2e-3"])
        'gpt-{width}x{depth}_lr{lr}'
    """
    shapes = Counter(_NUMBER.sub("\0", text) for text in texts)
    [(shape, count)] = shapes.most_common(1) or [("", 0)]
    if count <= len(texts) / 2 or "\0" not in shape:
        return ""
    rows = [_NUMBER.findall(text) for text in texts if _NUMBER.sub("\0", text) == shape]
    between, parts, free = shape.split("\0"), [], iter(_LETTERS)
    for i, values in enumerate(zip(*rows, strict=True)):
        word = re.search(r"([A-Za-z]+)[=_-]?$", between[i])
        parts.append(between[i])
        if len(set(values)) == 1:
            parts.append(values[0])
        elif between[i + 1] == "x":
            parts.append("{width}")
        elif between[i] == "x":
            parts.append("{depth}")
        else:
            name = word[1].lower() if word else next(free, "k")
            parts.append(f"{{{name}}}" if f"{{{name}}}" not in parts else "*")
    return "".join([*parts, between[-1]]) if len(NAME.findall("".join(parts))) > 1 else ""
