"""How the answer came: the rounds of a search, and the interval as it narrowed."""

import math
from collections.abc import Sequence
from typing import Any

from depthmup.records import LEARNING_RATE, Study, Tuned
from depthmup.records.finding import change, change_span, rate
from depthmup.records.search import Asked, SearchRound, SearchStory, Values
from depthmup.records.text import begin, counted
from depthmup.reports.axes import Axis
from depthmup.reports.chart import GREY, Chart, Layer, known
from depthmup.reports.charts import scheme_colours
from depthmup.reports.drift_chart import (
    DRIFT_TIPS,
    as_factors,
    band_rows,
    band_words,
    drift_axis,
)
from depthmup.reports.page import Plot, Section, Table
from depthmup.reports.sentences import UNKNOWN
from depthmup.reports.study_rows import Row, interval_columns, title_of, transfers

SHOWN = 6
"""Rates of one size from which on a round names the first and the last alone."""


def search_section(study: Study) -> Section:
    """The interval as it narrowed, over the rounds; nothing of a study without a search."""
    story = study.search
    return Section(
        title="How the search got there",
        lead=(
            f"{saved_sentence(story, study.tuned) if story else ''} The most informative runs came "
            f"first. {_ends(study, story) if story else ''}{_since(study, story)} Intervals "
            f"account for a look after every round. Grey: the tolerance, {band_words(study)}."
        ),
        plots=[Plot(chart=_narrowing_chart(study, story))] if story else [],
        details=_rounds(study, story) if story else [],
    )


def _ends(study: Study, story: SearchStory) -> str:
    """Why the search ended, where it did so for one reason; others head the rounds of a scheme."""
    ended = {t.scheme: story.ended.get(t.scheme, "").rstrip(".") for t in transfers(study)}
    if not all(ended.values()):
        return "The search waits for runs."
    if len(set(ended.values())) == 1:
        return f"It ended: {next(iter(ended.values()))}."
    return "Why it ended is below, for every scheme."


def _since(study: Study, story: SearchStory | None) -> str:
    """A sentence where a scheme's last round shows another drift than the study."""
    last = {one.scheme: one.drift(study.axis) for one in (story.rounds if story else ())}
    for transfer in transfers(study):
        drift, then = transfer.drift, last.get(transfer.scheme, transfer.drift)
        if drift.known and then.known and change(then.value) != change(drift.value):
            return " A round shows the drift as known then; the verdict uses all runs."
    return ""


def saved_sentence(story: SearchStory, tuned: Tuned = LEARNING_RATE) -> str:
    """How many runs were made, and what a grid would have taken."""
    if not story.work:
        return "Nothing was trained."
    runs = counted(story.runs, "run")
    return (
        f"{runs}; a full grid ({story.grid_rates} {tuned.plural}, {story.grid_seeds} seeds) would "
        f"take {story.grid_runs}, {story.saved:.1f} times the work."
    )


def _rounds(study: Study, story: SearchStory) -> list[Section]:
    """The rounds of the search for each scheme, folded."""
    sections = []
    for scheme in dict.fromkeys(t.scheme for t in transfers(study)):
        rows = [_row(study, r, story) for r in story.rounds if r.scheme == scheme]
        title, ended = title_of(study, scheme), story.ended.get(scheme, "")
        table = Table(
            rows=rows,
            name=f"Rounds of {title}",
            numbers=("Round", "Work", "Change", "Interval"),
            faint=("Interval",),
        )
        sections.append(Section(title=f"{title}: {len(rows)} rounds. {begin(ended)}", table=table))
    return sections


def _row(study: Study, one: SearchRound, story: SearchStory) -> dict[str, str]:
    drift = one.drift(study.axis)
    return {
        "Round": str(one.number),
        "Why": begin(one.why),
        "Runs": runs_of_round(one.asked),
        "Work": f"{one.work / story.work:.1%}" if story.work else "",
        "Change": change(drift.value) if drift.known else UNKNOWN,
        "Interval": change_span(drift.low, drift.high) if math.isfinite(drift.high) else "",
    }


def runs_of_round(asked: Sequence[Asked]) -> str:
    """The runs of a round: rates by size, in the order in which they were asked for."""
    groups: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    sizes = [size for size, _, _ in asked]
    varied = {a for size in sizes for a in size if len({other[a] for other in sizes}) > 1}
    for size, values, seeds in asked:
        axes = [a for a in size if a in varied] or list(size)[-1:]
        words = ", ".join(f"{a} {size[a]}" for a in axes)
        groups.setdefault((words, seeds), []).append(_value(values))
    return "; ".join(
        f"{words}: {', '.join(rates) if len(rates) < SHOWN else f'{rates[0]} … {rates[-1]}'} "
        f"({'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))})"
        for (words, seeds), rates in groups.items()
    )


def _value(log2: Values) -> str:
    """A value, or several that are tuned together."""
    if isinstance(log2, tuple):
        return f"({', '.join(rate(2.0**k) for k in log2)})"
    return rate(2.0**log2)


def _narrowing_chart(study: Study, story: SearchStory) -> Chart:
    """The drift's interval after every round, against the work done for the scheme so far."""
    rows, spent = list[Row](), dict[str, float]()
    for one in story.rounds:
        spent[one.scheme] = spent.get(one.scheme, 0.0) + one.work
        drift = one.drift(study.axis)
        if known(drift.value) and known(drift.high):
            rows.append(
                {
                    "title": title_of(study, one.scheme),
                    "number": one.number,
                    "why": one.why,
                    "work": spent[one.scheme] / story.work if story.work else 0.0,
                    **interval_columns("drift", drift),
                }
            )
    # Early intervals span whole octaves: the axis shows what the later ones have, and clips them.
    ends = [r["drift"] for r in rows] + [-4 * study.tolerance, 4 * study.tolerance]
    axis = drift_axis(study, min(ends) - 0.1, max(ends) + 0.1)
    rows = [{**row, **as_factors(row, axis)} for row in rows]
    last = {row["title"]: row for row in rows}
    colours, work = scheme_colours(study), [r["work"] for r in rows]
    tips = [("title", "scheme", ""), ("number", "round", ""), ("why", "why", ""), *DRIFT_TIPS]
    place: dict[str, Any] = {"x": "work", "y": "factor", "by": "title"}
    return Chart(
        layers=[
            Layer(mark="rect", rows=band_rows(study), y="least", y2="most", look=GREY),
            Layer(mark="rule", rows=rows, x="work", y="band_low", y2="band_high", by="title",
                  tips=tips, look={"strokeWidth": 4, "opacity": 0.35}),
            Layer(mark="line", rows=rows, **place, order="number",
                  look={"strokeWidth": 1.4, "opacity": 0.8}),
            Layer(mark="point", rows=rows, **place, tips=tips, look={"filled": True, "size": 34}),
            Layer(mark="text", rows=list(last.values()), **place, text="title",
                  look={"align": "right", "dy": -12, "fontWeight": "bold"}),
        ],
        x=Axis(
            title="share of the whole work",
            low=0.7 * min(work, default=0.1),
            high=1.3 * max(work, default=1.0),
            log=True,
            format=".1~%",
            grid=False,
        ),
        y=axis,
        colours={t.title: colours[t.scheme] for t in transfers(study)},
        height=260,
        description="The drift's interval after every round of the search",
    )  # fmt: skip
