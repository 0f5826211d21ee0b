"""The report of several values that were tuned together: what ``depthmup.fit`` gives for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from depthmup._drafts import together
from depthmup._meant import Meant
from depthmup.records import Verdict
from depthmup.records.codec import strict, versioned
from depthmup.records.packages import need
from depthmup.records.printable import printable
from depthmup.records.recipe import Recipe
from depthmup.report import EXCLUDED, JSON, PAGE, csv_of_excluded, excluded_rows
from depthmup.reports.files import save_chart
from depthmup.reports.recipe import (
    RECIPE_ROWS,
    headline,
    plane_of,
    recipe_dict,
    recipe_page,
    recipe_text,
)
from depthmup.tables.rows import Excluded

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["optima", "drifts", "runs", "excluded"]


@dataclass(frozen=True, kw_only=True)
class RecipeReport(Meant):
    """The joint optimum of several tuned values at every size, and whether it transfers.

    Attributes:
        recipes: one for each group of the table.
        problems: groups without one, with the reason.
        excluded: rows of the table that were left out, with their reasons.
        cells: what those rows hold, by column.
        title: of the page.
        command: that made it.
    """

    MEANT: ClassVar = {
        **dict.fromkeys(("runs", "trials"), 'report.to_pandas("runs")'),
        **dict.fromkeys(("table", "df", "to_df", "dataframe", "frame"), "report.to_pandas()"),
        **dict.fromkeys(("best", "best_lr", "optima"), 'report.to_pandas("optima")'),
        "drift": 'report.to_pandas("drifts")',
        "to_json": "report.to_dict() or report.save(folder)",
        "show": "print(report)",
    }

    recipes: tuple[Recipe, ...]
    problems: tuple[tuple[str, str], ...] = ()
    excluded: tuple[Excluded, ...] = ()
    cells: Mapping[str, list[Any]] = field(default_factory=dict)
    title: str = "A recipe"
    command: Sequence[str] = ()

    def recipe(self, name: str | None = None) -> Recipe:
        """The recipe of a group; of the first without a name.

        Args:
            name: of the group, or its title.

        Returns:
            The recipe.

        Raises:
            ValueError: there is no such group.
        """
        for one in self.recipes:
            if name is None or name in (one.name, one.title):
                return one
        names = ", ".join(repr(one.name) for one in self.recipes)
        raise ValueError(f"Expected one of the groups {names}; got {name!r}.")

    @property
    def verdict(self) -> Verdict:
        """The first group's: transfers if its recipe does along every axis, drifts if along any."""
        return self.recipes[0].verdict

    def summary(self, width: int | None = None) -> str:
        """The result as text.

        Args:
            width: of a terminal, in columns, into which tables are to fit.

        Returns:
            What to use, best values, drifts and costs, and what to know of the runs.
        """
        without = [f"{name}: {reason}" for name, reason in self.problems]
        return printable("\n\n".join([recipe_text(self.recipes, width), *without]))

    @property
    def page(self) -> str:
        """The result as one HTML page that opens offline."""
        return recipe_page(self.recipes, title=self.title, command=self.command)

    def to_dict(self) -> dict[str, Any]:
        """The result for other programs.

        Returns:
            Values of strict JSON, as in summary.json.
        """
        found: dict[str, Any] = strict(
            {
                "verdict": self.verdict.value,
                "recipes": [recipe_dict(one) for one in self.recipes],
                "problems": dict(self.problems),
                "excluded": len(self.excluded),
            }
        )
        return found

    def to_pandas(self, name: Kind = "optima") -> "pd.DataFrame":
        """A tidy table.

        ``optima``: the best values of every size, and of the target. ``drifts``: how each moves
        along each axis, what carrying it over costs, and the verdicts. ``runs``: all that were
        used. ``excluded``: the rows of the table that were left out.

        Args:
            name: of the table.

        Returns:
            A row for each.

        Raises:
            ValueError: another name.
        """
        need("A table", "pandas")
        import pandas as pd

        if name == "excluded":
            return pd.DataFrame(excluded_rows(self.excluded, self.cells))
        if name not in RECIPE_ROWS:
            names = ", ".join([*RECIPE_ROWS, "excluded"])
            raise ValueError(f"Expected one of {names}; got {name!r}.")
        rows = RECIPE_ROWS[name]
        return pd.DataFrame([row for one in self.recipes for row in rows(one)])

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the plane of two values: runs, contours of every size, and the optimum's path.

        Args:
            path: of a file to write, which ends in .svg, .pdf, .png or .html.

        Returns:
            The chart, which a notebook shows.

        Raises:
            ValueError: other than two values, or another suffix.
        """
        chart = plane_of(self.recipes[0])
        if path is not None:
            save_chart(chart, Path(path))
        return chart

    def save(self, folder: str | Path) -> tuple[Path, ...]:
        """Write report.html, summary.json and excluded.csv into a folder.

        Args:
            folder: made where it is not there.

        Returns:
            The paths of the files.
        """
        import json

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            PAGE: self.page,
            JSON: json.dumps(versioned(self.to_dict()), indent=2, allow_nan=False) + "\n",
            EXCLUDED: csv_of_excluded(self.excluded, self.cells),
        }
        with together(None) as drafts:
            for name, text in texts.items():
                drafts.write(folder / name, text)
        return tuple(folder / name for name in texts)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        said = headline(self.recipes[0])
        return printable(f"<RecipeReport: {said.rstrip('.')}; print it for the table>")
