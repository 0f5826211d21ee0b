"""A fit of a table as flat rows: what its charts draw, its frames hold and its text prints."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from depthmup.records import Estimate, Fit, GroupFit

Row = dict[str, Any]


def point_rows(fit: Fit) -> list[Row]:
    """Loss at each size and rate."""
    return [
        {
            "group": group.name,
            **group.optima[point.size].size,
            "log2_rate": point.log2_rate,
            "rate": 2.0**point.log2_rate,
            "loss": point.loss,
            "runs": point.runs,
        }
        for group in fit.groups
        for point in group.points
    ]


def optimum_rows(fit: Fit) -> list[Row]:
    """The best rate of each size."""
    return [
        {
            "group": group.name,
            **optimum.size,
            **_interval("log2_rate", optimum.log2_lr),
            "rate": 2.0**optimum.log2_lr.value,
            **_interval("loss", optimum.loss),
            "curvature": optimum.curvature.value,
            "place": optimum.place.value,
        }
        for group in fit.groups
        for optimum in group.optima
    ]


def exponent_rows(fit: Fit) -> list[Row]:
    """Exponents along single axes, and those of the joint law."""
    rows = []
    for group in fit.groups:
        for measured in group.exponents:
            rows.append(
                {
                    "group": group.name,
                    "axis": measured.axis,
                    "law": "one axis",
                    **_interval("exponent", measured.exponent),
                    **_interval("bend", measured.bend),
                    **_interval("kept_cost", measured.kept_cost),
                    "slices": len(measured.slices),
                    "verdict": measured.verdict.value,
                    "question": measured.question,
                }
            )
        terms = () if group.joint is None else (*group.joint.exponents, *group.joint.interactions)
        rows += [
            {
                "group": group.name,
                "axis": term.axis,
                "law": "joint",
                **_interval("exponent", term.estimate),
            }
            for term in terms
        ]
    return rows


def rule_rows(fit: Fit) -> list[Row]:
    """What the measurements say of each published rule."""
    return [
        {
            "group": group.name,
            "axis": judged.axis,
            "rule": judged.rule,
            "exponent": judged.exponent,
            "answer": judged.answer.value,
            **_interval("cost", judged.cost),
            "setting": judged.setting,
            "reach": judged.reach,
            "source": judged.source,
            "standing": judged.standing,
        }
        for group in fit.groups
        for judged in group.judgements
    ]


def finding_rows(fit: Fit) -> list[Row]:
    """What was wrong with the table."""
    return [
        {
            "group": group.name,
            "defect": finding.defect.value,
            "count": finding.count,
            "sentence": finding.sentence,
            "rows": " ".join(map(str, finding.rows)),
        }
        for group in fit.groups
        for finding in group.findings
    ]


def prediction_rows(fit: Fit) -> list[Row]:
    """The predictions at the target, the package's own and the published rules'."""
    return [row for group in fit.groups for row in _predictions(group)]


def _predictions(group: GroupFit) -> Iterator[Row]:
    certificate = group.prediction
    if certificate is None:
        return
    yield {
        "group": group.name,
        "rule": "this table",
        **_interval("rate", certificate.value),
        "penalty_bound": certificate.penalty.high,
        "refusals": " ".join(refusal.reason for refusal in certificate.refusals),
    }
    for rule in group.at_target:
        yield {"group": group.name, "rule": rule.rule, "rate": rule.rate}


def _interval(name: str, estimate: Estimate) -> Row:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


ROWS: Mapping[str, Callable[[Fit], list[Row]]] = {
    "points": point_rows,
    "optima": optimum_rows,
    "exponents": exponent_rows,
    "rules": rule_rows,
    "findings": finding_rows,
    "predictions": prediction_rows,
}
"""Tables by their names."""
