"""A fit of a table as one self-contained HTML page: opens offline, asks no server for anything."""

from typing import Any

from depthmup.records import Fit, GroupFit, Place
from depthmup.records.fit import Exponent
from depthmup.reports.certificate import certificate_section, rate
from depthmup.reports.fit_charts import (
    MOST_PANELS,
    curve_panels,
    optimum_panel,
    residual_chart,
    span_chart,
)
from depthmup.reports.fit_text import bend_sentence, cost, fit_headline, span_sentence
from depthmup.reports.page import Card, Page, Plot, Section, Table
from depthmup.reports.sentences import interval, number, significant
from depthmup.reports.theme import configured


def fit_page(fit: Fit) -> str:
    """The page of a fit. Text from the table is escaped wherever it stands."""
    sections = [section for i, g in enumerate(fit.groups) for section in _group(fit, g, f"g{i}")]
    left_out = f"{fit.rows:,} rows, {fit.excluded:,} left out"
    if fit.excluded:
        left_out += " (excluded.csv has each with its reason)"
    base = (
        f"; values are those at the base of {fit.scheme}, and drifts are beyond what it scales"
        if fit.scheme
        else ""
    )
    verdict = next((g.verdict.value for g in fit.groups if not g.problem), "no result")
    return Page(
        title=fit.title,
        tab=f"{verdict.capitalize()}: {fit.title}",
        headline=fit_headline(fit),
        lead=[f"{left_out}. Intervals hold 95%{base}."],
        sections=sections,
        facts={"": {**fit.columns, "target": fit.target, "tolerance": fit.tolerance, **fit.code}},
        notes=fit.notes,
    ).html()


def notebook(fit: Fit) -> str:
    """The page in a frame of its own, for a notebook."""
    from markupsafe import escape

    page = escape(fit_page(fit))
    return f'<iframe srcdoc="{page}" width="100%" height="900" style="border:0"></iframe>'


def _group(fit: Fit, group: GroupFit, prefix: str) -> list[Section]:
    """What the page shows of one group of runs."""
    name = group.name or ("All runs" if len(fit.groups) > 1 else "")
    sections = [Section(title=name, part=True)] if name else []
    if group.problem:
        return [*sections, Section(text=[f"This group could not be fitted: {group.problem}"])]
    sections.append(Section(cards=[_card(measured) for measured in group.exponents]))
    for i, measured in enumerate(group.exponents):
        sections += _axis(fit, group, measured, f"{prefix}-{i}")
    if group.judgements:
        sections.append(_rules(group))
    if group.joint is not None:
        sections.append(_joint(fit, group, prefix))
    if group.prediction is not None:
        sections.append(certificate_section(group.prediction, name=f"{prefix}-certificate"))
        if group.at_target:
            sections.append(
                Section(
                    title="What published rules say there",
                    lead=span_sentence(group),
                    plots=[_plot(f"{prefix}-span", span_chart(fit, group, width="container"))],
                )
            )
    return [*sections, _findings(group), _optima(fit, group)]


def _plot(name: str, chart: Any, title: str = "") -> Plot:
    return Plot(name=name, title=title, chart=configured(chart))


def _card(measured: Exponent) -> Card:
    question = measured.question[:1].upper() + measured.question[1:]
    return Card(
        title=measured.axis,
        verdict=measured.verdict.value,
        aside=f"exponent {number(measured.exponent.value)} {interval(measured.exponent)}",
        text=[measured.why + bend_sentence(measured.bend)],
        notes=[
            f"{question}. Keeping the smallest size's best value costs "
            f"{cost(measured.kept_cost)} at the largest."
        ],
    )


def _axis(fit: Fit, group: GroupFit, measured: Exponent, prefix: str) -> list[Section]:
    """Optima along an axis, and the curves that they were read from."""
    title, axis = f"Along {measured.axis}", measured.axis
    if not measured.slices:
        return [Section(title=title, text=[measured.why])]
    dashed = any(judged.axis == axis for judged in group.judgements)
    more = len(measured.slices) - MOST_PANELS
    optimum = optimum_panel(fit, group, measured, width="container")
    panels = curve_panels(fit, group, measured, width="container")
    return [
        Section(
            title=title,
            lead=(
                f"Dots: the best {fit.tuned} of each size, with its interval. Lines: one slope for "
                "all slices."
                + (
                    " Dashed: published rules, started from the smallest size's best value."
                    if dashed
                    else ""
                )
            ),
            plots=[_plot(f"{prefix}-optimum", optimum)],
        ),
        Section(
            lead=(
                f"Loss against {fit.tuned}, a panel for each slice in which {axis} alone changes. "
                "Diamonds: the optimum with its interval; crosses on top: diverged, or far above."
                + (f" {more} slices more are in the frames." if more > 0 else "")
            ),
            plots=[
                _plot(f"{prefix}-curves-{i}", panel, str(panel.title))
                for i, panel in enumerate(panels)
            ],
            layout="panels",
        ),
    ]


def _rules(group: GroupFit) -> Section:
    rows = [
        {
            "rule": judged.rule,
            "axis": judged.axis,
            "exponent": number(judged.exponent, 3),
            "these data": judged.answer.value,
            "cost": cost(judged.cost),
            "presupposes": f"{judged.setting}.\nRange: {judged.reach}.",
            "source": f"{judged.source} ({judged.standing})",
        }
        for judged in group.judgements
    ]
    return Section(
        title="Published rules",
        lead=(
            "Consistent: the whole interval lies within the tolerance of the rule. Rejected: none "
            "of it does. The cost is what the rule would have cost on these data, from the "
            "smallest size to the largest."
        ),
        table=Table(
            rows=rows,
            name="Published rules",
            numbers=("exponent",),
            verdict="these data",
            wrapped=("presupposes", "source"),
        ),
    )


def _joint(fit: Fit, group: GroupFit, prefix: str) -> Section:
    joint = group.joint
    assert joint is not None
    terms = ", ".join(
        f"{t.axis} {number(t.estimate.value)} {interval(t.estimate)}"
        for t in (*joint.exponents, *joint.interactions)
    )
    rests = (
        " It rests on all runs at once, as most sizes have too few rates for an optimum of their "
        "own."
        if joint.pooled
        else " Below: what each optimum is off it; the band is ±0.1 octaves."
    )
    octaves = [cost(c) for c in group.octave_costs]
    halves = (
        f" At the largest size half the best value costs {octaves[0]}, twice {octaves[1]}."
        if octaves
        else ""
    )
    plots = []
    if not joint.pooled:
        plots = [_plot(f"{prefix}-residuals", residual_chart(fit, group, width="container"))]
    return Section(
        title="All axes at once",
        lead=f"One law of all sizes: {terms}.{rests}{halves}",
        plots=plots,
    )


def _findings(group: GroupFit) -> Section:
    items = []
    for f in group.findings:
        rows = f"Rows {', '.join(map(str, f.rows))}{', …' if f.count > len(f.rows) else ''}"
        items.append((f.defect.value, f.sentence, rows if f.rows else ""))
    items += [("", sentence, "") for sentence in group.confounded]
    fine = [] if items else ["Nothing was wrong with it: every row is used."]
    return Section(title="The table itself", items=items, text=fine)


def _optima(fit: Fit, group: GroupFit) -> Section:
    rows = [_optimum(fit, o) for o in group.optima]
    table = Table(
        rows=rows,
        name="Optima",
        numbers={*(rows[0] if rows else {})} - {"place"},
        faint=("95%",),
        unusual=[i for i, o in enumerate(group.optima) if o.place is not Place.INTERIOR],
    )
    return Section(title="The optima", table=table)


def _optimum(fit: Fit, optimum: Any) -> dict[str, str]:
    at = optimum.log2_lr
    return {
        **{axis: f"{v:g}" for axis, v in optimum.size.items()},
        f"best {fit.tuned}": rate(2.0**at.value) if at.known else "–",
        "95%": f"[{rate(2.0**at.low)}, {rate(2.0**at.high)}]" if at.known else "",
        "loss there": significant(optimum.loss.value),
        "place": optimum.place.value,
    }
