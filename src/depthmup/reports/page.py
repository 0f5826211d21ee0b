"""A page is a headline and sections; a section has cards, charts, a table, text or parts.

One template makes all pages: each is one HTML file that opens offline and asks no server for
anything. All text is escaped.
"""

import itertools
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from depthmup.records.text import html_card
from depthmup.reports import theme
from depthmup.reports.chart import Chart, specification
from depthmup.reports.html import facts, library, page_spec, render, script_json

Row = Mapping[str, Any]

Sign = tuple[str, str, str]
"""An entry of a legend: what it stands for, its sign, and its colour if it has one."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A verdict in a frame of its colour.

    Attributes:
        title: what it is about.
        verdict: a word that ``theme.TONES`` has.
        symbol: before the word.
        aside: beside it.
        text: sentences.
        notes: sentences that matter less.
    """

    title: str
    verdict: str
    symbol: str = ""
    aside: str = ""
    text: Sequence[str] = ()
    notes: Sequence[str] = ()


def card_html(card: Card) -> str:
    """A card for a notebook."""
    return html_card(card.title, card.verdict, [*card.text, *card.notes])


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A chart on a page.

    Attributes:
        chart: a ``Chart``, a ``Picture``, or one of Altair's.
        title: above it, if the section's own does not say enough.
        lead: below the title.
        legend: of its lines, on screens that have no room for labels beside them.
        name: of its element and of the files that it is saved to; made up unless given.
        verdicts: words beside the title, one for each window of training.
        fixed: whether it keeps its width, and scrolls where the screen is narrower.
    """

    chart: Any
    title: str = ""
    lead: str = ""
    legend: Sequence[Sign] = ()
    name: str = ""
    verdicts: Sequence[str] = ()
    fixed: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under headings; a reader can copy them, and save them as CSV.

    What follows a line break in a cell is shown below the rest, and fainter.

    Attributes:
        rows: with the same keys, each a column.
        headings: of columns, where the key is none.
        numbers: columns that are set flush right.
        faint: columns that matter less.
        wrapped: columns whose text takes several lines.
        verdict: the column of verdicts, which have their colours.
        unusual: numbers of rows whose last cell is marked.
        group: the column whose equal neighbours are one cell.
        name: of the table for a reader who does not see it, and of its file.
    """

    rows: Sequence[Row]
    headings: Mapping[str, str] = field(default_factory=dict)
    numbers: Collection[str] = ()
    faint: Collection[str] = ()
    wrapped: Collection[str] = ()
    verdict: str = ""
    unusual: Collection[int] = ()
    group: str = ""
    name: str = "numbers"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.rows[0]) if self.rows else tuple(self.headings)

    @property
    def groups(self) -> list[list[tuple[int, Row]]]:
        """The rows with their numbers, those of one group together."""
        by_group = itertools.groupby(enumerate(self.rows), key=lambda row: row[1].get(self.group))
        return [list(rows) for _, rows in by_group]


Layout = Literal["wide", "pair", "panels", "small"]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page.

    Attributes:
        title: the heading.
        lead: below it.
        cards, plots, table, text, items, code: what it shows, in this order; items are list entries
            of a word, a sentence and a remark.
        legend, legend_of: of all plots, and what its entries are.
        layout: of the plots.
        facts: settings by the titles of their lists.
        details: sections that are folded until a reader opens them.
        part: whether the heading is that of all sections up to the next such one.
    """

    title: str = ""
    lead: str = ""
    cards: Sequence[Card] = ()
    legend: Sequence[Sign] = ()
    legend_of: str = ""
    plots: Sequence[Plot] = ()
    layout: Layout = "wide"
    table: Table | None = None
    text: Sequence[str] = ()
    items: Sequence[tuple[str, str, str]] = ()
    code: str = ""
    facts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    details: "Sequence[Section]" = ()
    part: bool = False


@dataclass(frozen=True, kw_only=True)
class Page:
    """A headline, and the sections that it rests on.

    Attributes:
        title: what the page is about.
        headline: the answer, in a sentence.
        sections: in order.
        tab: the title of the browser's tab; the page's own unless given.
        lead: sentences below the headline.
        facts: settings by the titles of their lists.
        notes: sentences at the end.
        command: that makes it again.
        files: names of files of numbers beside the page.
        windows: of training, in words, of which all charts show one at a time.
        windows_note: what follows the words of the window shown.
        axes: of sizes, whose columns tell the points of charts apart.
    """

    title: str
    headline: str
    sections: Sequence[Section] = ()
    tab: str = ""
    lead: Sequence[str] = ()
    facts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    command: str | Sequence[str] = ""
    files: Sequence[str] = ()
    windows: Sequence[str] = ()
    windows_note: str = ""
    axes: Sequence[str] = ()

    def html(self) -> str:
        """One self-contained HTML file.

        Example:
            >>> table = Table(rows=[{"depth": "8", "loss": "0.48"}])
            >>> section = Section(title="Losses", table=table)
            >>> page = Page(title="Two runs", headline="Deeper is better.", sections=[section])
            >>> "Deeper is better." in page.html() and "0.48" in page.html()
            True
        """
        sections = _named(self.sections, itertools.count())
        plots = [plot for section in sections for plot in _plots(section)]
        command = self.command
        if not isinstance(command, str):
            command = shlex.join(map(str, command))
        shown = [plot for plot in plots if plot.verdicts]
        return render(
            "page.html.j2",
            page=replace(self, sections=sections, command=command),
            tone=theme.tone,
            facts_of=_facts,
            json=script_json,
            charts={plot.name: spec_of(plot) for plot in plots},
            verdicts=[
                [{"text": w, "tone": theme.tone(w) if w else ""} for w in at]
                for at in zip(*(plot.verdicts for plot in shown), strict=True)
            ],
            library=library() if plots else "",
        )


def spec_of(plot: Plot) -> dict[str, Any]:
    """The Vega-Lite specification of a plot on a page."""
    if isinstance(plot.chart, Chart):
        return specification(plot.chart, theme.PAGE)
    if not plot.fixed:
        return page_spec(plot.chart)
    spec: dict[str, Any] = plot.chart.to_dict()
    return spec


def _facts(lists: Mapping[str, Mapping[str, object]]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(name, pairs) for name, mapping in lists.items() if (pairs := facts(mapping))]


def _named(sections: Sequence[Section], count: Iterator[int]) -> list[Section]:
    """The sections, every plot with a name."""
    return [
        replace(
            section,
            plots=[replace(p, name=p.name or f"chart-{next(count)}") for p in section.plots],
            details=_named(section.details, count),
        )
        for section in sections
    ]


def _plots(section: Section) -> Iterator[Plot]:
    yield from section.plots
    for inner in section.details:
        yield from _plots(inner)
