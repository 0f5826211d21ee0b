"""A fit of a table as one self-contained HTML page: opens offline, asks no server for anything."""

from typing import Any

from depthmup.records import Fit, GroupFit
from depthmup.reports.certificate import certificate_section, rate
from depthmup.reports.fit_charts import (
    MOST_PANELS,
    curve_panels,
    optimum_panel,
    residual_chart,
    span_chart,
)
from depthmup.reports.fit_text import (
    bend_sentence,
    cost,
    fit_headline,
    group_headline,
    span_sentence,
)
from depthmup.reports.html import facts, library, page_spec, render, script_json
from depthmup.reports.sentences import interval, number, significant
from depthmup.reports.style import VERDICT_COLOURS, configured

_TONES = {"consistent": "#00734f", "rejected": "#a83f00", "cannot tell": "#5b6472"}


def fit_page(fit: Fit) -> str:
    """The page of a fit. Text from the table is escaped wherever it stands."""
    charts: dict[str, Any] = {}
    groups = [_group(fit, group, f"g{i}", charts) for i, group in enumerate(fit.groups)]
    return render(
        "fit.html.j2",
        title=fit.title,
        headline=fit_headline(fit),
        tuned=fit.tuned,
        rows=f"{fit.rows:,}",
        excluded=f"{fit.excluded:,}",
        scheme=fit.scheme,
        groups=groups,
        notes=fit.notes,
        facts=facts({**fit.columns, "target": fit.target, "tolerance": fit.tolerance, **fit.code}),
        charts=script_json(charts),
        library=library(),
    )


def notebook(fit: Fit) -> str:
    """The page in a frame of its own, for a notebook."""
    from markupsafe import escape

    page = escape(fit_page(fit))
    return f'<iframe srcdoc="{page}" width="100%" height="900" style="border:0"></iframe>'


def _group(fit: Fit, group: GroupFit, prefix: str, charts: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of one group; its charts are added to those of the page."""
    from markupsafe import Markup

    if group.problem:
        return {"name": group.name or "The table", "problem": group.problem}
    axes = []
    for number_, measured in enumerate(group.exponents):
        panels = []
        for i, panel in enumerate(curve_panels(fit, group, measured, width="container")):
            name = f"{prefix}-curves-{number_}-{i}"
            panels.append({"id": name, "title": str(panel.title)})
            charts[name] = _spec(panel)
        optimum = ""
        if measured.slices:
            optimum = f"{prefix}-optimum-{number_}"
            panel = optimum_panel(fit, group, measured, width="container")
            charts[optimum] = _spec(panel)
        axes.append(_axis(measured, panels, optimum, group))
    residuals = ""
    if group.joint is not None and not group.joint.pooled:
        residuals = f"{prefix}-residuals"
        chart = residual_chart(fit, group, width="container")
        charts[residuals] = _spec(chart)
    prediction = span = ""
    if group.prediction is not None:
        section = certificate_section(group.prediction, identity=f"{prefix}-certificate")
        prediction = Markup(section.html)
        charts.update(section.charts)
        if group.at_target:
            span = f"{prefix}-span"
            charts[span] = _spec(span_chart(fit, group, width="container"))
    return {
        "name": group.name,
        "problem": "",
        "headline": group_headline(fit, group),
        "runs": f"{group.runs:,}",
        "seeds": group.seeds,
        "axes": axes,
        "joint": _joint(group),
        "residuals": residuals,
        "pooled": group.joint is not None and group.joint.pooled,
        "rules": [_rule(judged) for judged in group.judgements],
        "findings": [(f.defect.value, f.count, f.sentence, f.rows) for f in group.findings],
        "confounded": group.confounded,
        "optima": [_optimum(o) for o in group.optima],
        "size_axes": list(group.optima[0].size) if group.optima else [],
        "octaves": [cost(c) for c in group.octave_costs],
        "prediction": prediction,
        "span": span,
        "span_sentence": span_sentence(group) if group.at_target else "",
    }


def _spec(chart: Any) -> dict[str, Any]:
    """A chart of the page; its legends stand below each other, so that a telephone shows them."""
    spec = page_spec(configured(chart))
    spec["config"]["legend"]["layout"] = {"bottom": {"direction": "vertical", "anchor": "start"}}
    return spec


def _axis(
    measured: Any, panels: list[dict[str, str]], optimum: str, group: GroupFit
) -> dict[str, Any]:
    more = len(measured.slices) - MOST_PANELS
    return {
        "axis": measured.axis,
        "question": measured.question,
        "exponent": number(measured.exponent.value),
        "interval": interval(measured.exponent),
        "verdict": measured.verdict.value,
        "tone": VERDICT_COLOURS[measured.verdict.value],
        "why": measured.why + bend_sentence(measured.bend),
        "kept": cost(measured.kept_cost),
        "panels": panels,
        "more": f"{more} slices more are in the frames." if more > 0 else "",
        "optimum": optimum,
        "rules": any(judged.axis == measured.axis for judged in group.judgements),
    }


def _joint(group: GroupFit) -> list[tuple[str, str, str]]:
    if group.joint is None:
        return []
    terms = (*group.joint.exponents, *group.joint.interactions)
    return [(t.axis, number(t.estimate.value), interval(t.estimate)) for t in terms]


def _rule(judged: Any) -> dict[str, str]:
    return {
        "rule": judged.rule,
        "axis": judged.axis,
        "exponent": number(judged.exponent, 3),
        "answer": judged.answer.value,
        "tone": _TONES[judged.answer.value],
        "cost": cost(judged.cost),
        "setting": judged.setting,
        "reach": judged.reach,
        "source": f"{judged.source} ({judged.standing})",
    }


def _optimum(optimum: Any) -> dict[str, Any]:
    at = optimum.log2_lr
    return {
        "size": [f"{v:g}" for v in optimum.size.values()],
        "rate": rate(2.0**at.value) if at.known else "–",
        "interval": f"[{rate(2.0**at.low)}, {rate(2.0**at.high)}]" if at.known else "",
        "loss": significant(optimum.loss.value),
        "place": optimum.place.value,
        "usual": optimum.place.value == "interior",
    }
