"""What each rule of a scheme does, in words, as rows, and as a chart."""

import math
import textwrap

from depthmup.records import Estimate, Study
from depthmup.records.ablation import Ablation, AlongAxis, Need
from depthmup.records.finding import change, change_span
from depthmup.records.sizes import size_number
from depthmup.records.text import MUTED, table_lines
from depthmup.reports.chart import Chart, known
from depthmup.reports.drift_chart import DRIFT_TIPS, band_words, forest
from depthmup.reports.page import Plot, Section, Table
from depthmup.reports.sentences import UNKNOWN, number
from depthmup.reports.study_rows import Row, interval_columns, title_of
from depthmup.reports.theme import tone
from depthmup.rules import FACTORS

_MOST = 4
"""Rules without effect that are still named."""

_SPARED = ("best loss", "95%", "drift, 95%")
"""Columns that a narrow terminal goes without, in this order; files have them all."""

_ADDED = {
    Need.NEEDED: "helps",
    Need.HARMFUL: "hurts",
    Need.NO_EFFECT: "without effect",
    Need.UNDECIDED: "undecided",
}
"""The verdicts on a rule that was added, in words."""


def verdict_words(one: Ablation | AlongAxis, *, added: bool) -> str:
    """The verdict on a rule in a word or two."""
    return _ADDED[one.verdict] if added else one.verdict.value


def ablation_sentence(study: Study) -> str:
    """Which rules are needed, in one line; empty where none was taken away."""
    found = study.ablations
    if not found:
        return ""
    added = found[0].added
    heads = {
        Need.NEEDED: "Helps alone" if added else "Needed here",
        Need.HARMFUL: "Hurts alone" if added else "Better without",
        Need.UNDECIDED: "Undecided",
        Need.NO_EFFECT: "Without effect",
    }
    parts = []
    for verdict, head in heads.items():
        rules = [one for one in found if one.verdict is verdict]
        named = ", ".join(_named(one) for one in rules)
        many = verdict is Need.NO_EFFECT and len(rules) > _MOST
        parts += [f"{head}: {len(rules) if many else named}."] if rules else []
    return " ".join(parts)


def _named(one: Ablation) -> str:
    """A rule; with what the loss is without it, where it is better."""
    words, at = FACTORS[one.rule], one.deciding
    gained = one.verdict is Need.HARMFUL and not one.added and at is not None
    return f"{words} ({loss_change(at.as_trained.value)})" if gained and at else words


def loss_change(gain: float) -> str:
    """A gain in nats as the change of the loss, in percent.

    Example:
        >>> loss_change(0.11), loss_change(-0.02), loss_change(0.0), loss_change(-math.inf)
        ('−10%', '+2.0%', '0%', 'diverges')
    """
    if math.isnan(gain):
        return UNKNOWN
    if gain < -7 or gain == math.inf:
        return "diverges" if gain < 0 else "trains"
    value = 100 * math.expm1(-gain)
    if abs(value) < 0.05:
        return "0%"
    places = max(1 - math.floor(math.log10(abs(value))), 0)
    return f"{'+' if value > 0 else ''}{number(value, min(places, 2))}%"


def _loss_span(gain: Estimate) -> str:
    """The interval of a change of the loss, the lower end first."""
    if not math.isfinite(gain.value):
        return ""
    return f"{loss_change(gain.high)} to {loss_change(gain.low)}"


def _cells(one: Ablation, along: AlongAxis) -> dict[str, str]:
    drift = along.drift
    return {
        "rule": FACTORS[one.rule],
        "at": f"{along.axis} {size_number(along.size[along.axis])}",
        "drift": change(drift.value) if drift.known else UNKNOWN,
        "drift, 95%": change_span(drift.low, drift.high) if drift.known else "",
        "best loss": loss_change(along.tuned.value),
        "handed on": loss_change(along.as_trained.value),
        "95%": _loss_span(along.as_trained),
        "verdict": verdict_words(along, added=one.added),
    }


def _rows(study: Study) -> list[dict[str, str]]:
    """All rules along every axis, then each change."""
    changes = [(one, along) for one in study.ablations for along in one.along]
    of_axes = {along.axis: along for _, along in reversed(changes)}
    first = [
        {
            **dict.fromkeys(_cells(*changes[0]), ""),
            "rule": _nothing(study),
            "at": f"{axis} {size_number(along.size[axis])}",
            "drift": change(along.whole.value) if along.whole.known else UNKNOWN,
            "drift, 95%": change_span(along.whole.low, along.whole.high),
        }
        for axis, along in sorted(of_axes.items())
    ]
    return [*first, *(_cells(one, along) for one, along in changes)]


def _nothing(study: Study) -> str:
    """What changes are compared with, as a row."""
    return "no rule" if study.ablations[0].added else "all rules"


def ablation_lines(study: Study, width: int) -> list[str]:
    """The table of rules, for a console."""
    found = study.ablations
    if not found:
        return []
    heads = {"drift, 95%": "95%"}
    return [
        *table_lines(_rows(study), width=width, spared=_SPARED, left=(0, 1), headings=heads),
        "",
        *textwrap.wrap(_lead(study), width),
    ]


def _lead(study: Study) -> str:
    """What the columns hold."""
    first = study.ablations[0]
    whole, what = title_of(study, first.over), study.tuned
    how = "added to" if first.added else "taken away from"
    return (
        f"One rule at a time is {how} {whole}. Drift: that of the best {what.name} per doubling; "
        f"within {band_words(study)} it stays. Loss: against {whole} at this size, each at its own "
        f"best {what.word}, and each with the {what.word} that the base hands on."
    )


def ablation_section(study: Study) -> Section:
    """The drift that each change leaves, along every axis; a rule that does not act has no row."""
    axes = dict.fromkeys(along.axis for one in study.ablations for along in one.along)
    which = "added" if study.ablations and study.ablations[0].added else "taken away"
    return Section(
        title="Which rules are needed?",
        lead=f"Drift of the best {study.tuned.name} with one rule {which}, with 95% intervals. "
        f"In the grey band, {band_words(study)}, it stays.",
        plots=[
            Plot(chart=chart, title=f"Along {axis}")
            for axis in axes
            if (chart := _chart(study, axis)) is not None
        ],
    )


def _chart(study: Study, axis: str) -> Chart | None:
    rows: list[Row] = []
    for one in study.ablations:
        for along in one.along:
            if along.axis == axis and not rows:
                whole = interval_columns("drift", along.whole)
                rows.append({"name": _nothing(study), **whole, "text": "", "tone": MUTED})
            if along.axis == axis:
                words = verdict_words(along, added=one.added)
                rows.append(
                    {
                        "name": FACTORS[one.rule],
                        **interval_columns("drift", along.drift),
                        "text": words if along.drift.known else f"{words}: {_unknown(along)}",
                        "tone": tone(words),
                        "lost": loss_change(along.as_trained.value),
                    }
                )
    if not any(known(row["drift"]) for row in rows):
        return None
    return forest(
        study,
        rows,
        axis=axis,
        tips=[
            ("name", "rule", ""),
            *DRIFT_TIPS,
            ("lost", "handed on", ""),
            ("text", "verdict", ""),
        ],
        height=52 * len(rows) + 8,
        description=f"Drift along {axis} with one rule changed",
    )


def _unknown(along: AlongAxis) -> str:
    """Why a change has no drift."""
    return "nothing trains" if along.as_trained.value == -math.inf else "no estimate"


def ablation_table(study: Study) -> Section:
    """The numbers of every rule."""
    why = [along.why for one in study.ablations for along in one.along]
    rows = _rows(study)
    rows = [
        {**row, "why": said}
        for row, said in zip(rows, [""] * (len(rows) - len(why)) + why, strict=True)
    ]
    return Section(
        title="Every rule",
        lead=_lead(study),
        table=Table(
            rows=rows,
            name="What every rule does",
            group="rule",
            numbers=("drift", "drift, 95%", "best loss", "handed on", "95%"),
            wrapped=("why",),
            verdict="verdict",
        ),
    )
