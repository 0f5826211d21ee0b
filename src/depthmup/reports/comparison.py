"""Reports side by side: their verdicts, their charts, and the best values of every size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from depthmup.records import Optimum, Study, Transfer
from depthmup.records.finding import Verdict, change
from depthmup.records.gain import Gain
from depthmup.records.sizes import size_number
from depthmup.reports.axes import optimum_axis, plain
from depthmup.reports.charts import optimum_chart, scheme_signs, window_of
from depthmup.reports.gain import gain_section, gain_sentence, gain_table
from depthmup.reports.page import Page, Plot, Section, Table
from depthmup.reports.sentences import advice, best_rate, headline
from depthmup.reports.slices import by_slice
from depthmup.reports.study_page import verdict_cards
from depthmup.reports.study_rows import size_of, transfers

OPEN = Verdict.UNDECIDED.value


def comparison_page(
    reports: Mapping[str, Sequence[Study]],
    *,
    gains: Sequence[Gain] = (),
    command: Sequence[str] = (),
) -> str:
    """Several reports as one page, beside each other along every axis that all of them measured.

    Args:
        reports: the studies of each report, by its name.
        gains: of their variants over those of one report.
        command: that made it.

    Returns:
        HTML that opens offline.

    Raises:
        ValueError: no axis was measured by all of them.

    Example:
        >>> from depthmup.reports import example_study
        >>> text = comparison_page({"one": [example_study()], "two": [example_study()]})
        >>> "two: Use learning rate" in text
        True
    """
    by_axis = {name: {study.axis: study for study in of} for name, of in reports.items()}
    first, *others = by_axis.values()
    axes = [axis for axis in first if all(axis in of for of in others)]
    if not axes:
        raise ValueError("Expected reports along one axis at least that all of them measured.")
    sections = []
    judged = replace(next(iter(reports.values()))[0], gains=tuple(gains))
    if gains:
        sections = [gain_section(judged), gain_table(judged)]
    for axis in axes:
        studies = {name: of[axis] for name, of in by_axis.items()}
        cards = [
            replace(card, title=f"{name}: {card.title}")
            for name, study in studies.items()
            for card in verdict_cards(study)
        ]
        shown = {name: by_slice(study) for name, study in studies.items()}
        ranges = [optimum_axis(study) for study in shown.values()]
        low, high = min(one.low for one in ranges), max(one.high for one in ranges)
        rates = plain(math.log2(low), math.log2(high), ranges[0].title)
        plots = [
            Plot(
                title=name,
                legend=scheme_signs(study),
                chart=replace(optimum_chart(study, rates), window=window_of(study)),
            )
            for name, study in shown.items()
        ]
        table = Table(
            rows=_rows(shown),
            name=f"Best values along {axis}",
            group="scheme",
            numbers=(axis, *studies, "change"),
        )
        sections += [
            Section(title=f"Along {axis}", part=True),
            Section(cards=cards),
            Section(plots=plots, layout="pair"),
            Section(title="The best values", table=table),
        ]
    return Page(
        title=f"{' and '.join(reports)}, side by side",
        headline=" ".join(
            [gain_sentence(judged, gain) for gain in gains[:1]]
            or [_agreement({n: of[axis] for n, of in by_axis.items()}) for axis in axes]
        ),
        lead=[
            *(gain_sentence(judged, gain) for gain in gains[1:]),
            *(f"{name}: {advice(*of) or headline(of[0])}" for name, of in reports.items()),
        ],
        sections=sections,
        command=command,
    ).html()


def _agreement(studies: Mapping[str, Study]) -> str:
    """Whether the verdicts on schemes that all reports have are the same, along one axis."""
    verdicts = {
        name: {_key(t): t.verdict.value for t in transfers(study)}
        for name, study in studies.items()
    }
    first, *others = verdicts.values()
    common = [scheme for scheme in first if all(scheme in other for other in others)]
    axis = next(iter(studies.values())).axis
    if not common:
        return f"No scheme along {axis} is in all reports."
    differ = [scheme for scheme in common if len({of[scheme] for of in verdicts.values()}) > 1]
    undecided = {scheme for of in verdicts.values() for scheme in common if of[scheme] == OPEN}
    if not differ and not undecided:
        return f"All verdicts along {axis} agree."
    if not differ:
        return f"No verdict along {axis} differs; {len(undecided)} of {len(common)} are undecided."
    titles = _titles(studies)
    return " ".join(
        f"{titles[scheme]} along {axis}: "
        f"{', '.join(f'{of[scheme]} in {name}' for name, of in verdicts.items())}."
        for scheme in differ
    )


def _key(transfer: Transfer) -> str:
    """What is one scheme in all reports: a table may write Depth-muP as depth-mup."""
    return transfer.title.casefold()


def _titles(studies: Mapping[str, Study]) -> dict[str, str]:
    """Titles of schemes, as the first report that has one calls it."""
    return {_key(t): t.title for s in [*studies.values()][::-1] for t in transfers(s)}


def _rows(studies: Mapping[str, Study]) -> list[dict[str, str]]:
    """A row for each scheme and size: the best value in every report, and its change."""
    found: dict[str, dict[float, dict[str, Optimum]]] = {}
    for name, study in studies.items():
        for t in transfers(study):
            for o in t.optima:
                found.setdefault(_key(t), {}).setdefault(size_of(study, o), {})[name] = o
    titles, axis = _titles(studies), next(iter(studies.values())).axis
    rows = []
    for scheme, by_size in found.items():
        for size, of in sorted(by_size.items()):
            known = [o.log2_lr.value for o in of.values() if o.log2_lr.known]
            best = {name: best_rate(of[name]) if name in of else "" for name in studies}
            moved = change(known[-1] - known[0]) if len(known) == len(studies) else ""
            at = {"scheme": titles[scheme], axis: size_number(size)}
            rows.append({**at, **best, "change": moved})
    return rows
