"""The result as a table for the terminal: one row per scheme, one column per size."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from depthmup.records import Judgement, Place, Study, Transfer, Verdict
from depthmup.records.certificate import Certificate
from depthmup.records.finding import Estimate, change, change_span
from depthmup.records.printable import printable
from depthmup.records.sizes import size_number
from depthmup.records.text import ON_TERMINALS, TONES, WIDE, aligned, counted
from depthmup.reports.ablation import ablation_lines, ablation_sentence
from depthmup.reports.certificate import certificate_text, to_use
from depthmup.reports.gain import gain_lines
from depthmup.reports.next_steps import next_lines
from depthmup.reports.sentences import (
    UNKNOWN,
    bend_sentence,
    best_rate,
    cost,
    excess_loss,
    first_lines,
    law_sentence,
    number,
    rules_title,
    span_sentence,
)
from depthmup.reports.slices import MOST, slices_of
from depthmup.reports.study_rows import (
    noted,
    of_scheme,
    question,
    shown_laws,
    shown_rules,
    size_of,
    title_of,
    transfers,
)

if TYPE_CHECKING:
    from rich.table import Table


_FOUND = ("drift", "95%", "excess", "verdict")
_WIDEST = 100
"""Columns of the widest line that is not one name."""
_FOLDED = 9
"""Columns of a folded name, with its distance to the next."""
_FEWEST = 3
"""Sizes that every table shows."""


def table(
    study: Study,
    among: Sequence[Study] = (),
    certificates: Sequence[Certificate] = (),
    *,
    width: int = WIDE,
) -> "Table":
    """The best learning rates, their change, excess loss and verdict, as a Rich table.

    Args:
        study: to be shown.
        among: the studies of all axes, if there are several: the first says what to do.
        certificates: of the target, which says it before.
        width: of the terminal, for which some of many sizes are left out.

    Returns:
        A table that Rich prints.

    Example:
        >>> from depthmup.reports import example_study
        >>> table(example_study()).row_count
        2
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    (header, *rows), left_out = _rows(study, width, stacked=True)
    # Text, not markup: a scheme's name may hold square brackets.
    grid = Table(
        title=Text("\n".join(said(study, among, certificates))),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    # Five depths and short names fit 80 columns: the interval stands below its drift, and
    # long names fold.
    grid.add_column(Text(header[0]), overflow="fold")
    for name in header[1:]:
        if name != "95%":
            grid.add_column(Text(name), justify="right", no_wrap=True)
    for row in rows:
        title, *rates, drift, between, regret, verdict = map(Text, row)
        if row[-1]:
            verdict.stylize(ON_TERMINALS[TONES[row[-1]]])
        grid.add_row(
            title, *rates, Text("\n").join(filter(None, [drift, between])), regret, verdict
        )
    grid.caption = Text("\n".join([*question(study), *_below(study, left_out)]))
    grid.caption_justify = "left"
    return grid


def text(*studies: Study, certificates: Sequence[Certificate] = ()) -> str:
    """Everything that a report says, as text for logs and pipes."""
    shown = [part for part in parts(studies, certificates) if isinstance(part, str)]
    return "\n\n".join(shown)


def parts(
    studies: Sequence[Study],
    certificates: Sequence[Certificate],
    *,
    width: int = _WIDEST,
    coloured: bool = False,
) -> Iterator["str | Table"]:
    """Everything that a report says, in the order in which it is read.

    ``coloured`` has Rich tables, for a terminal; all else is text that can be printed.
    """
    rules = [line for study in studies for line in textwrap.wrap(ablation_sentence(study), width)]
    if rules:
        yield "\n".join(rules)
    for study in studies:
        shown = (study, studies, certificates)
        yield table(*shown, width=width) if coloured else _printable(plain_table(*shown))
    further = ["\n".join(ablation_lines(study, width)) for study in studies]
    further += ["\n".join(_wrapped(gain_lines(study), width)) for study in studies]
    further += ["\n".join(_beyond(study, width)) for study in studies]
    for certificate in certificates:
        further.append(certificate_text(certificate, width=width))
        further.append("\n".join(textwrap.wrap(span_sentence(certificate), width)))
    further.append("\n".join(next_lines(studies, certificates, width=width)))
    yield from map(_printable, filter(None, further))


def _printable(lines: str) -> str:
    return "\n".join(map(printable, lines.split("\n")))


def _beyond(study: Study, width: int) -> list[str]:
    """Rules, laws and notes."""
    lines = _judged(study)
    if lines:
        together = "" if study.together is None else ", by all groups together"
        lines.insert(0, f"{rules_title(study)}{together}:")
    laws = [(law, law_sentence(law)) for law in shown_laws(study)]
    lines += [f"{of_scheme(study, law.scheme)}{said}" for law, said in laws if said]
    if notes := noted(study):
        lines += ["Notes on the runs:", *(f"- {note}" for note in notes)]
    return _wrapped(lines, width)


def _wrapped(lines: Sequence[str], width: int) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  ")]


def _judged(study: Study) -> list[str]:
    """A line for each published rule: its answer, for whom if not for all, and its source."""
    everyone = {transfer.scheme for transfer in transfers(study)}
    found: dict[tuple[str, str], list[Judgement]] = {}
    for each in shown_rules(study):
        rule = f"{each.rule} ({each.axis}^{number(each.exponent)})"
        found.setdefault((rule, each.source), []).append(each)
    lines = []
    for (rule, source), (first, *more) in found.items():
        answers: dict[str, list[str]] = {}
        for judged in (first, *more):
            of = title_of(study, judged.scheme)
            answers.setdefault(judged.answer.value, []).append(of)
        texts = [f"{answer} ({'; '.join(schemes)})" for answer, schemes in answers.items()]
        whose = {judged.scheme for judged in (first, *more)}
        plain = whose in ({""}, everyone) or title_of(study, first.scheme) == first.rule
        answer = first.answer.value if plain and len(texts) == 1 else ", ".join(texts)
        priced = first.scheme and not more and not math.isnan(first.cost.value)
        costs = f" Following it costs {cost(first.cost)}." if priced else ""
        lines.append(f"{rule}: {answer}.{costs} {source}.")
    return lines


def plain_table(
    study: Study, among: Sequence[Study] = (), certificates: Sequence[Certificate] = ()
) -> str:
    """The same table as aligned text without colour, for logs and pipes.

    Args:
        study: to be shown.
        among: the studies of all axes, if there are several: the first says what to do.
        certificates: of the target, which says it before.

    Returns:
        Lines of text.

    Example:
        >>> from depthmup.reports import example_study
        >>> print(plain_table(example_study()).splitlines()[0])
        Use learning rate 2.3e-3 with Depth-muP. It holds from depth 8 to 128.
    """
    rows, left_out = _rows(study)
    text = aligned(rows)
    rule = "-" * max(map(len, text))
    asked = [line for sentence in question(study) for line in textwrap.wrap(sentence, _WIDEST)]
    return "\n".join(
        [
            *said(study, among, certificates),
            *asked,
            "",
            text[0],
            rule,
            *text[1:],
            "",
            *_below(study, left_out),
        ]
    )


def _below(study: Study, left_out: str) -> list[str]:
    """What the columns hold, and the reason of every verdict."""
    schemes = transfers(study)
    below = [_caption(study), *([left_out] if left_out else [])]
    if study.together is not None:
        unknown = ", ".join(t.title for t in schemes if not t.drift.known)
        bounds = f"No drift of their own, as their best values are bounds or few: {unknown}."
        return [*below, *textwrap.wrap(bounds, _WIDEST)] if unknown else below
    why = [
        f"{t.title}: {t.verdict.value}. {t.why}{bend_sentence(t.bend)}{_ended(study, t)}"
        for t in schemes
        if t.why
    ]
    return [*below, *why]


def said(
    study: Study, among: Sequence[Study] = (), certificates: Sequence[Certificate] = ()
) -> list[str]:
    """What to do at the target and at the sizes measured, once; then what was found."""
    studies = among or (study,)
    use = to_use(studies, certificates) if study is studies[0] else []
    if use and len(use[0]) > _WIDEST:
        first, point, rest = use[0].partition(". ")
        use[:1] = [f"{first}." if point else first, rest]
    return [line for line in (*use, *first_lines(study, _WIDEST)) if line]


def _ended(study: Study, transfer: Transfer) -> str:
    """Why a search ended that did not decide; what decided stands in the verdict."""
    if study.search is None or transfer.verdict is not Verdict.UNDECIDED:
        return ""
    ended = study.search.ended.get(transfer.scheme, "").rstrip(".")
    return f" The search ended here: {ended}." if ended else ""


_LETTERS = {"depth": "L", "width": "n"}
_SHORT = 7
"""Letters of an axis that stand in every column's header."""


def _caption(study: Study) -> str:
    axis = study.axis
    letter = f" {_LETTERS[axis]}" if axis in _LETTERS else ""
    return (
        f"Best {study.tuned.name} by {axis}{letter}; its drift, the change per doubling of "
        f"{axis}, with a 95% interval; excess loss at the largest {axis} with the base's "
        f"{study.tuned.word}."
    )


def _sizes(study: Study) -> list[float]:
    return sorted({size_of(study, o) for t in transfers(study) for o in t.optima})


def _rows(
    study: Study, width: int = _WIDEST, *, stacked: bool = False
) -> tuple[list[list[str]], str]:
    """The header, and a row for each scheme above those of its slices; and what is not shown.

    ``stacked``: the interval stands below its drift.
    """
    rows, unshown = [_header(study)], 0
    for transfer in transfers(study):
        slices = slices_of(study, transfer)
        unshown += len(slices[MOST:])
        rates = [""] * len(_sizes(study)) if slices else _rates(study, transfer)
        rows.append([transfer.title, *rates, *_found(transfer)])
        for one in slices[:MOST]:
            held = one.title.removeprefix(f"{transfer.title}, ")
            rows.append([f"  {held}", *_rates(study, one), *[""] * len(_FOUND)])
    rows, narrowed = _narrowed(rows, width, stacked=stacked)
    lacking = [counted(n, what) for n, what in ((unshown, "row"), (narrowed, "column")) if n]
    return rows, f"Not shown: {' and '.join(lacking)}. --json has all." if lacking else ""


def _narrowed(rows: list[list[str]], width: int, *, stacked: bool) -> tuple[list[list[str]], int]:
    """The rows with as many sizes, evenly chosen, as lines have room for; and how many lack."""
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    sizes = range(1, len(widths) - len(_FOUND))
    found = range(sizes.stop, len(widths))
    drift, between, *others = (widths[i] for i in found)
    taken = (max(drift, between) if stacked else drift + between) + sum(others)
    # Names fold on terminals; what slices are held at could not be read so.
    folds = stacked and not any(row[0].startswith("  ") for row in rows)
    room = width + 2 - (min(widths[0], _FOLDED) if folds else widths[0]) - taken
    for count in range(len(sizes), _FEWEST - 1, -1):
        shown = [sizes[round(i * (len(sizes) - 1) / (count - 1))] for i in range(count)]
        if count == _FEWEST or sum(widths[i] for i in shown) <= room:
            return [[row[i] for i in (0, *shown, *found)] for row in rows], len(sizes) - count
    return rows, 0


def _header(study: Study) -> list[str]:
    # Long names would make columns wider than their numbers; the caption has the axis.
    short = study.axis if len(study.axis) <= _SHORT else ""
    letter = _LETTERS.get(study.axis, short)
    sizes = map(size_number, _sizes(study))
    alone = len(transfers(study)) == 1 and slices_of(study, *transfers(study))
    title = "held at" if alone else "scheme" if study.together is None else "group"
    return [title, *(f"{letter}={size}" if letter else size for size in sizes), *_FOUND]


def _rates(study: Study, transfer: Transfer) -> list[str]:
    by_size = {size_of(study, optimum): optimum for optimum in transfer.optima}
    return [
        "" if (optimum := by_size.get(size)) is None
        else "fails" if optimum.place is Place.FAILED
        else best_rate(optimum)
        for size in _sizes(study)
    ]  # fmt: skip


def _found(transfer: Transfer) -> list[str]:
    return [
        change(transfer.drift.value) if transfer.drift.known else UNKNOWN,
        _span(transfer.drift),
        excess_loss(transfer),  # infinite where training diverges
        transfer.verdict.value,
    ]


def _span(drift: Estimate) -> str:
    """An interval of changes; empty where there is none."""
    return "" if math.isnan(drift.low + drift.high) else change_span(drift.low, drift.high)
