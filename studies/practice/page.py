"""A page that answers by looking: practices down, drifts with their intervals across."""

from collections.abc import Sequence
from dataclasses import replace

from depthmup.records import Estimate
from depthmup.records.finding import change, change_span
from depthmup.records.text import BAD, GOOD, OPEN
from depthmup.reports import example_study
from depthmup.reports.chart import Chart
from depthmup.reports.drift_chart import DRIFT_TIPS, forest
from depthmup.reports.page import Page, Plot, Section, Table
from depthmup.reports.study_rows import interval_columns
from depthmup.statistics import TOLERANCE
from studies.practice.table import AXES, Found, counts, headline

_TONES = {"breaks": BAD, "harmless": GOOD, "better": GOOD}


def chart_of(found: Sequence[Found], optimizer: str, axis: str) -> Chart:
    """Every entry's drift, the largest changes first, below that of the whole plan."""
    own = [f for f in found if (f.optimizer, f.axis) == (optimizer, axis) and f.drift.known]
    own = sorted(own, key=lambda f: -abs(f.change))
    whole = {"name": "the whole plan", "text": "", "tone": OPEN, **_columns(own[0].whole)}
    rows = [whole] + [
        {
            "name": f.entry.name,
            "text": f.verdict if f.verdict in ("breaks", "better") else "",
            "tone": _TONES.get(f.verdict, OPEN),
            **_columns(f.drift),
        }
        for f in own
    ]
    return forest(
        replace(example_study(), tolerance=TOLERANCE),
        rows,
        axis=axis,
        tips=[("name", "practice", ""), *DRIFT_TIPS, ("text", "verdict", "")],
        height=26 * len(rows) + 8,
        description=f"Drift of the best rate along {axis} under {optimizer}, by practice",
    )


def _columns(drift: Estimate) -> dict[str, object]:
    return dict(interval_columns("drift", drift))


def page_of(found: Sequence[Found], optimizers: Sequence[str]) -> Page:
    """Charts of every optimizer and axis, and a table to search."""
    rows = [
        {
            "practice": f.entry.name,
            "part": f.entry.part,
            "optimizer": f.optimizer,
            "axis": f.axis,
            "drift": change(f.drift.value),
            "95%": change_span(f.drift.low, f.drift.high),
            "changed by, octaves": f"{f.change:+.2f} ± {f.error:.2f}",
            "expected": f"{f.expected:+g}",
            "verdict": f.verdict,
            "why it was expected": f.entry.why,
        }
        for f in sorted(found, key=lambda f: (f.verdict != "breaks", -abs(f.change)))
        if f.drift.known
    ]
    return Page(
        title="Ordinary practice",
        headline=headline(found),
        lead=[
            "How the best learning rate moves per doubling of width or depth when one thing of the "
            "recipe is changed, with 95% intervals. In the grey band it stays.",
            counts(found),
        ],
        sections=[
            *(
                Section(
                    title=f"{optimizer.capitalize()}, along {axis}",
                    plots=[Plot(chart=chart_of(found, optimizer, axis))],
                )
                for optimizer in optimizers
                for axis in AXES
            ),
            Section(
                title="Every number",
                lead="Search it with your browser; copy it, or save it as CSV.",
                table=Table(
                    rows=rows,
                    name="Ordinary practice",
                    numbers=("drift", "95%", "changed by, octaves", "expected"),
                    wrapped=("why it was expected",),
                    verdict="verdict",
                ),
            ),
        ],
        command="python -m studies.practice --out runs/practice --page practice.html",
    )
