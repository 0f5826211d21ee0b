"""Cells: what the text or value of one cell says, as a number or as a label."""

import hashlib
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.records.printable import printable
from depthmup.records.sizes import size_value

if TYPE_CHECKING:
    import pandas as pd

LONGEST_LABEL = 200
"""Characters of a label that are shown."""

_MISSING = frozenset(
    {"", "na", "n/a", "none", "null", "-", "–", "—", "<na>", "running", "(running)", "pending"}
)
_DIVERGED = frozenset({"nan", "inf", "+inf", "infinity", "+infinity", "-nan", "diverged"})


def to_codes(chunk: "pd.DataFrame", name: str, known: dict[str, int]) -> Index:
    """Numbers of a column's texts, counted on from those that are known."""
    import pandas as pd

    if name not in chunk:
        return np.full(len(chunk), known.setdefault("", len(known)), np.int64)
    column = chunk[name]
    try:
        number, distinct = pd.factorize(column, use_na_sentinel=True)
    except TypeError:  # lists and other values without an identity
        number, distinct = pd.factorize(column.map(str), use_na_sentinel=True)
    table = [known.setdefault(_label(text), len(known)) for text in distinct]
    missing = known.setdefault("", len(known)) if (number < 0).any() else 0
    return np.asarray(np.append(np.array(table, np.int64), missing)[number], np.int64)


def _label(value: Any) -> str:
    """A label's text; whole numbers as such, whatever their type."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    text = str(value).strip()
    if len(text) <= LONGEST_LABEL:
        return text
    # Two long texts that begin alike stay two.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[:LONGEST_LABEL]}... {digest[:8]}"


def to_numbers(
    column: Any, name: str, *, first_row: int = 1, sizes: bool = False
) -> tuple[Array, Flags]:
    """A column's numbers, and where NaN does not say whether it is missing or diverged.

    ``sizes`` may be written as 125M, 1.3B and 2T.
    """
    import pandas as pd

    def refuse(row: int) -> ValueError:
        return ValueError(_no_number(name, first_row + row, column.iloc[row], size=sizes))

    if pd.api.types.is_object_dtype(column) or pd.api.types.is_bool_dtype(column):
        for i, cell in enumerate(column):
            if isinstance(cell, bool | np.bool_ | complex):
                raise refuse(i)
    if pd.api.types.is_complex_dtype(column) or column.dtype.kind in "mM":  # dates and durations
        raise refuse(0)
    if pd.api.types.is_numeric_dtype(column):
        values = np.array(column.to_numpy(dtype=float, na_value=math.nan), float)
        return values, np.isnan(values)
    try:
        converted = pd.to_numeric(column, errors="coerce")
    except OverflowError:  # a whole number beyond double precision, in JSON
        beyond = (isinstance(cell, int) and abs(cell) > sys.float_info.max for cell in column)
        raise refuse(next((i for i, huge in enumerate(beyond) if huge), 0)) from None
    values = np.array(converted.to_numpy(dtype=float, na_value=math.nan), float)
    unsaid = np.zeros(len(values), bool)
    for i in map(int, np.flatnonzero(np.isnan(values))):
        cell = column.iloc[i]
        unsaid[i] = isinstance(cell, float)
        number = math.nan if unsaid[i] else _said(cell, size=sizes)
        if number is None:
            raise refuse(i)
        values[i] = number
    return values, unsaid


def _said(cell: Any, *, size: bool) -> float | None:
    """What a cell says that is no plain number: infinite, missing, a size; None if nothing."""
    text = "" if cell is None else str(cell).strip().lower()
    if text in _DIVERGED:
        return math.inf
    if text in _MISSING:
        return math.nan
    many = size_value(text) if size and text[-1:] in "mbt" else math.nan
    return None if math.isnan(many) else many


def _no_number(name: str, row: int, cell: Any, *, size: bool = False) -> str:
    hint = " Write a number." if size else " Write a number; a run that diverged has the loss nan."
    text = str(cell).strip()
    if text[:-1].replace(".", "", 1).isdigit() and text[-1:].lower() in "kmbt%":
        hint = " Write it out: 1.3B is 1.3e9, 5% is 0.05."
    elif "," in text and text.replace(",", "").replace(".", "", 1).isdigit():
        hint = " Write it without commas."
    return (
        f"Expected numbers in the column {printable(repr(name[:60]))}; row {row:,} has "
        f"{printable(repr(text[:60]))}.{hint}"
    )
