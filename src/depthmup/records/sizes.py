"""Sizes as text: ``depth=64 width=1024``, or WIDTHxDEPTH."""

import re
from collections.abc import Sequence
from contextlib import suppress


def parse_size(text: str | Sequence[str], *, option: str) -> dict[str, int]:
    """A size, by axis, from the text of an argument or the words of an option.

    Example:
        >>> parse_size("1024x64", option="target")
        {'width': 1024, 'depth': 64}
        >>> parse_size(["depth=64", "tokens=2e10"], option="--target")
        {'depth': 64, 'tokens': 20000000000}
    """
    words = [text] if isinstance(text, str) else text
    parts = [part for said in words for part in said.replace(",", " ").split()]
    values: dict[str, int] = {}
    for word in parts or words:  # an option that is not given has no words
        name, equals, value = word.partition("=")
        width, cross, depth = word.lower().partition("x")
        if equals and name.isidentifier() and _whole(value):
            pairs = {name: _whole(value)}
        elif cross and width.isdecimal() and depth.isdecimal() and int(width) and int(depth):
            pairs = {"width": int(width), "depth": int(depth)}
        else:
            got, near = " ".join(words), ""
            pair = re.fullmatch(r"(\d+)(?:[ ,]+(\d+))?", got)
            if pair:
                near = f" Did you mean {pair[1]}x{pair[2] or 2}?"
                near = near if pair[2] else f"{near[:-1]}, or depth={pair[1]}?"
            raise ValueError(
                f"Expected {option} as NAME=VALUE for each axis, such as depth=64 width=1024, or "
                f"as WIDTHxDEPTH, such as 1024x64; got {got!r}.{near}"
            )
        if twice := values.keys() & pairs:
            raise ValueError(f"Expected {option} to name {min(twice)} once; got it twice.")
        values |= pairs
    return values


def _whole(text: str) -> int:
    """A positive whole number, also one written as 2e10; 0 for any other text."""
    if text.isdecimal():
        return int(text)
    with suppress(ValueError, OverflowError):
        value = float(text)
        # Beyond 2^53 a float no longer tells whole numbers apart.
        if value.is_integer() and 0 < value < 2**80 and "e" in text.lower():
            return int(value)
    return 0
