"""A coordinate check as one self-contained HTML page, as a chart, and as JSON."""

import json
import re
from pathlib import Path
from typing import Any

from depthmup.records import Check, Exponent, Outcome, deviation
from depthmup.records.codec import strict
from depthmup.reports.axes import Axis
from depthmup.reports.chart import Chart, Layer, draw
from depthmup.reports.files import write_text
from depthmup.reports.growth import growth_panel, growth_rows
from depthmup.reports.page import Card, Page, Plot, Section, Table
from depthmup.reports.sentences import UNKNOWN, folded
from depthmup.reports.theme import BAND, PAGE, tone


def write_check(check: Check, page: Path, data: Path) -> None:
    """Write the page and the JSON file."""
    write_text(page, check_page(check))
    write_text(data, json.dumps(strict(check), indent=2, allow_nan=False) + "\n")


def check_page(check: Check) -> str:
    """The check as one HTML page: what is off stands first, what is as predicted is folded."""
    off = [e for e in check.ordered if e.is_off]
    fine = [e for e in check.ordered if not e.is_off]
    sections = [Section(cards=_failures(check) or [_verdict_card(check)])]
    if check.failures and not check.applied:
        sections.append(
            Section(
                title="What to change",
                lead="Change the code of the model as the cards describe, or let a plan do it:",
                code=_APPLY.format(scheme=check.scheme, optimizer=check.optimizer),
            )
        )
    if off:
        sections += _evidence(check, off, "")
    if fine:
        judged = sum(e.outcome is Outcome.PASS for e in fine)
        sections.append(
            Section(
                title="As predicted",
                lead=(
                    f"{judged} exponents are as predicted"
                    + (f"; {len(fine) - judged} have no prediction." if judged < len(fine) else ".")
                ),
                details=_evidence(check, fine, "-passed"),
            )
        )
    return Page(
        title=f"Coordinate check of {check.title}",
        tab=f"{check.outcome.capitalize()}: {check.title}",
        headline=check.headline,
        sections=sections,
        facts={
            "": {
                "scheme": check.scheme,
                "optimizer": check.optimizer,
                "plan applied": check.applied,
                "widths": check.widths,
                "depths": check.depths,
                **check.along,
                "seeds": check.seeds,
                "steps": check.steps,
                "learning rate": check.lr,
                "seconds": round(check.seconds, 1),
            }
        },
        notes=check.notes,
    ).html()


_APPLY = """\
plan = depthmup.plan(model, base=base, scheme="{scheme}", optimizer="{optimizer}",
                     example_inputs=inputs)
plan.initialize(model)
optimizer = torch.optim.AdamW(plan.param_groups(model, lr), lr)
"""


def _failures(check: Check) -> list[Card]:
    """A card for each cause, with every exponent that it explains."""
    by_cause: dict[str, list[Exponent]] = {}
    for e in check.failures:
        by_cause.setdefault(e.cause or f"{e.module} {e.observable} {e.axis}", []).append(e)
    return [
        Card(
            title=" and ".join(dict.fromkeys(map(_module, of_cause))),
            verdict=str(of_cause[0].outcome),
            aside=f"{of_cause[0].observable} against {of_cause[0].axis}",
            text=[
                *(
                    f"Measured {_number(e)} {e.interval}, expected {_expected(e)}."
                    for e in of_cause
                ),
                *([f"Likely: {of_cause[0].cause}."] if of_cause[0].cause else []),
            ],
        )
        for of_cause in by_cause.values()
    ]


def _module(e: Exponent) -> str:
    """A module as a person calls it: in a sequence modules have numbers, and -1 is the last."""
    return re.sub(r"^-1(?=\.|$)", "last module", e.module)


def _number(e: Exponent) -> str:
    return f"{e.estimate.value:+.2f}"


def _expected(e: Exponent) -> str:
    return e.expected or UNKNOWN


def _verdict_card(check: Check) -> Card:
    says = {
        Outcome.PASS: "Every exponent that theory predicts is as predicted.",
        Outcome.UNDECIDED: (
            "Some intervals hold a rival exponent. Use more seeds, or larger sizes."
        ),
    }
    text = says.get(check.outcome, "")
    return Card(
        title=check.scheme,
        verdict=str(check.outcome),
        aside=check.optimizer,
        text=[text][: bool(text)],
    )


def _evidence(check: Check, exponents: list[Exponent], suffix: str) -> list[Section]:
    """Exponents as a chart of deviations, as measurements against size, and as numbers."""
    sizes = {"width": check.widths, "depth": check.depths, **check.along}
    axes = " and ".join(axis for axis, values in sizes.items() if len(values) > 1)
    judged = [e for e in exponents if e.outcome is not Outcome.SHOWN]
    predicted = [e for e in exponents if e.expected]
    panels = [
        Plot(
            name=f"growth{suffix}-{i}",
            title=f"{_module(e)}: {e.observable}, {e.outcome}",
            chart=draw(growth_panel(check, e), PAGE),
        )
        for i, e in enumerate(judged)
        if growth_rows(check, e)
    ]
    sections = []
    if predicted:
        sections.append(
            Section(
                title="Measured minus expected exponent",
                lead=(
                    f"One row per observable and dimension, with {check.confidence:.0%} intervals. "
                    f"Correct models lie in the grey band, ±{check.margin:g}, up to chance and "
                    "corrections of small sizes. The panel ends at ±1.25; all numbers are below."
                ),
                legend=[
                    (w, "●", tone(w)) for w in dict.fromkeys(str(e.outcome) for e in predicted)
                ],
                plots=[Plot(name=f"deviations{suffix}", chart=deviations(check, predicted))],
            )
        )
    if panels:
        sections.append(
            Section(
                title="The measurements",
                lead=(
                    f"Every judged observable against {axes}, as a multiple of its value at the "
                    "smallest size, log-log, a line per seed. A line along the dashed one scales "
                    f"as {check.scheme} predicts."
                ),
                plots=panels,
                layout="small",
            )
        )
    rows = [_row(e) for e in exponents]
    table = Table(
        rows=rows,
        name="Exponents",
        headings={"axis": "against", "outcome": "verdict"},
        numbers=("measured", "interval", "expected"),
        faint=("interval",),
        verdict="outcome",
    )
    return [*sections, Section(title="The numbers", table=table)]


def _row(e: Exponent) -> dict[str, str]:
    return {
        "module": _module(e),
        "observable": e.observable,
        "axis": e.axis,
        "measured": _number(e),
        "interval": e.interval,
        "expected": _expected(e),
        "outcome": str(e.outcome),
    }


_ROW = 34  # pixels: two lines of a name


def deviations(check: Check, exponents: list[Exponent]) -> Any:
    """Dots with intervals, around the margin."""
    rows = []
    for order, e in enumerate(exponents):
        centre = e.estimate.value - deviation(e)
        rows.append(
            {
                "name": folded(f"{_module(e)}: {e.observable} ({e.axis})", 32),
                "order": order,
                "value": deviation(e),
                "low": e.estimate.low - centre,
                "high": e.estimate.high - centre,
                "tone": tone(str(e.outcome)),
            }
        )
    tips = [("name", "observable", ""), *((key, key, "+.2f") for key in ("value", "low", "high"))]
    band = [{"least": -check.margin, "most": check.margin}]
    row: dict[str, Any] = {"rows": rows, "y": "name", "tone": "tone", "tips": tips}
    # A long interval must not squash the rest: it leaves the panel instead, which the text says.
    chart = Chart(
        layers=[
            Layer(mark="rect", rows=band, x="least", x2="most",
                  look={"color": BAND, "opacity": 0.6, "clip": True}),
            Layer(mark="rule", **row, x="low", x2="high", look={"clip": True}),
            Layer(mark="point", **row, x="value", look={"filled": True, "size": 50, "clip": True}),
        ],
        x=Axis(title="measured - expected", low=-1.25, high=1.25, format="~g"),
        y=Axis(names=True),
        description="Measured minus expected exponents",
        height=_ROW * len(rows),
    )  # fmt: skip
    return draw(chart, PAGE)
