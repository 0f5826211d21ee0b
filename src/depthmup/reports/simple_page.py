"""Pages of one result: a headline, charts and tables, and how they were made."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from depthmup.reports.html import facts as settings
from depthmup.reports.html import library, page_spec, render, script_json


@dataclass(frozen=True, kw_only=True)
class PageSection:
    """A chart or a table under its heading.

    ``fixed`` charts keep their own width and scroll where the screen is narrower; others take the
    width of the page. ``numbers`` are the columns that are set flush right.

    Attributes:
        title: the heading.
        lead: a paragraph below it.
        chart: if there is one.
        columns, rows: of the table, if there is one.
    """

    title: str
    lead: str = ""
    chart: Any = None
    fixed: bool = False
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    numbers: Sequence[str] = ()


def simple_page(
    *,
    title: str,
    headline: str,
    sections: Sequence[PageSection],
    lead: Sequence[str] = (),
    facts: Mapping[str, object] | None = None,
    notes: Sequence[str] = (),
    command: Sequence[str] = (),
    data: str = "",
) -> str:
    """One self-contained HTML page; it opens offline and asks no server for anything.

    Args:
        title: of the page.
        headline: the answer, in one sentence.
        sections: charts and tables, in order.
        lead: sentences below the headline.
        facts: settings, as labels and values.
        notes: sentences at the end.
        command: that made it.
        data: name of the file of numbers beside the page.

    Returns:
        The HTML, with all text escaped.

    Example:
        >>> section = PageSection(title="Losses", columns=("depth", "loss"), rows=[("8", "0.48")])
        >>> text = simple_page(title="Two runs", headline="Deeper is better.", sections=[section])
        >>> "Deeper is better." in text and "0.48" in text
        True
    """
    charts: dict[str, Any] = {}
    shown = []
    for number, section in enumerate(sections):
        name = f"chart-{number}" if section.chart is not None else ""
        if name:
            spec = section.chart.to_dict() if section.fixed else page_spec(section.chart)
            spec.pop("title", None)
            charts[name] = spec
        shown.append(
            {
                "title": section.title,
                "lead": section.lead,
                "chart": name,
                "fixed": section.fixed,
                "columns": list(section.columns),
                "rows": [list(row) for row in section.rows],
                "numbers": list(section.numbers),
            }
        )
    return render(
        "simple.html.j2",
        title=title,
        headline=headline,
        lead=list(lead),
        sections=shown,
        facts=settings(facts or {}),
        notes=list(notes),
        command=shlex.join(command),
        data=data,
        charts=script_json(charts) if charts else "",
        library=library() if charts else "",
    )
