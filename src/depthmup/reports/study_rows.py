"""A study as flat rows: what charts draw, frames hold and tables print.

Rows of points, optima and verdicts say which window of training they belong to (0 is the first).
Numbers are the study's own, NaN where nothing could be measured.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from depthmup.records import (
    RUN_AXES,
    Curve,
    Defect,
    Estimate,
    JointLaw,
    Judgement,
    Note,
    Optimum,
    Study,
    Transfer,
    Window,
)
from depthmup.records.certificate import Certificate
from depthmup.records.gain import Gain

Row = dict[str, Any]

FEW = 3
"""Groups with one note from which on they are counted instead of listed."""


def _place(index: int, window: Window, scheme: str, title: str) -> Row:
    """The columns with which every row begins."""
    return {
        "window": index,
        "start": window.start,
        "stop": window.stop,
        "scheme": scheme,
        "title": title,
    }


def interval_columns(name: str, estimate: Estimate) -> Row:
    """The columns of an estimate and of the ends of its interval."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _columns(record: object, *names: str) -> Row:
    """Fields as columns: an estimate with the ends of its interval, a verdict as its word."""
    row: Row = {}
    for name in names:
        value = getattr(record, name)
        if isinstance(value, Estimate):
            row |= interval_columns(name, value)
        else:
            row[name] = value.value if isinstance(value, Enum) else value
    return row


def point_rows(study: Study) -> list[Row]:
    """Loss at each value of what is tuned: one row per window, scheme, size and value."""
    titles = _titles(study)
    return [
        {
            **_place(index, window, curve.scheme, titles[curve.scheme]),
            **curve.size,
            study.tuned.column: point.log2_lr,
            "loss": point.loss.value,
            "low": point.loss.low,
            "high": point.loss.high,
            "seeds": point.seeds,
            "diverged": point.diverged,
        }
        for index, window in enumerate(study.windows)
        for curve in window.curves
        for point in curve.points
    ]


def optimum_rows(study: Study) -> list[Row]:
    """The best value of what is tuned: one row per window, scheme and size."""
    return [
        {
            **_place(index, window, transfer.scheme, transfer.title),
            **optimum.size,
            study.tuned.column: optimum.log2_lr.value,
            "low": optimum.log2_lr.low,
            "high": optimum.log2_lr.high,
            **_columns(optimum, "loss", "place"),
        }
        for index, window in enumerate(study.windows)
        for transfer in window.transfers
        for optimum in transfer.optima
    ]


def transfer_rows(study: Study) -> list[Row]:
    """Drift, excess loss (``regret``) and verdict: one row per window and scheme."""
    return [
        {
            **_place(index, window, transfer.scheme, transfer.title),
            **_columns(transfer, "alpha", "gamma"),
            "axis": study.axis,
            **_columns(transfer, "drift", "regret", "bend", "verdict", "question", "why"),
        }
        for index, window in enumerate(study.windows)
        for transfer in window.transfers
    ]


def rule_rows(study: Study) -> list[Row]:
    """What the measurements say of each published rule: one row per scheme and rule."""
    judged = ("scheme", "axis", "rule", "exponent", "answer", "cost")
    about = ("setting", "reach", "source", "standing")
    return [_columns(rule, *judged, *about) for rule in study.rules]


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
        for term in law.exponents
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


def gain_rows(study: Study) -> list[Row]:
    """The gains at every size, and at the target: one row per pair and size."""
    return [row for gain in study.gains for row in rows_of_gain(gain)]


def ablation_rows(study: Study) -> list[Row]:
    """What every rule does: one row per rule and axis, at the largest size."""
    return [
        {
            "rule": one.rule,
            "of": one.of,
            "over": one.over,
            "added": one.added,
            "axis": along.axis,
            **along.size,
            **_columns(along, "whole", "drift", "change", "tuned", "as_trained", "verdict", "why"),
        }
        for one in study.ablations
        for along in one.along
    ]


def rows_of_gain(gain: Gain) -> list[Row]:
    """One gain at every size that was trained, then at the target, which has the verdict."""
    places = [(at.size, True, at.tuned, at.as_trained, "") for at in gain.sizes]
    verdict = gain.verdict.value
    places.append((gain.target, gain.trained, gain.tuned, gain.as_trained, verdict))
    return [
        {
            "of": gain.of,
            "over": gain.over,
            **size,
            "trained": trained,
            **interval_columns("tuned", tuned),
            **interval_columns("as_trained", carried),
            "verdict": said,
        }
        for size, trained, tuned, carried, said in places
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
    "gains": gain_rows,
    "ablations": ablation_rows,
}
"""Tables of a study by their names."""


def question(study: Study) -> tuple[str, ...]:
    """What was tuned, if not the learning rate, and which question was asked along batch or
    duration: a sentence each, none of learning rates along other axes.
    """
    keys = ("tuned", "question") if study.axis in RUN_AXES else ("tuned",)
    return tuple(sentence for key in keys for sentence in listed(study, key))


def listed(study: Study, name: str) -> list[str]:
    """A list of texts in the configuration; empty where it is none."""
    value = study.config.get(name, ())
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


def transfers(study: Study) -> tuple[Transfer, ...]:
    """The headline's findings, one per scheme, in the study's order."""
    if not study.windows:
        raise ValueError(
            "A report needs at least one window of training; this study has none. "
            "Give Study(windows=...) the window that the verdict is about, last."
        )
    return study.headline.transfers


def shown_rules(study: Study) -> list[Judgement]:
    """The rules that are shown: of many groups those judged by all together."""
    return [rule for rule in study.rules if study.together is None or not rule.scheme]


def shown_laws(study: Study) -> list[JointLaw]:
    """The laws that are shown: of many groups along one axis each is a drift of the table."""
    return [law for law in study.laws if study.together is None or len(law.exponents) > 1]


def title_of(study: Study, scheme: str) -> str:
    """The scheme's title, or its name where no finding gives one."""
    titles = {t.scheme: t.title for window in study.windows for t in window.transfers}
    return titles.get(scheme) or scheme


def verdicts_of(study: Study, scheme: str) -> list[str]:
    """The verdict on a scheme in every window of training; empty where a window has none."""
    found = ({t.scheme: t.verdict.value for t in window.transfers} for window in study.windows)
    return [verdicts.get(scheme, "") for verdicts in found]


def of_scheme(study: Study, scheme: str) -> str:
    """A scheme's name before what is said of it, where there are several."""
    return f"{title_of(study, scheme)}: " if scheme and len(transfers(study)) > 1 else ""


def noted(study: Study) -> list[str]:
    """The notes as sentences; what all groups share, and of many what several say, is one."""
    if study.together is None:
        said = [(note.scheme, note.text) for note in study.notes]
        schemes = {t.scheme for t in transfers(study)}
        shared = {text for _, text in said if {(s, text) for s in schemes} <= set(said)}
        lines = [
            text if text in shared else f"{of_scheme(study, scheme)}{text}" for scheme, text in said
        ]
        return list(dict.fromkeys(lines))
    alike: dict[object, list[Note]] = {}
    for note in study.notes:
        alike.setdefault(note.defect or note.text, []).append(note)
    lines = []
    for what, notes in alike.items():
        if len(notes) < FEW:
            lines += [f"{of_scheme(study, note.scheme)}{note.text}" for note in notes]
        elif isinstance(what, Defect):
            count = sum(note.count for note in notes)
            lines.append(f"{len(notes)} groups: {what.value}, {count} in all.")
        else:
            lines.append(f"{len(notes)} groups: {what}")
    return lines


def sizes(study: Study) -> tuple[float, ...]:
    """Every value along the study's axis that was measured, least first."""
    values = {size_of(study, curve) for window in study.windows for curve in window.curves}
    values |= {size_of(study, o) for w in study.windows for t in w.transfers for o in t.optima}
    return tuple(sorted(values))


def size_of(study: Study, measured: Curve | Optimum) -> float:
    """The size of what was measured, along the study's axis."""
    if study.axis not in measured.size:
        raise ValueError(
            f"A study along {study.axis} needs the {study.axis} of every curve and optimum; one "
            f"has {dict(measured.size)}."
        )
    return measured.size[study.axis]


def base_size(study: Study) -> float:
    """The size along the axis that hyperparameters are transferred from.

    It is ``study.config["base_depth"]`` (``"base_width"``) where that was measured, else the least.
    """
    measured, named = sizes(study), study.config.get(f"base_{study.axis}")
    if isinstance(named, int) and named in measured:
        return named
    return measured[0] if measured else 1


def _titles(study: Study) -> dict[str, str]:
    """The title of every scheme that has curves."""
    titles = {t.scheme: t.title for window in study.windows for t in window.transfers}
    for window in study.windows:
        for curve in window.curves:
            if curve.scheme not in titles:
                raise ValueError(
                    f"A curve is of scheme {curve.scheme!r}, for which there is no finding; there "
                    f"are findings for {', '.join(map(repr, titles)) or 'none'}. Give each curve "
                    "the scheme of one of the study's transfers."
                )
    return titles
