"""Cells: what the text or value of one cell says, as a number or as a label."""

import hashlib
import math
import sys
from typing import Any

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.records.printable import printable
from depthmup.records.sizes import size_value

LONGEST_LABEL = 200
"""Characters of a label that are shown."""

_MISSING = frozenset(
    {"", "na", "n/a", "none", "null", "-", "–", "—", "<na>", "running", "(running)", "pending"}
)
_DIVERGED = frozenset({"nan", "inf", "+inf", "infinity", "+infinity", "-nan", "diverged"})


def to_codes(column: Any, most: float = math.inf) -> tuple[Index, list[str]] | None:
    """A number for every row, and the text of each number; an empty cell's is empty.

    None of more than ``most`` values.
    """
    import pandas as pd

    try:
        number, values = pd.factorize(column, use_na_sentinel=True)
    except TypeError:  # lists and other values without an identity
        number, values = pd.factorize(column.map(str), use_na_sentinel=True)
    if len(values) > most:
        return None
    known: dict[str, int] = {}
    table = [known.setdefault(_label(value), len(known)) for value in values]
    missing = known.setdefault("", len(known)) if (number < 0).any() else 0
    return np.append(np.array(table, np.int64), missing)[number], list(known)


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
    column: Any, name: str, *, sizes: bool = False, tells_missing: bool = False
) -> tuple[Array, Flags]:
    """A column's numbers, and where NaN does not say whether it is missing or diverged.

    ``sizes`` may be written as 125M, 1.3B and 2T. Of a file that ``tells_missing`` NaN is an empty
    cell. The largest double is infinite: so MLflow writes an infinite loss.
    """
    values, unsaid = _numbers(column, name, sizes=sizes)
    infinite = np.abs(values) >= sys.float_info.max
    values[infinite] = np.copysign(math.inf, values[infinite])
    return values, unsaid & (not tells_missing)


def _numbers(column: Any, name: str, *, sizes: bool) -> tuple[Array, Flags]:
    import pandas as pd

    def refuse(row: int) -> ValueError:
        return ValueError(_no_number(name, 1 + row, column.iloc[row], size=sizes))

    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
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
    said: dict[Any, float | None] = {}
    rows = np.flatnonzero(np.isnan(values))
    for i, cell in zip(map(int, rows), column.iloc[rows], strict=True):
        unsaid[i] = isinstance(cell, float)
        text = "" if unsaid[i] or cell is None or cell is pd.NA else str(cell)
        if text not in said:
            said[text] = _said(text, size=sizes)
        number = said[text]
        if number is None:
            raise refuse(i)
        values[i] = number
    return values, unsaid


def _said(cell: str, *, size: bool) -> float | None:
    """What a cell says that is no plain number: infinite, missing, a size; None if nothing."""
    text = cell.strip().lower()
    if text in _DIVERGED:
        return math.inf
    if text in _MISSING:
        return math.nan
    many = size_value(text) if size and text[-1:] in "mbt" else math.nan
    return None if math.isnan(many) else many


def _no_number(name: str, row: int, cell: Any, *, size: bool = False) -> str:
    hint = " Write a number." if size else " Write a number; a run that diverged has the loss nan."
    text = str(cell).strip()
    if text[:1] in "[{":
        hint = " Name a column that holds one number for each run."
    elif text[:-1].replace(".", "", 1).isdigit() and text[-1:].lower() in "kmbt%":
        hint = " Write it out: 1.3B is 1.3e9, 5% is 0.05."
    elif "," in text and text.replace(",", "").replace(".", "", 1).isdigit():
        hint = " Write it without commas."
    return (
        f"Expected numbers in the column {printable(repr(name[:60]))}; row {row:,} has "
        f"{printable(repr(text[:60]))}.{hint}"
    )
