"""The files of a report, and the rows that a table's report left out, as CSV."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from depthmup.records.note import Excluded

if TYPE_CHECKING:
    import pandas as pd

PAGE, JSON, EXCLUDED = "report.html", "summary.json", "excluded.csv"
FILES = (PAGE, JSON, EXCLUDED)
"""What ``save`` writes; the last of a table that was fitted."""

# Spreadsheets run a cell that begins with one of these, some of them full-width forms too; and
# where the decimal sign is a comma, a semicolon begins a cell, quoted or not.
_FORMULA = re.compile(r"(^|[;\t\r\n])(?=\s*[=+\-@\t\r\n|%＝＋－＠])")


def excluded_rows(
    excluded: Sequence[Excluded], cells: Mapping[str, list[Any]]
) -> list[dict[str, Any]]:
    """The rows of a table that were left out, each with its reason and what it holds."""
    return [
        {
            "row": out.row,
            "group": out.group,
            "defect": out.defect.value,
            "reason": out.reason,
            **{column: values[i] for column, values in cells.items()},
        }
        for i, out in enumerate(excluded)
    ]


def csv_of_excluded(excluded: Sequence[Excluded], cells: Mapping[str, list[Any]]) -> str:
    """The same as CSV; no cell is a formula."""
    import pandas as pd

    columns = dict.fromkeys(("row", "group", "defect", "reason", *cells))
    table = pd.DataFrame(excluded_rows(excluded, cells), columns=[*columns])
    return str(without_formulas(table).to_csv(index=False, na_rep="nan", lineterminator="\n"))


def without_formulas(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table that no spreadsheet runs anything of."""
    texts = table.columns[[dtype.kind not in "biuf" for dtype in table.dtypes]]
    table[texts] = table[texts].map(_as_text)
    return table.rename(columns=_as_text)


def _as_text(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula; numbers stay numbers."""
    if isinstance(value, str) and _FORMULA.search(value):
        try:
            float(value)
        except ValueError:
            return _FORMULA.sub(r"\1'", value)
    return value
