"""Drifts per doubling as factors, with their intervals around the tolerance."""

import math
from collections.abc import Mapping, Sequence

from depthmup.records import Study
from depthmup.records.finding import change_span, exp2
from depthmup.reports.axes import Axis, change_axis
from depthmup.reports.chart import DASHED, GREY, Chart, Layer, Tip, band_of, known
from depthmup.reports.page import Plot, Section
from depthmup.reports.sentences import folded
from depthmup.reports.study_rows import Row, interval_columns, transfer_rows, transfers
from depthmup.reports.theme import tone


def drift_section(study: Study) -> Section:
    """The drift of every scheme with its interval, around the tolerance."""
    return Section(
        title="Does the interval stay inside the band?",
        lead=(
            f"Change of the best {study.tuned.name} per doubling of {study.axis}, with 95% "
            "intervals. A scheme transfers when its whole interval lies in the grey band, "
            f"{band_words(study)}; it drifts when the whole interval lies outside."
        ),
        plots=[Plot(chart=_chart(study))],
    )


def _chart(study: Study) -> Chart:
    rows = [*_together(study), *transfer_rows(study)]
    titles = [t.title for t in transfers(study)]
    names = {
        t.scheme: folded(t.title if titles.count(t.title) == 1 else f"{t.title} [{t.scheme}]")
        for t in transfers(study)
    }
    names = {r["scheme"]: r["title"] for r in _together(study)} | names
    order = list(names)
    for row in rows:
        row["order"] = order.index(row["scheme"]) if row["scheme"] in names else len(names)
        row["name"] = names.get(row["scheme"], row["title"])
        row["text"] = row["verdict"] if known(row["drift"]) else f"{row['verdict']}: no estimate"
        row["tone"] = tone(str(row["verdict"]))
    return forest(
        study,
        rows,
        axis=study.axis,
        tips=[("title", "scheme", ""), ("change", "per doubling", "+.1%"), *DRIFT_TIPS, VERDICT],
        height=sum(max(52, 15 * n.count("\n") + 45) for n in names.values()) + 8,
        description="Drift per scheme with its 95% interval",
    )


def forest(
    study: Study,
    rows: Sequence[Row],
    *,
    axis: str,
    tips: Sequence[Tip],
    height: int,
    description: str,
) -> Chart:
    """Drifts below each other, each with its interval, name and words, around the tolerance."""
    ends = [r["drift"] for r in rows if known(r["drift"])]
    ends += [-2 * study.tolerance, 2 * study.tolerance]
    # Intervals too, unless they are so wide that they would squash the estimates.
    reach = 1.5 * max(map(abs, ends))
    between = [row[end] for row in rows for end in ("drift_low", "drift_high")]
    ends += [min(max(v, -reach), reach) for v in between if known(v)]
    air = 0.12 * (max(ends) - min(ends)) or 1.0
    x = change_axis(min(ends) - air, max(ends) + air, f"change per doubling of {axis}")
    for row in rows:
        row |= as_factors(row, x)
        row["change"] = row["factor"] - 1
        row["text_at"] = row["factor"] if known(row["drift"]) else 1.0
        row["side"] = _side(math.log2(row["text_at"]), NEAR * (max(ends) - min(ends) + 2 * air))
        if not known(row["drift"]):  # words alone, which are long, stand where there is room
            row["side"] = "left" if -min(ends) > max(ends) else "right"
    return Chart(
        layers=[
            Layer(mark="rect", rows=band_rows(study), x="least", x2="most", look=GREY),
            Layer(mark="rule", rows=band_rows(study), x="zero", look=DASHED),
            Layer(mark="rule", rows=rows, x="band_low", x2="band_high", y="name", tone="tone",
                  look={"strokeWidth": 9, "opacity": 0.4}),
            Layer(mark="point", rows=rows, x="factor", y="name", tone="tone", tips=tips,
                  look={"filled": True, "size": 40}),
            *(Layer(mark="text", rows=rows, x="text_at", y="name", tone="tone", text="text",
                    where=f"datum.side === '{side}'", look={"dy": -14, "fontWeight": "bold", **at})
              for side, at in SIDES.items()),
        ],
        x=x,
        y=Axis(names=True),
        height=height,
        description=description,
    )  # fmt: skip


NEAR = 0.15
"""Of the chart's width: what a verdict reaches to both sides, on a phone."""

SIDES: Mapping[str, Mapping[str, str | int]] = {
    "both": {},
    "left": {"align": "right", "dx": -4},
    "right": {"align": "left", "dx": 4},
}


def _side(drift: float, near: float) -> str:
    """On which side of its point a verdict is written: not across the line of no drift."""
    if abs(drift) >= near:
        return "both"
    return "left" if drift < 0 else "right"


def _together(study: Study) -> list[Row]:
    """What all groups of a table show together, as the first row of theirs."""
    together = study.together
    if together is None:
        return []
    row = {"window": 0, "scheme": "", "title": f"All {together.groups} together"}
    interval = interval_columns("drift", together.mean)
    return [{**row, **interval, "verdict": together.verdict.value}]


def band_words(study: Study) -> str:
    """The tolerance around no drift, in percent."""
    return change_span(-study.tolerance, study.tolerance)


VERDICT: Tip = ("verdict", "verdict", "")

DRIFT_TIPS: Sequence[Tip] = [
    ("drift", "octaves", "+.3f"),
    ("drift_low", "from", "+.3f"),
    ("drift_high", "to", "+.3f"),
]


def drift_axis(study: Study, low: float, high: float) -> Axis:
    """The axis of drifts between two of them, as factors."""
    return change_axis(low, high, f"change per doubling of {study.axis}")


def band_rows(study: Study) -> list[Row]:
    """The tolerance around no drift, as factors."""
    return [{"least": 2.0**-study.tolerance, "most": 2.0**study.tolerance, "zero": 1.0}]


def as_factors(row: Row, axis: Axis) -> Row:
    """A row's drift and its interval as factors per doubling, clipped to the axis."""
    ends = {end: exp2(row[f"drift_{end}"]) for end in ("low", "high")}
    return {"factor": exp2(row["drift"]), **band_of(ends, "low", "high", axis)}
