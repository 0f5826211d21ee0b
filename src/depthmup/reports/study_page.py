"""One self-contained HTML page from a study: opens offline, asks no server for anything."""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from depthmup.records import RUN_AXES, Estimate, Place, Study, Transfer, Verdict
from depthmup.records.certificate import Certificate
from depthmup.records.finding import rate
from depthmup.records.sizes import size_number, size_text
from depthmup.reports.ablation import ablation_sentence, ablation_table
from depthmup.reports.certificate import at_target, certificate_section
from depthmup.reports.charts import scheme_colours, size_colours
from depthmup.reports.gain import gain_table
from depthmup.reports.next_steps import next_steps
from depthmup.reports.page import Card, Page, Section, Table, spec_of
from depthmup.reports.rules_section import CONSISTENT, judged_cells, rules_section
from depthmup.reports.sentences import (
    PLACES,
    advice,
    base_sentence,
    bend_sentence,
    best_rate,
    cost,
    headline,
    interval,
    law_sentence,
    loss_word,
    number,
    of_command,
    rate_interval,
    regret_sentence,
    rejected_sentence,
    rules_title,
    significant,
    span_sentence,
    together_sentence,
    window_words,
)
from depthmup.reports.study_charts import chart_sections
from depthmup.reports.study_rows import (
    listed,
    noted,
    of_scheme,
    question,
    shown_laws,
    shown_rules,
    size_of,
    title_of,
    transfers,
)

_SHOWN_ELSEWHERE = ("command", "question", "tuned", "groups", "numerics", "untrained_loss")
"""Settings that other parts of a page have: groups, whose filters stand in the next command. And
those that only records need."""

_GIVEN = {
    "steps": "steps",
    "window": "steps",
    "seeds": "seed",
    "optimizers": "optimizer",
    "weight_decays": "weight_decay",
    "multipliers": "multiplier",
}
"""Settings of which a command is given a placeholder, or never hears."""


def page(study: Study, *more: Study, certificates: Sequence[Certificate] = ()) -> str:
    """Studies as one HTML page: verdicts, charts with a slider over training, tables, set-up.

    Several studies are those of one measurement along several axes, over the same windows of
    training. Scripts are inlined and a content security policy forbids all connections, so that the
    page can be mailed, archived and opened from a disk. Text from the study is escaped.

    Args:
        study: whose verdicts stand first.
        more: further axes or variants.
        certificates: of the target, shown before the verdicts.

    Returns:
        HTML that opens offline.

    Example:
        >>> from depthmup.reports import example_study
        >>> page(example_study()).startswith("<!doctype html>")
        True
    """
    studies = (study, *more)
    elsewhere = _elsewhere(studies)
    forecasts = [
        certificate_section(certificate, name=f"certificate-{i}" if i else "certificate")
        for i, certificate in enumerate(certificates)
    ]
    sections = next_steps(studies, certificates)
    sections.append(Section(cards=[card for each in forecasts for card in each.cards]))
    for s in studies:
        sections += [_part(s)] if more else []
        sections.append(_verdicts(s))
    for certificate, forecast in zip(certificates, forecasts, strict=True):
        title = f"{_named(certificate)}: the forecast for {size_text(certificate.target)}"
        sections += [replace(forecast, cards=(), title=title)] if forecast.table else []
        sections += _prescribed(certificate)
    for i, s in enumerate(studies):
        sections += [_part(s)] if more else []
        sections += chart_sections(s, prefix=f"axis-{i}-" if i else "")
        sections += _rules(s)
        sections.append(_numbers(s, elsewhere))
    sections += [ablation_table(s) for s in studies if s.ablations]
    sections += [gain_table(s) for s in studies if s.gains]
    sections += [*_laws(studies), *_notes(studies)]
    measured = advice(*studies) or _by_axis(studies)
    use = [*at_target(studies, certificates), *([measured] if measured else [])]
    use = [*filter(None, map(ablation_sentence, studies)), *use]
    found = " ".join(headline(s) for s in studies)
    verdict = transfers(study)[0].verdict.value if transfers(study) else "nothing measured"
    if study.together is not None:
        verdict = study.together.verdict.value
    command: Any = study.config.get("command", "")
    hidden = {*_SHOWN_ELSEWHERE}
    if of_command(study):
        own = " ".join(listed(study, "command"))
        hidden |= {name for name, given in _GIVEN.items() if f"{{{given}}}" not in own}
    settings = {k: v for k, v in study.config.items() if k not in hidden}
    return Page(
        title=study.title,
        tab=f"{verdict.capitalize()}: {study.title}",
        headline=[*use, found][0],
        lead=[*[*use, found][1:], *max(map(question, studies), key=len)],
        sections=sections,
        command=command or "",
        files=["summary.json", *(["certificate.json"] if certificates else [])],
        facts={"Configuration": settings, "Environment": study.environment},
        windows=[window_words(study, w) for w in study.windows] if study.headline.stop else [],
        windows_note=elsewhere,
        axes=[s.axis for s in studies],
    ).html()


def _by_axis(studies: Sequence[Study]) -> str:
    """The verdict along each of several axes in a sentence: of one scheme, or of all groups."""
    along: dict[str, list[str]] = {}
    for study in studies:
        judged = [study.together] if study.together else transfers(study)
        if len(judged) != 1:
            return ""
        along.setdefault(judged[0].verdict.value, []).append(study.axis)
    together = any(study.together for study in studies)
    if len(studies) < 2 and not together:
        return ""
    parts = [f"{verdict} along {' and '.join(axes)}" for verdict, axes in along.items()]
    whose = ", all groups together" if together else ""
    return f"The best {studies[0].tuned.name}{whose}: {'; '.join(parts)}."


def _elsewhere(studies: Sequence[Study]) -> str:
    """Which steps those of a window are in runs of another length than the base's."""
    if any(map(of_command, studies)):
        return ""
    lengths = {
        curve.size.get("steps", curve.size.get("tokens", 1) / curve.size.get("batch", 1))
        for study in studies
        for window in study.windows
        for curve in window.curves
    }
    return " of the base’s run, and the same part of every other" if len(lengths) > 1 else ""


def _part(study: Study) -> Section:
    return Section(title=f"Along {study.axis}", part=True)


def verdict_cards(study: Study) -> list[Card]:
    """A card for the verdict on every scheme."""
    return [_card(study, transfer) for transfer in transfers(study)]


def _verdicts(study: Study) -> Section:
    """The cards; of many groups that of all, and theirs folded."""
    if study.together is None:
        return Section(cards=verdict_cards(study))
    together = study.together
    whole = Card(
        title=f"All {together.groups} groups together",
        verdict=together.verdict.value,
        symbol=_symbol(together.verdict, together.mean),
        text=[together_sentence(study)],
    )
    each = Section(title=f"Each of {len(transfers(study))} groups", cards=verdict_cards(study))
    return Section(cards=[whole], details=[each])


def _card(study: Study, transfer: Transfer) -> Card:
    text = (base_sentence(study, transfer), transfer.why + bend_sentence(transfer.bend))
    notes = (
        f"It answers: {transfer.question}." if study.axis in RUN_AXES else "",
        regret_sentence(study, transfer),
        rejected_sentence(study, transfer.scheme),
    )
    return Card(
        title=transfer.title,
        verdict=transfer.verdict.value,
        symbol=_symbol(transfer.verdict, transfer.drift),
        aside=f"α = {transfer.alpha}, γ = {transfer.gamma}" if transfer.alpha else "",
        text=[sentence for sentence in text if sentence],
        notes=[note for note in notes if note],
    )


def _named(certificate: Certificate) -> str:
    return certificate.title or certificate.scheme or "These runs"


def _prescribed(certificate: Certificate) -> list[Section]:
    """What published rules prescribe at the target; none where none speaks of it."""
    if not certificate.rules:
        return []
    name = certificate.tuned.name
    rows = [
        {"rule": r.rule, name: rate(r.rate), "source": r.source}
        for r in sorted(certificate.rules, key=lambda r: r.rate)
    ]
    return [
        Section(
            title=f"{_named(certificate)}: published rules for the target",
            lead=span_sentence(certificate),
            table=Table(
                rows=rows,
                numbers=(name,),
                wrapped=("source",),
                name="Published rules at the target",
            ),
        )
    ]


def _rules(study: Study) -> list[Section]:
    """Published rules beside what the runs say of them; none where none speaks of the axis."""
    rows = [
        {
            **({"scheme": title_of(study, judged.scheme)} if _named_rules(study) else {}),
            **judged_cells(judged, cost=cost(judged.cost), exponent=number(judged.exponent, 3)),
        }
        for judged in shown_rules(study)
    ]
    return rules_section(
        rows,
        lead=CONSISTENT.format(of="")
        + "The cost is what the rule would have cost on these runs, from the smallest size to the "
        "largest.",
        name=rules_title(study),
    )


def _named_rules(study: Study) -> bool:
    """Whether rules are judged for several schemes, one by one."""
    return len(transfers(study)) > 1 and study.together is None


def _laws(studies: Sequence[Study]) -> list[Section]:
    text = [
        f"{of_scheme(study, law.scheme)}{sentence}"
        for study in studies
        for law in shown_laws(study)
        if (sentence := law_sentence(law))
    ]
    return [Section(title="All axes at once", text=text)] if text else []


def _notes(studies: Sequence[Study]) -> list[Section]:
    """What a reader must know of the runs."""
    items = []
    for study in studies:
        if study.together is not None:
            items += [("", sentence, "") for sentence in noted(study)]
            continue
        for note in study.notes:
            shown = f"Rows {', '.join(map(str, note.rows))}"
            more = ", …" if note.count > len(note.rows) else ""
            word = note.defect.value if note.defect else ""
            text = f"{of_scheme(study, note.scheme)}{note.text}"
            items.append((word, text, shown + more if note.rows else ""))
    return [Section(title="The runs themselves", items=items)] if items else []


def _numbers(study: Study, elsewhere: str) -> Section:
    tuned, schemes = study.tuned, transfers(study)
    optima = [(t, o) for t in schemes for o in t.optima]
    others = {a: None for t, o in optima if len(t.slices) > 1 for a in o.size if a != study.axis}
    rows = [
        {
            "Scheme": t.title,
            study.axis.capitalize(): size_number(size_of(study, o)),
            **{axis.capitalize(): size_number(o.size[axis]) for axis in others},
            f"Best {tuned.name}": best_rate(o),
            "Interval": rate_interval(o.log2_lr),
            "Loss there": significant(o.loss.value),
            "Interval of the loss": interval(o.loss, 3),
            "Place": PLACES[o.place],
        }
        for t, o in optima
    ]
    return Section(
        title="The numbers",
        lead=(
            f"{_measure(study)}{elsewhere}. "
            "Brackets hold intervals over seeds; “≤” and “≥” mark an optimum on the edge of the "
            "grid."
        ),
        table=Table(
            rows=rows,
            name=f"Best {tuned.plural} along {study.axis}",
            group="Scheme",
            numbers={*(rows[0] if rows else {})} - {"Scheme", "Place"},
            faint=("Interval", "Interval of the loss"),
            unusual=[i for i, (_, o) in enumerate(optima) if o.place is not Place.INTERIOR],
        ),
    )


def _measure(study: Study) -> str:
    if not study.headline.stop:
        return f"Judged by the column {study.config.get('loss', 'loss')}"
    if of_command(study):
        part = 1 - study.headline.start / study.headline.stop
        return f"Judged by the mean {loss_word(study)} over the last {part:.0%} of every run"
    return f"Judged by the mean training loss over {window_words(study, study.headline)}"


def study_legends(study: Study) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Labels and colours of the sizes, and of the schemes.

    Args:
        study: to be shown.

    Returns:
        Labels with their colours.

    Example:
        >>> from depthmup.reports import example_study
        >>> sizes, schemes = study_legends(example_study())
        >>> [label for label, colour in sizes], [label for label, colour in schemes]
        (['8', '16', '32', '64', '128'], ['Depth-muP', 'SP'])
    """
    sizes = tuple((str(size), colour) for size, colour in size_colours(study).items())
    colours = scheme_colours(study)
    return sizes, tuple((t.title, colours[t.scheme]) for t in transfers(study))


def study_specs(study: Study, kinds: Container[str] | None = None) -> dict[str, Any]:
    """The Vega-Lite specification of every chart on the page, by its element's id.

    Args:
        study: to be shown.
        kinds: of charts, such as "rates"; all unless given.

    Returns:
        Specifications by element.

    Example:
        >>> from depthmup.reports import example_study
        >>> list(study_specs(example_study()))[:3]  # a panel of rates for each scheme
        ['rates-0', 'rates-1', 'transfer']
    """
    plots = [plot for section in chart_sections(study, kinds=kinds) for plot in section.plots]
    return {plot.name: spec_of(plot) for plot in plots}


def _symbol(verdict: Verdict, drift: Estimate) -> str:
    if verdict is Verdict.DRIFTS:
        return "↘" if drift.value < 0 else "↗"
    return "✓" if verdict is Verdict.TRANSFERS else "?"
