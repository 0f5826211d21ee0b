"""Filters such as ``optimizer == adamw and lr < 1``: parsed by their own grammar, never evaluated.

filter     = comparison, { "and", comparison } ;
comparison = column, ( "==" | "!=" | "<=" | ">=" | "<" | ">" ), value
           | column, "in", "(", value, { ",", value }, ")" ;
column     = a name without spaces, or any text in backticks ;
value      = a number, a word, or any text in quotes.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from depthmup.records.printable import printable
from depthmup.statistics.intervals import Flags

LONGEST = 2000
"""Characters of a filter."""

_TOKEN = re.compile(
    r"\s*(?:`(?P<column>[^`]*)`|\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'"
    r"|(?P<operator>==|!=|<=|>=|<|>|=)|(?P<sign>[(),])|(?P<word>[^\s<>=!(),`'\"]+))"
)
_ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One comparison; ``values`` has several members for ``in`` alone."""

    column: str
    operator: str
    values: tuple[str, ...]

    def of(self, texts: list[str]) -> Flags:
        """Which of a column's distinct texts satisfy it; numbers are compared as numbers."""
        numbers = [_number(value) for value in self.values]
        if self.operator in _ORDERS:
            [bound] = numbers
            if bound is None:
                raise ValueError(
                    f"Expected a number after {self.operator} in a filter; got "
                    f"{printable(repr(self.values[0]))}."
                )
            values = [_number(text) for text in texts]
            return np.array(
                [n is not None and bool(_ORDERS[self.operator](n, bound)) for n in values], bool
            )
        # As texts or as numbers: 0.10 is 0.1, and the seed 007 is no other than 7.
        wanted = set(self.values)
        amounts = {n for n in numbers if n is not None}
        same = np.array([text in wanted or _number(text) in amounts for text in texts], bool)
        return ~same if self.operator == "!=" else same


def parse_filter(text: str) -> tuple[Comparison, ...]:
    """The comparisons of a filter."""
    if len(text) > LONGEST:
        raise ValueError(f"Expected a filter of at most {LONGEST} characters; got {len(text)}.")
    tokens = _tokens(text)
    comparisons = []
    position = 0
    while True:
        comparison, position = _comparison(tokens, position, text)
        comparisons.append(comparison)
        if position == len(tokens):
            return tuple(comparisons)
        if tokens[position] != ("word", "and"):
            raise _bad(text, tokens[position][1], "'and' or the end")
        position += 1


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise _bad(text, stripped[position : position + 20], "a name, a number or ==")
        kind = str(match.lastgroup)
        tokens.append((kind, match.group(kind)))
        position = match.end()
    return tokens


def _comparison(tokens: list[tuple[str, str]], at: int, text: str) -> tuple[Comparison, int]:
    kind, column = _get(tokens, at, text, "a column")
    if kind not in ("word", "column", "double", "single"):
        raise _bad(text, column, "a column")
    kind, sign = _get(tokens, at + 1, text, "==, <, ... or in")
    if kind == "operator":
        kind, value = _get(tokens, at + 2, text, "a value")
        if kind not in ("word", "double", "single"):
            raise _bad(text, value, "a value")
        name = "==" if sign == "=" else sign
        return Comparison(column=column, operator=name, values=(value,)), at + 3
    if (kind, sign) != ("word", "in"):
        raise _bad(text, sign, "==, <, ... or in")
    if _get(tokens, at + 2, text, "(")[1] != "(":
        raise _bad(text, tokens[at + 2][1], "(")
    values, at = [], at + 3
    while True:
        kind, value = _get(tokens, at, text, "a value")
        if kind not in ("word", "double", "single"):
            raise _bad(text, value, "a value")
        values.append(value)
        _, sign = _get(tokens, at + 1, text, ", or )")
        at += 2
        if sign == ")":
            return Comparison(column=column, operator="in", values=tuple(values)), at
        if sign != ",":
            raise _bad(text, sign, ", or )")


def _get(tokens: list[tuple[str, str]], at: int, text: str, expected: str) -> tuple[str, str]:
    if at >= len(tokens):
        raise _bad(text, "its end", expected)
    return tokens[at]


def _bad(text: str, got: str, expected: str) -> ValueError:
    return ValueError(
        f"Expected {expected} in the filter {printable(repr(text[:100]))}; got "
        f'{printable(repr(got[:40]))}. Write comparisons such as "optimizer == adamw and lr < 1", '
        "names with spaces in backticks, text with spaces in quotes."
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
