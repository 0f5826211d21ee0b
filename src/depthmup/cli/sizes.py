"""Values along axes on the command line: ``depth=n_layers``, ``depth=4,8,16``."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from depthmup.records.printable import printable


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


def parse_arms(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The words of --along: values along axes as ``NAME=VALUE,VALUE,...``."""
    arms: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, _, listed = word.partition("=")
        values = listed.split(",")
        if not name.isidentifier() or not all(value.isdecimal() and int(value) for value in values):
            raise ValueError(
                "Expected --along as NAME=VALUE,VALUE for each axis, such as batch=32,64,128; got "
                f"{word!r}."
            )
        if name in arms:
            raise ValueError(f"Expected --along to name {name} once; got it twice.")
        arms[name] = tuple(int(value) for value in values)
    return arms


def parse_along(words: Sequence[str], function: Callable[..., Any]) -> dict[str, Any]:
    """The words of --along, as keywords of a function that has arguments of its own."""
    arms = parse_arms(words)
    if taken := sorted(set(inspect.signature(function).parameters) & arms.keys()):
        raise ValueError(
            f"Expected --along to name an argument of your factory that is no option of "
            f"{function.__name__}; got {taken[0]}. Give the argument another name."
        )
    return dict(arms)
