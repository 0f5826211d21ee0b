"""Filters such as ``optimizer == adamw and lr < 1``: parsed by their own grammar, never evaluated.

filter    = condition, { "and", condition } ;
condition = column, ( "==" | "!=" | "<=" | ">=" | "<" | ">" ), value
          | column, "in", "(", value, { ",", value }, ")" ;
column    = a name without spaces, or any text in backticks ;
value     = a number, a word, or any text in quotes.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from depthmup.posterior.intervals import Flags
from depthmup.records.printable import printable
from depthmup.records.sizes import size_value
from depthmup.tables.columns import listed
from depthmup.tables.read import RunTable

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
class Condition:
    """One comparison; ``values`` has several members for ``in`` alone."""

    column: str
    operator: str
    values: tuple[str, ...]

    def holds(self, table: RunTable) -> Flags:
        """Which rows satisfy it; numbers are compared as numbers."""
        if self.column in table.numbers:
            values, codes = np.unique(table.numbers[self.column], return_inverse=True)
            sizes = {text: size_value(text) for text in self.values}  # 350M is 3.5e8
            plain = (t if math.isnan(sizes[t]) else repr(sizes[t]) for t in self.values)
            return replace(self, values=tuple(plain)).of([repr(float(v)) for v in values])[codes]
        return self.of(table.names[self.column])[table.codes[self.column]]

    def of(self, texts: list[str]) -> Flags:
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


def parse_filters(where: str | Sequence[str]) -> tuple[Condition, ...]:
    """The conditions of one filter or several, which all must hold."""
    return tuple(condition for text in listed(where) for condition in parse_filter(text))


def parse_filter(text: str) -> tuple[Condition, ...]:
    """The conditions of a filter."""
    if len(text) > LONGEST:
        raise ValueError(f"Expected a filter of at most {LONGEST} characters; got {len(text)}.")
    tokens = iter(_tokens(text))

    def take(expected: str, *kinds: str) -> tuple[str, str]:
        """The next token, which must be of one of these kinds."""
        kind, value = next(tokens, ("end", "its end"))
        if kind not in kinds:
            raise _bad(text, value, expected)
        return kind, value

    def value() -> str:
        return take("a value", "word", "double", "single")[1]

    conditions, kind = [], "word"
    while kind != "end":
        _, column = take("a column", "word", "column", "double", "single")
        kind, sign = take("==, <, ... or in", "operator", "word")
        if kind == "operator":
            sign, values = "==" if sign == "=" else sign, [value()]
        elif sign == "in":
            take("(", "(")
            values = [value()]
            while take(", or )", ",", ")")[1] == ",":
                values.append(value())
        else:
            raise _bad(text, sign, "==, <, ... or in")
        conditions.append(Condition(column=column, operator=sign, values=tuple(values)))
        kind, word = take("'and' or the end", "word", "end")
        if kind == "word" and word != "and":
            raise _bad(text, word, "'and' or the end")
    return tuple(conditions)


def equalities(pairs: Sequence[tuple[str, str]]) -> str:
    """A filter of the rows with these values of columns; empty where its grammar has none."""
    if any("`" in column or {'"', "'"} <= {*value} for column, value in pairs):
        return ""
    texts = []
    for column, value in pairs:
        name = column if re.fullmatch(r"[\w.]+", column) else f"`{column}`"
        sign = "'" if '"' in value else '"'
        plain = re.fullmatch(r"[\w.-]+", value)
        texts.append(f"{name} == {value if plain else sign + value + sign}")
    return " and ".join(texts)


def _tokens(text: str) -> list[tuple[str, str]]:
    """Kinds and texts; a sign is a kind of its own."""
    tokens, position = [], 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise _bad(text, stripped[position : position + 20], "a name, a number or ==")
        kind = str(match.lastgroup)
        found = match.group(kind)
        tokens.append((found if kind == "sign" else kind, found))
        position = match.end()
    return tokens


def _bad(text: str, got: str, expected: str) -> ValueError:
    return ValueError(
        f"Expected {expected} in the filter {printable(repr(text[:100]))}; got "
        f'{printable(repr(got[:40]))}. Write comparisons such as "optimizer == adamw and lr < 1", '
        "names with spaces in backticks, text with spaces in quotes."
    )


def is_number(text: str) -> bool:
    """Whether a text is read as a number, such as nan."""
    return _number(text) is not None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
