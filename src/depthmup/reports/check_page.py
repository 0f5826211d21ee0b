"""A coordinate check as one self-contained HTML page, as charts, and as JSON."""

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from depthmup._drafts import together
from depthmup.records import Check, Exponent, Outcome, deviation
from depthmup.records.codec import strict, versioned
from depthmup.reports.axes import Axis, size_axis
from depthmup.reports.chart import Chart, Layer
from depthmup.reports.figure import Figure, Kind, figure_style, picture
from depthmup.reports.next_steps import lines_to_paste
from depthmup.reports.page import Card, Page, Plot, Section, Table
from depthmup.reports.sentences import UNKNOWN, folded
from depthmup.reports.theme import BAND, INK, tone


def write_check(check: Check, page: Path, data: Path) -> None:
    """Write the page and the JSON file."""
    with together() as files:
        files.write(page, check_page(check))
        files.write(data, json.dumps(versioned(strict(check)), indent=2, allow_nan=False) + "\n")


def check_page(check: Check) -> str:
    """The check as one HTML page: what is off stands first, what is as predicted is folded."""
    off = [e for e in check.ordered if e.is_off]
    fine = [e for e in check.ordered if not e.is_off]
    sections = []
    if check.outcome is Outcome.UNDECIDED:
        lead, code = check.to_decide
        sections.append(Section(title="Next", lead=lead, code=code))
    elif todo := _NEXT.get((check.outcome, check.applied)):
        code = lines_to_paste(check.scheme, check.optimizer) if todo.endswith(":") else ""
        sections.append(Section(title="Next", lead=todo, code=code))
    outcome = Card(
        title=check.scheme,
        verdict=str(check.outcome),
        aside=check.optimizer,
        text=_SAYS.get(check.outcome, ()),
    )
    sections.append(Section(cards=_failures(check) or [outcome]))
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


_NEXT = {
    (Outcome.PASS, True): "Train with the plan, and with the learning rate of the base. "
    "`depthmup transfer` measures whether that rate transfers:",
    (Outcome.PASS, False): "Train the model as it is, with the learning rate of the base.",
    (Outcome.FAIL, False): "Change the model as the cards below describe, or let a plan do it:",
    (Outcome.FAIL, True): "Change the model as the cards below describe, then check again.",
}
"""What to do after an outcome, by whether a plan was applied; code follows a colon."""

_SAYS = {
    Outcome.PASS: ["Every exponent that theory predicts is as predicted."],
    Outcome.UNDECIDED: ["Some intervals also contain a wrong exponent."],
}


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
                    f"Measured {_number(e)} {_minus(e.interval)}, expected {_expected(e)}."
                    for e in of_cause
                ),
                *([f"Likely: {of_cause[0].cause}."] if of_cause[0].cause else []),
            ],
        )
        for of_cause in by_cause.values()
    ]


def _module(e: Exponent) -> str:
    """A module as a person calls it: in a sequence modules have numbers, and -1 is the last."""
    ends = {"-1": "last module", "-2": "last module but one"}
    return re.sub(r"^-[12](?=\.|$)", lambda match: ends[match[0]], e.module)


def _number(e: Exponent) -> str:
    return _minus(f"{e.estimate.value:+.2f}")


def _expected(e: Exponent) -> str:
    return _minus(e.expected) or UNKNOWN


def _minus(text: str) -> str:
    """Numbers with true minus signs."""
    return text.replace("-", "−")


def _evidence(check: Check, exponents: list[Exponent], suffix: str) -> list[Section]:
    """Exponents as a chart of deviations, as measurements against size, and as numbers."""
    sizes = {"width": check.widths, "depth": check.depths, **check.along}
    axes = " and ".join(axis for axis, values in sizes.items() if len(values) > 1)
    judged = [e for e in exponents if e.outcome is not Outcome.SHOWN]
    predicted = [e for e in exponents if e.expected]
    panels = [
        Plot(
            name=f"growth{suffix}-{i}",
            title=f"{_titled(e)}, {e.outcome}",
            chart=growth_panel(check, e),
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
    rows = [
        {
            "module": _module(e),
            "observable": e.observable,
            "axis": e.axis,
            "measured": _number(e),
            "interval": _minus(e.interval),
            "expected": _expected(e),
            "outcome": str(e.outcome),
        }
        for e in exponents
    ]
    table = Table(
        rows=rows,
        name="Exponents",
        headings={"axis": "against", "outcome": "verdict"},
        numbers=("measured", "interval", "expected"),
        faint=("interval",),
        verdict="outcome",
    )
    return [*sections, Section(title="The numbers", table=table)]


_ROW = 34  # pixels: two lines of a name


def deviations(check: Check, exponents: list[Exponent]) -> Chart:
    """Dots with intervals, around the margin."""
    rows = []
    for order, e in enumerate(exponents):
        centre = e.estimate.value - deviation(e)
        rows.append(
            {
                "name": folded(f"{_titled(e)} ({e.axis})", 26),
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
    return Chart(
        layers=[
            Layer(mark="rect", rows=band, x="least", x2="most",
                  look={"color": BAND, "opacity": 0.6, "clip": True}),
            Layer(mark="rule", **row, x="low", x2="high", look={"clip": True}),
            Layer(mark="point", **row, x="value", look={"filled": True, "size": 50, "clip": True}),
        ],
        x=Axis(title="measured − expected", low=-1.25, high=1.25, format="~g"),
        y=Axis(names=True),
        description="Measured minus expected exponents",
        height=_ROW * len(rows),
    )  # fmt: skip


def growth_rows(check: Check, exponent: Exponent) -> list[dict[str, Any]]:
    """The values of an observable by size and seed, as multiples of the smallest size's.

    Over the dimension that the exponent is not of, geometric means are taken; all seeds are divided
    by one number, so that their scatter is seen.
    """
    cells: dict[tuple[int, int], list[float]] = {}
    # A further axis is varied at the smallest width and depth, and these at its smallest value.
    fixed = {axis: min(values) for axis, values in check.along.items() if axis != exponent.axis}
    if exponent.axis in check.along:
        fixed |= {"width": min(check.widths), "depth": min(check.depths)}
    for size in check.sizes:
        if any(size.at(axis) != value for axis, value in fixed.items()):
            continue
        if (size.module, size.observable) == (exponent.module, exponent.observable):
            for seed, value in enumerate(size.seeds):
                at = size.at(exponent.axis)
                cells.setdefault((seed, at), []).append(math.log(value))
    means = {key: sum(logs) / len(logs) for key, logs in sorted(cells.items())}
    if not means:
        return []
    smallest = min(at for _, at in means)
    firsts = [mean for (_, at), mean in means.items() if at == smallest]
    first = sum(firsts) / len(firsts)
    return [
        {"size": at, "value": math.exp(mean - first), "seed": seed}
        for (seed, at), mean in means.items()
    ]


def growth_panel(check: Check, exponent: Exponent) -> Chart:
    """One observable against one dimension, log-log: a line per seed, dashed what is predicted."""
    rows = growth_rows(check, exponent)
    sizes = sorted({row["size"] for row in rows})
    predicted = [
        {"size": at, "value": (at / sizes[0]) ** float(Fraction(exponent.expected))}
        for at in (sizes if exponent.expected else ())
    ]
    # At least a factor of four is shown, so that noise does not look like growth.
    drawn = [row["value"] for row in (*rows, *predicted)]
    low, high = min(*drawn, 0.5) / 1.1, max(*drawn, 2.0) * 1.1
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    colour = {"color": tone(str(exponent.outcome))}
    place: dict[str, Any] = {"x": "size", "y": "value"}
    tips = [("size", exponent.axis, ""), ("value", "value", ".3g"), ("seed", "seed", "")]
    seeds = dict.fromkeys(sorted({row["seed"] for row in rows}), colour["color"])
    return Chart(
        layers=[
            Layer(mark="line", rows=predicted, **place,
                  look={"strokeDash": [5, 4], "color": INK, "strokeWidth": 1.6}),
            Layer(mark="line", rows=rows, **place, by="seed", look={"strokeWidth": 1.4}),
            Layer(mark="point", rows=rows, **place, by="seed", tips=tips,
                  look={"size": 18, "filled": True}),
        ],
        x=size_axis(exponent.axis, sizes),
        y=Axis(
            low=low,
            high=high,
            ticks=tuple(2.0**k for k in powers[:: max(1, len(powers) // 4)]),
            log=True,
            base=2,
            format=".3~g",
        ),
        colours=seeds,
        description=f"{_titled(exponent)} against {exponent.axis}",
        height=150,
    )  # fmt: skip


def check_figure(check: Check, *, kind: Kind = "paper") -> Figure:
    """The coordinate check as small multiples: every judged observable.

    Args:
        check: to draw.
        kind: paper (two panels beside each other) or slide (four).

    Returns:
        The figure.

    *Source:* the coordinate checks of Tensor Programs V (arXiv 2203.03466) Appendix D.1, with the
    exponent that the scheme predicts.

    Example:
        >>> from depthmup.reports import example_check
        >>> figure = check_figure(example_check())
        >>> "Every observable against width and depth" in figure.caption
        True
    """
    style, columns = figure_style(kind), 2 if kind == "paper" else 4
    assert isinstance(style.width, int)
    width = style.width // columns - 46  # less the labels of its axis
    judged = [e for e in check.exponents if e.outcome is not Outcome.SHOWN]
    plots = [
        # In lines: a name that is wider than its panel would be cut.
        Plot(title=folded(_titled(e), (width + 25) // 6), chart=growth_panel(check, e))
        for e in sorted(judged, key=lambda e: (e.axis != "width", e.module, e.observable))
        if growth_rows(check, e)
    ]
    panel = replace(style, width=width, height=round(width * 0.7))
    return Figure(
        chart=picture(plots, panel, columns=columns),
        caption=(
            "Every observable against width and depth, as a multiple of its value at the smallest "
            f"size, a line per seed; dashed, what {check.scheme} predicts. {check.headline}"
        ),
    )


def _titled(exponent: Exponent) -> str:
    return f"{_module(exponent)}: {exponent.observable}"
