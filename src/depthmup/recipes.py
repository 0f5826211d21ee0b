"""The report of several values that were tuned together: what ``depthmup.fit`` gives for them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from depthmup._drafts import together
from depthmup._excluded import EXCLUDED, JSON, PAGE, csv_of_excluded, excluded_rows
from depthmup._meant import Meant
from depthmup.records import Verdict
from depthmup.records.certificate import Refusal
from depthmup.records.codec import encode, strict, versioned
from depthmup.records.note import Excluded
from depthmup.records.packages import installed, need
from depthmup.records.printable import printable
from depthmup.records.recipe import Recipe
from depthmup.records.search import SearchStory
from depthmup.reports.files import save_chart
from depthmup.reports.next_steps import twice_the_budget
from depthmup.reports.picture import Picture
from depthmup.reports.recipe import (
    NO_RECIPE,
    RECIPE_ROWS,
    WIDTH,
    headline,
    notebook_of,
    recipe_dict,
    recipe_page,
    recipe_text,
    search_sentence,
)
from depthmup.reports.recipe_planes import picture_of
from depthmup.reports.result import remove_certificates

if TYPE_CHECKING:
    import pandas as pd

CERTIFICATE = "certificate.json"

PREDICTED = 0.9
"""Of intervals at a target."""

Kind = Literal["optima", "drifts", "runs", "rules", "excluded"]


@dataclass(frozen=True, kw_only=True)
class RecipeReport(Meant):
    """The joint optimum of several tuned values at every size, and whether it transfers.

    Attributes:
        recipes: one for each group of the table, or the one that was searched.
        problems: groups without one, with the reason.
        excluded: rows of the table that were left out, with their reasons.
        cells: what those rows hold, by column.
        title: of the page.
        command: that made it.
        search: how the search went; none for a table.
        target: the size that a search predicts for, if there is one.
        refusals: why it predicts nothing there.
        config, environment: of a search.
        notes: on a search.
    """

    MEANT: ClassVar = {
        **dict.fromkeys(("runs", "trials"), 'report.to_pandas("runs")'),
        **dict.fromkeys(("table", "df", "to_df", "dataframe", "frame"), "report.to_pandas()"),
        **dict.fromkeys(("best", "best_lr", "optima"), 'report.to_pandas("optima")'),
        "drift": 'report.to_pandas("drifts")',
        "arguments": "report.recipe().arguments()",
        "to_json": "report.to_dict() or report.save(folder)",
        "show": "print(report)",
    }

    recipes: tuple[Recipe, ...]
    problems: tuple[tuple[str, str], ...] = ()
    excluded: tuple[Excluded, ...] = ()
    cells: Mapping[str, list[Any]] = field(default_factory=dict)
    title: str = "A recipe"
    command: Sequence[str] = ()
    search: SearchStory | None = None
    target: Mapping[str, float] | None = None
    refusals: tuple[Refusal, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def tuned_names(self) -> str:
        """What is tuned, in words."""
        if not self.recipes:
            return "several values"
        return " and ".join(one.name for one in self.recipes[0].tuned)

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
        if not self.recipes:
            raise ValueError(f"{NO_RECIPE} {self.problems[0][1]}")
        names = ", ".join(repr(one.name) for one in self.recipes)
        raise ValueError(f"Expected one of the groups {names}; got {name!r}.")

    @property
    def verdict(self) -> Verdict:
        """The first group's: transfers if its recipe does along every axis, drifts if along any."""
        return self.recipes[0].verdict if self.recipes else Verdict.UNDECIDED

    def summary(self, width: int | None = None) -> str:
        """The result as text.

        Args:
            width: of a terminal, in columns, into which tables are to fit.

        Returns:
            What to use, best values, drifts and costs, and what to know of the runs.
        """
        without = [f"{name}: {reason}" for name, reason in self.problems]
        told = [recipe_text(self.recipes, width)] if self.recipes else [NO_RECIPE]
        story = [search_sentence(self.search)] if self.search else []
        further = [fill(text, width or WIDTH) for text in (*without, *story, *self.notes)]
        if step := self._next:
            further.append(f"Next: {step[0]}\n    {step[1]}".rstrip())
        return printable("\n\n".join([*told, *further] if self.search else [*told, *without]))

    @property
    def _next(self) -> tuple[str, str] | None:
        """What decides where a budget ended the search; nothing where the recipe is decided."""
        if self.search is None or self.verdict is not Verdict.UNDECIDED:
            return None
        seconds = self.environment.get("seconds, all sessions")
        return twice_the_budget(self.search, self.command, seconds)

    @property
    def page(self) -> str:
        """The result as one HTML page that opens offline."""
        if self.search is None:
            return recipe_page(self.recipes, title=self.title, command=self.command)
        about = ("tuned", "question", "numerics", "untrained_loss")
        said = [self.config.get(name, ()) for name in about]
        settings = {name: value for name, value in self.config.items() if name not in about}
        return recipe_page(
            self.recipes,
            title=self.title,
            command=self.command,
            search=self.search,
            facts={"Configuration": settings, "Environment": self.environment},
            lead=[text for texts in said if isinstance(texts, list) for text in texts],
            notes=(*(f"{name}: {why}" for name, why in self.problems), *self.notes),
            step=self._next,
        )

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
                **self._of_search(),
            }
        )
        return found

    def _of_search(self) -> dict[str, Any]:
        """What a search has beside its recipe."""
        if self.search is None:
            return {}
        return {
            "search": encode(self.search),
            "config": dict(self.config),
            "environment": dict(self.environment),
            "notes": list(self.notes),
            "next": [{"do": step[0], "copy": step[1]}] if (step := self._next) else [],
            **({"certificate": self._certificate} if self.target else {}),
        }

    @property
    def _certificate(self) -> dict[str, Any]:
        """The recipe that is predicted for the target, or why none is."""
        rows = [row for one in self.recipes for row in RECIPE_ROWS["optima"](one)]
        return {
            "target": dict(self.target or {}),
            "issued": any(row["place"] == "predicted" for row in rows),
            "confidence": PREDICTED,
            "recipe": [row for row in rows if row["place"] == "predicted"],
            "refusals": [
                *({"reason": one.reason, "advice": one.advice} for one in self.refusals),
                *({"reason": why, "advice": ""} for _, why in self.problems),
            ],
        }

    def to_pandas(self, name: Kind = "optima") -> "pd.DataFrame":
        """A tidy table.

        ``optima``: the best values of every size, and of the target. ``drifts``: how each moves
        along each axis, what carrying it over costs, and the verdicts. ``rules``: what the drift of
        each says of published rules. ``runs``: all that were used. ``excluded``: the rows of the
        table that were left out.

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

    def plot(self, path: str | Path | None = None) -> Picture:
        """Draw the plane of two values: runs, contours of every size, and the optimum's path.

        Of more values a plane of every pair, the other values being at their best.

        Args:
            path: of a file to write, which ends in .svg, .pdf, .png or .html.

        Returns:
            The chart, which a notebook shows.

        Raises:
            ValueError: no recipe was found, or another suffix.
        """
        chart = picture_of(self.recipe())
        if path is not None:
            save_chart(chart, Path(path))
        return chart

    def save(self, folder: str | Path, *, formats: Collection[str] = ()) -> tuple[Path, ...]:
        """Write report.html, summary.json and, of a table, excluded.csv into a folder.

        A search with a target has a certificate.json, too. One of an earlier measurement there is
        removed.

        Args:
            folder: made where it is not there.
            formats: of the planes of all pairs as a file beside them, such as "svg".

        Returns:
            The paths of the files.

        Raises:
            ValueError: no recipe was found.
        """
        import json

        folder = Path(folder)
        planes = {f"plane.{kind}": self.plot() for kind in formats}
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            PAGE: self.page,
            JSON: json.dumps(versioned(self.to_dict()), indent=2, allow_nan=False) + "\n",
        }
        if self.search is None:
            texts[EXCLUDED] = csv_of_excluded(self.excluded, self.cells)
        elif self.target:
            certificate = versioned(strict(self._certificate))
            texts[CERTIFICATE] = json.dumps(certificate, indent=2, allow_nan=False) + "\n"
        with together() as drafts:
            for name, text in texts.items():
                drafts.write(folder / name, text)
            remove_certificates(drafts, folder, but=texts)
            for name, chart in planes.items():
                save_chart(chart, folder / name, files=drafts)
        return tuple(folder / name for name in (*texts, *planes))

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str | None:
        if not self.recipes or not installed("vl_convert"):
            return None  # a notebook shows the text
        return notebook_of(self.recipes)

    def __repr__(self) -> str:
        said = headline(self.recipes[0]) if self.recipes else NO_RECIPE
        return printable(f"<RecipeReport: {said.rstrip('.')}; print it for the table>")
