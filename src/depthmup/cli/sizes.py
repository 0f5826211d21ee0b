"""Values along axes on the command line: ``depth=n_layers``, ``depth=4,8,16``."""

import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from depthmup.records.printable import printable
from depthmup.records.sizes import size_value, whole_size

_Number = TypeVar("_Number", int, float)


def parse_pairs(
    words: Sequence[str], *, option: str, value: str, alone: bool = False
) -> dict[str, Any]:
    """``AXIS=VALUE`` words as a mapping, values as they were written.

    Pairs may stand apart or with commas between them: ``width=2,depth=1``.
    """
    pairs: dict[str, Any] = {}
    for word in (part for said in words for part in re.split(r",(?=[A-Za-z_]\w*=)", said)):
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


def parse_values(
    words: Sequence[str], *, option: str, example: str = "depth=4,8,16"
) -> dict[str, tuple[int, ...]]:
    """Whole numbers along axes as ``AXIS=VALUE,VALUE,...``, for every option that lists sizes."""
    return _values(
        words, whole_size, option, f"whole numbers from 1 in {option}, such as {example}"
    )


def parse_amounts(
    words: Sequence[str], *, option: str, example: str = "depth=4,8,16"
) -> dict[str, tuple[float, ...]]:
    """The same of tables, whose sizes need not be whole."""

    def amount(text: str) -> float:
        value = size_value(text)
        return whole_size(text) or (value if 0 < value < math.inf else 0)

    return _values(words, amount, option, f"positive numbers in {option}, such as {example}")


def _values(
    words: Sequence[str], number: Callable[[str], _Number], option: str, expected: str
) -> dict[str, tuple[_Number, ...]]:
    values: dict[str, tuple[_Number, ...]] = {}
    for axis, text in parse_pairs(words, option=option, value="VALUE,VALUE").items():
        listed = tuple(number(each.strip()) for each in text.split(","))
        if not all(listed):
            raise ValueError(f"Expected {expected}; got {printable(repr(f'{axis}={text}'))}.")
        values[axis] = listed
    return values


def parse_arms(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The words of --along: values along axes that are arguments of a function."""
    arms = parse_values(words, option="--along", example="batch=32,64,128")
    for axis in arms:
        if not axis.isidentifier():
            raise ValueError(
                "Expected --along to name arguments of your factory, such as batch=32,64,128; got "
                f"{printable(repr(axis))}."
            )
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
