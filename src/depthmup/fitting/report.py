"""What a fit of a table says, as text, page, frames and files."""

import csv
import io
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from depthmup.fitting.rows import Excluded
from depthmup.records import Certificate, Estimate, Fit, GroupFit, Verdict
from depthmup.records.codec import encode
from depthmup.records.packages import need

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["points", "optima", "exponents", "rules", "findings", "excluded", "predictions"]

PAGE, JSON, EXCLUDED = "report.html", "fit.json", "excluded.csv"
FILES = (PAGE, JSON, EXCLUDED)
"""What ``save`` writes."""

# Spreadsheets run a cell that begins with one of these.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """The result of ``depthmup.fit``.

    Without a group's name the first one that could be fitted is meant.

    Attributes:
        record: everything that is concluded, as plain values; ``record.to_json()`` keeps it.
        excluded: every row that was left out, with its reason.
        cells: what those rows hold, by column.
    """

    record: Fit
    excluded: tuple[Excluded, ...] = field(repr=False)
    cells: dict[str, list[Any]] = field(repr=False)

    def group(self, name: str = "") -> GroupFit:
        """One group, by its name such as "optimizer adamw".

        Args:
            name: of the group; the first that could be fitted unless given.

        Returns:
            The group.

        Raises:
            ValueError: there is no such group.
        """
        for group in self.record.groups:
            if group.name == name or (not name and not group.problem):
                return group
        names = ", ".join(repr(g.name) for g in self.record.groups)
        raise ValueError(f"Expected one of the groups {names}; got {name!r}.")

    @property
    def verdict(self) -> Verdict:
        """The first group's: drifts if the best value does along any axis."""
        return self.group().verdict

    def exponent(self, axis: str, group: str = "") -> Estimate:
        """How the best value moves along an axis, with its 95% interval.

        Args:
            axis: one that varies.
            group: by its name; the first that could be fitted unless given.

        Returns:
            The estimate of the exponent.

        Raises:
            ValueError: the axis does not vary, or is none.
        """
        for measured in self.group(group).exponents:
            if measured.axis == axis:
                return measured.exponent
        axes = ", ".join(m.axis for m in self.group(group).exponents) or "none"
        raise ValueError(f"Expected an axis that varies, {axes}; got {axis!r}.")

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The predictions at the target, of all groups."""
        return tuple(g.prediction for g in self.record.groups if g.prediction is not None)

    @cached_property
    def table(self) -> str:
        """The result as text."""
        from depthmup.reports.fit_text import fit_text

        return fit_text(self.record)

    @cached_property
    def page(self) -> str:
        """The result as one HTML page that opens offline."""
        from depthmup.reports.fit_page import fit_page

        return fit_page(self.record)

    @property
    def summary(self) -> dict[str, Any]:
        """The result as strict JSON can hold it."""
        summary: dict[str, Any] = encode(self.record)
        return summary

    def frame(self, kind: Kind = "optima") -> "pd.DataFrame":
        """A tidy table: points of curves, optima, exponents, rules, findings, excluded rows, or
        predictions.

        Args:
            kind: ``points``, ``optima``, ``exponents``, ``rules``, ``findings``, ``excluded`` or
                ``predictions``.

        Returns:
            A row for each.

        Raises:
            ValueError: another kind.
        """
        need("A table", "pandas")
        import pandas as pd

        from depthmup.reports.fit_rows import ROWS

        if kind == "excluded":
            return pd.DataFrame(self._excluded_rows())
        if kind not in ROWS:
            raise ValueError(f"Expected one of {', '.join([*ROWS, 'excluded'])}; got {kind!r}.")
        return pd.DataFrame(ROWS[kind](self.record))

    def plot(self, path: str | Path, *, group: str = "") -> None:
        """Draw optima against every axis, with laws and rules, as .svg, .pdf, .png or .html.

        Args:
            path: ends in .svg, .pdf, .png or .html.
            group: by its name; the first that could be fitted unless given.

        Raises:
            ValueError: another suffix.
        """
        from depthmup.reports.files import save_chart
        from depthmup.reports.fit_charts import paper_chart

        save_chart(paper_chart(self.record, self.group(group)), Path(path))

    def save(self, folder: str | Path) -> tuple[Path, ...]:
        """Write the page, the JSON and the excluded rows into a folder.

        Formulas in the excluded rows are made text, so that a spreadsheet runs none.

        Args:
            folder: made if it is not there.

        Returns:
            The paths of the files.
        """
        from depthmup.reports.files import write_text

        texts = {PAGE: self.page, JSON: self.record.to_json() + "\n", EXCLUDED: self.excluded_csv}
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
        return tuple(folder / name for name in texts)

    @property
    def excluded_csv(self) -> str:
        """The excluded rows as CSV, each with its reason."""
        file = io.StringIO()
        columns = ["row", "group", "defect", "reason", *self.cells]
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(_as_text, columns))
        for row in self._excluded_rows():
            writer.writerow(_as_text(row[c]) for c in columns)
        return file.getvalue()

    def _excluded_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "row": out.row,
                "group": out.group,
                "defect": out.defect.value,
                "reason": out.reason,
                **{column: values[i] for column, values in self.cells.items()},
            }
            for i, out in enumerate(self.excluded)
        ]

    def __str__(self) -> str:
        return self.table

    def _repr_html_(self) -> str:
        from depthmup.reports.fit_page import notebook

        return notebook(self.record)


def _as_text(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula; numbers stay numbers."""
    if isinstance(value, str) and value.lstrip().startswith(_FORMULA):
        try:
            float(value)
        except ValueError:
            return "'" + value
    return value
