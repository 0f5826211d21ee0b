"""What a study says beyond its drifts: rules judged, laws of all axes, notes, predictions."""

import math
from collections.abc import Callable, Iterable, Mapping

from depthmup.records import Estimate, JointLaw, Study
from depthmup.records.certificate import Certificate
from depthmup.records.finding import in_percent
from depthmup.reports.sentences import interval, number, significant
from depthmup.reports.study_rows import (
    Row,
    interval_columns,
    optimum_rows,
    point_rows,
    transfer_rows,
)


def rule_rows(study: Study) -> list[Row]:
    """What the measurements say of each published rule: one row per scheme and rule."""
    return [
        {
            "scheme": judged.scheme,
            "axis": judged.axis,
            "rule": judged.rule,
            "exponent": judged.exponent,
            "answer": judged.answer.value,
            **interval_columns("cost", judged.cost),
            "setting": judged.setting,
            "reach": judged.reach,
            "source": judged.source,
            "standing": judged.standing,
        }
        for judged in study.rules
    ]


def law_rows(study: Study) -> list[Row]:
    """The terms of the laws of all axes: one row per scheme and term."""
    return [
        {
            "scheme": law.scheme,
            "axis": term.axis,
            **interval_columns("exponent", term.estimate),
            "pooled": law.pooled,
        }
        for law in study.laws
        for term in (*law.exponents, *law.interactions)
    ]


def note_rows(study: Study) -> list[Row]:
    """What a reader must know of the runs: one row per note."""
    return [
        {
            "scheme": note.scheme,
            "defect": "" if note.defect is None else note.defect.value,
            "count": note.count,
            "sentence": note.text,
            "rows": " ".join(map(str, note.rows)),
        }
        for note in study.notes
    ]


def prediction_rows(certificates: Iterable[Certificate]) -> list[Row]:
    """The predictions at the target, and what published rules prescribe there."""
    rows: list[Row] = []
    for certificate in certificates:
        name = certificate.title or certificate.scheme
        rows.append(
            {
                "scheme": name,
                "rule": "these runs",
                **interval_columns("value", certificate.value),
                "penalty_bound": certificate.penalty.high,
                "refusals": " ".join(refusal.reason for refusal in certificate.refusals),
            }
        )
        rows += [{"scheme": name, "rule": r.rule, "value": r.rate} for r in certificate.rules]
    return rows


ROWS: Mapping[str, Callable[[Study], list[Row]]] = {
    "points": point_rows,
    "optima": optimum_rows,
    "transfers": transfer_rows,
    "rules": rule_rows,
    "laws": law_rows,
    "notes": note_rows,
}
"""Tables of a study by their names."""


def cost(estimate: Estimate) -> str:
    """A price in nats."""
    if math.isnan(estimate.value):
        return "–"
    if math.isinf(estimate.value):
        low = significant(estimate.low)
        return f"more than {low} nats: it may diverge" if estimate.low < math.inf else "it diverges"
    # Where there is an interval, digits that it does not resolve say nothing.
    value = number(estimate.value, 3) if interval(estimate) else significant(estimate.value)
    return f"{value} nats {interval(estimate, 3)}"


def bend_sentence(bend: Estimate) -> str:
    """Whether a drift changes along its axis, where that is shown; else nothing."""
    if not bend.known or not bend.outside(0, 0):
        return ""
    return f" With every doubling this change itself moves by {in_percent(bend)}."


def law_sentence(law: JointLaw) -> str:
    """The law of all axes, and what an error of an octave costs."""
    terms = (*law.exponents, *law.interactions)
    exponents = ", ".join(f"{t.axis} {in_percent(t.estimate)}" for t in terms)
    rests = (
        " It rests on all runs at once, as most sizes have too few rates for an optimum of their "
        "own."
        if law.pooled
        else ""
    )
    octave = (
        f" At the largest size half the best value costs {cost(law.half)}, twice {cost(law.twice)}."
        if law.half.known
        else ""
    )
    return f"All axes at once, per doubling: {exponents}.{rests}{octave}"


def span_sentence(certificate: Certificate) -> str:
    """How far published rules disagree at the target; empty where none speaks of it."""
    if not certificate.rules:
        return ""
    rates = sorted((r.rate, r.rule) for r in certificate.rules)
    low, high = rates[0], rates[-1]
    return (
        f"Published rules, started from the best value at the base, prescribe from {low[0]:.3g} "
        f"({low[1]}) to {high[0]:.3g} ({high[1]}) there: "
        f"a factor of {high[0] / low[0]:.2g} apart."
    )


def rejected_sentence(study: Study, scheme: str) -> str:
    """Which published rules a scheme's drift rejects; empty where none."""
    names = [r.rule for r in study.rules if r.scheme == scheme and r.answer.value == "rejected"]
    if not names:
        return ""
    return f"Rules that these runs reject along {study.axis}: {'; '.join(dict.fromkeys(names))}."
