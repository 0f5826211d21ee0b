"""Sizes as text: ``depth=64 width=1024``, or WIDTHxDEPTH."""

import math
import re
from collections.abc import Mapping, Sequence


def parse_size(text: str | Sequence[str], *, option: str) -> dict[str, int]:
    """A size, by axis, from the text of an argument or the words of an option.

    Example:
        >>> parse_size("1024x64", option="target")
        {'width': 1024, 'depth': 64}
        >>> parse_size(["depth=64", "tokens=2e10"], option="--target")
        {'depth': 64, 'tokens': 20000000000}
        >>> parse_size("tokens=1.4T", option="target")
        {'tokens': 1400000000000}
    """
    words = [text] if isinstance(text, str) else text
    parts = [part for said in words for part in said.replace(",", " ").split()]
    values: dict[str, int] = {}
    for word in parts or words:  # an option that is not given has no words
        name, equals, value = word.partition("=")
        width, cross, depth = word.lower().partition("x")
        if equals and name.isidentifier() and whole_size(value):
            pairs = {name: whole_size(value)}
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


def size_value(text: str) -> float:
    """The number that is written as 64, 2e10 or 20B; NaN for any other text."""
    times = {letter: step for step, letter in _MANY}.get(text[-1:].upper(), 0)
    try:
        return round(float(text[:-1]) * times, 3) if times else float(text)
    except ValueError:
        return math.nan


def whole_size(text: str) -> int:
    """A positive whole number, also one written as 2e10 or 20B; 0 for any other text."""
    if text.isdecimal():
        return int(text)
    value, marked = size_value(text), "e" in text.lower() or text[-1:].isalpha()
    # Beyond 2^53 a float no longer tells whole numbers apart.
    return int(value) if marked and value.is_integer() and 0 < value < 2**80 else 0


_MANY = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
_DIGITS, _HUGE = 4, 1e15


def size_number(value: float) -> str:
    """A size as people say it: whole below a million, then of four digits with a letter.

    Example:
        >>> [size_number(n) for n in (64, 16384, 214_663_680, 4e9, 999_999_999, 0.5, 1.2e18)]
        ['64', '16384', '214.7M', '4B', '1B', '0.5', '1.2e18']
    """
    if value >= _HUGE:
        return f"{value:.{_DIGITS}g}".replace("e+", "e")
    if value < _MANY[-1][0]:
        return f"{value:g}"
    rounded = float(f"{value:.{_DIGITS}g}")
    step, letter = next((step, letter) for step, letter in _MANY if rounded >= step)
    return f"{rounded / step:.{_DIGITS}g}{letter}"


def size_text(size: Mapping[str, float]) -> str:
    """A size in words, for sentences."""
    parts = [f"{axis} {size_number(value)}" for axis, value in size.items()]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def size_name(size: Mapping[str, float]) -> str:
    """A size as a name, for legends and keys: without commas and "and"."""
    return " ".join(f"{axis} {size_number(value)}" for axis, value in size.items())


def size_names(sizes: Sequence[Mapping[str, float]], among: Sequence[Mapping[str, float]]) -> str:
    """Sizes by what tells them from the others among which they are."""
    varied = [axis for axis in among[0] if len({size[axis] for size in among}) > 1]
    if len(varied) == 1:
        return f"{varied[0]} {', '.join(size_number(size[varied[0]]) for size in sizes)}"
    return ", ".join(
        size_name({axis: n for axis, n in size.items() if axis in varied} or size) for size in sizes
    )
