"""Sizes on the command line: ``depth=64 width=1024``, or WIDTHxDEPTH; arms: ``depth=4,8,16``."""

import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from depthmup.records.printable import printable


def parse_size(words: Sequence[str], *, option: str) -> dict[str, int]:
    """A size, by axis, from the words of an option."""
    values: dict[str, int] = {}
    for word in (part for text in words for part in text.replace(",", " ").split()):
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


def parse_pairs(
    words: Sequence[str], *, option: str, value: str, alone: bool = False
) -> dict[str, Any]:
    """``AXIS=VALUE`` words as a mapping, values as they were written."""
    pairs: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if alone and not sign:
            text = name
        if not name or not text:
            raise ValueError(f"Expected {option} as AXIS={value}; got {printable(repr(word))}.")
        if name in pairs:
            raise ValueError(
                f"Expected each axis once in {option}; {printable(name)} stands twice."
            )
        pairs[name] = text
    return pairs


def parse_arms(words: Sequence[str], *, option: str) -> dict[str, tuple[int, ...]]:
    """Values along axes from words of the form ``NAME=VALUE,VALUE,...``."""
    arms: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, _, listed = word.partition("=")
        values = listed.split(",")
        if not name.isidentifier() or not all(value.isdecimal() and int(value) for value in values):
            raise ValueError(
                f"Expected {option} as NAME=VALUE,VALUE for each axis, such as batch=32,64,128; "
                f"got {word!r}."
            )
        if name in arms:
            raise ValueError(f"Expected {option} to name {name} once; got it twice.")
        arms[name] = tuple(int(value) for value in values)
    return arms


def parse_along(words: Sequence[str], function: Callable[..., Any]) -> dict[str, Any]:
    """The words of --along, as keywords of a function that has arguments of its own."""
    arms = parse_arms(words, option="--along")
    if taken := sorted(set(inspect.signature(function).parameters) & arms.keys()):
        raise ValueError(
            f"Expected --along to name an argument of your factory that is no option of "
            f"{function.__name__}; got {taken[0]}. Give the argument another name."
        )
    return dict(arms)
