"""The result as a table for the terminal: one row per scheme, one column per size."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from depthmup.records import Place, Study, Transfer, Verdict
from depthmup.records.certificate import Certificate
from depthmup.records.finding import Estimate, change, change_span
from depthmup.records.printable import printable
from depthmup.records.sizes import size_number
from depthmup.records.text import ON_TERMINALS, TONES, aligned
from depthmup.reports.certificate import certificate_text
from depthmup.reports.next_steps import next_lines
from depthmup.reports.sentences import (
    UNKNOWN,
    advice,
    best_rate,
    cost,
    headline,
    law_sentence,
    number,
    significant,
    span_sentence,
)
from depthmup.reports.slices import by_slice
from depthmup.reports.study_rows import (
    noted,
    of_scheme,
    question,
    shown_laws,
    shown_rules,
    size_of,
    transfers,
)

if TYPE_CHECKING:
    from rich.table import Table


def table(study: Study, among: Sequence[Study] = ()) -> "Table":
    """The best learning rates, their change, excess loss and verdict, as a Rich table.

    Args:
        study: to be shown.
        among: the studies of all axes, if there are several: the first says what to do.

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

    header, *rows = _rows(study)
    # Text, not markup: a scheme's name may hold square brackets.
    grid = Table(
        title=Text("\n".join(said(study, among))),
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
        verdict.stylize(ON_TERMINALS[TONES[row[-1]]])
        grid.add_row(title, *rates, Text("\n").join([drift, between]), regret, verdict)
    grid.caption = Text("\n".join([*question(study), *_below(study)]))
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
    width: int = 100,
    coloured: bool = False,
) -> Iterator["str | Table"]:
    """Everything that a report says, in the order in which it is read.

    ``coloured`` has Rich tables, for a terminal; all else is text that can be printed.
    """
    for study in studies:
        yield table(study, studies) if coloured else _printable(plain_table(study, studies))
    further = ["\n".join(_beyond(study, width)) for study in studies]
    for certificate in certificates:
        further.append(certificate_text(certificate))
        further.append("\n".join(textwrap.wrap(span_sentence(certificate), width)))
    further.append("\n".join(next_lines(studies, certificates, width=width)))
    yield from map(_printable, filter(None, further))


def _printable(lines: str) -> str:
    return "\n".join(map(printable, lines.split("\n")))


def _beyond(study: Study, width: int) -> list[str]:
    """Rules, laws and notes."""
    lines = []
    for judged in shown_rules(study):
        rule = f"{judged.rule} ({judged.axis}^{number(judged.exponent)})"
        costs = f" Following it costs {cost(judged.cost)}." if judged.scheme else ""
        lines.append(
            f"{of_scheme(study, judged.scheme)}{rule}: {judged.answer.value}.{costs} "
            f"{judged.source}."
        )
    if lines:
        together = "" if study.together is None else ", by all groups together"
        lines.insert(0, f"Published rules along {study.axis}{together}:")
    lines += [f"{of_scheme(study, law.scheme)}{law_sentence(law)}" for law in shown_laws(study)]
    if notes := noted(study):
        lines += ["Notes on the runs:", *(f"- {note}" for note in notes)]
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  ")]


def plain_table(study: Study, among: Sequence[Study] = ()) -> str:
    """The same table as aligned text without colour, for logs and pipes.

    Args:
        study: to be shown.
        among: the studies of all axes, if there are several: the first says what to do.

    Returns:
        Lines of text.

    Example:
        >>> from depthmup.reports import example_study
        >>> print(plain_table(example_study()).splitlines()[0])
        Use learning rate 2.3e-3 with Depth-muP. It holds from depth 8 to 128.
    """
    text = aligned(_rows(study))
    rule = "-" * max(map(len, text))
    asked = [line for sentence in question(study) for line in textwrap.wrap(sentence, 100)]
    return "\n".join(
        [*said(study, among), *asked, "", text[0], rule, *text[1:], "", *_below(study)]
    )


def _below(study: Study) -> list[str]:
    """What the columns hold, and the reason of every verdict."""
    schemes = transfers(study)
    if study.together is not None:
        unknown = ", ".join(t.title for t in schemes if not t.drift.known)
        bounds = f"No drift of their own, as their best values are bounds or few: {unknown}."
        return [_caption(study), *textwrap.wrap(bounds, 100)] if unknown else [_caption(study)]
    why = [f"{t.title}: {t.verdict.value}. {t.why}{_ended(study, t)}" for t in schemes if t.why]
    return [_caption(study), *why]


def said(study: Study, among: Sequence[Study] = ()) -> list[str]:
    """What to do, if a scheme transfers along every axis, once; then what was found."""
    use = advice(*(among or (study,))) if not among or study is among[0] else ""
    return [line for line in (use, headline(study)) if line]


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


def _rows(study: Study) -> list[list[str]]:
    """The header, and a row for each scheme, or for each slice of a table's group."""
    lined = by_slice(study)
    return [_header(lined), *(_cells(lined, transfer) for transfer in transfers(lined))]


def _header(study: Study) -> list[str]:
    # Long names would make columns wider than their numbers; the caption has the axis.
    short = study.axis if len(study.axis) <= _SHORT else ""
    letter = _LETTERS.get(study.axis, short)
    return [
        "scheme" if study.together is None else "group",
        *(
            f"{letter}={size_number(size)}" if letter else size_number(size)
            for size in _sizes(study)
        ),
        "drift",
        "95%",
        "excess",
        "verdict",
    ]


def _cells(study: Study, transfer: Transfer) -> list[str]:
    by_size = {size_of(study, optimum): optimum for optimum in transfer.optima}
    rates = [
        "" if (optimum := by_size.get(size)) is None
        else "fails" if optimum.place is Place.FAILED
        else best_rate(optimum)
        for size in _sizes(study)
    ]  # fmt: skip
    return [
        transfer.title,
        *rates,
        change(transfer.drift.value) if transfer.drift.known else UNKNOWN,
        _span(transfer.drift),
        significant(transfer.regret.value),  # infinite where training diverges
        transfer.verdict.value,
    ]


def _span(drift: Estimate) -> str:
    """An interval of changes; empty where there is none."""
    return "" if math.isnan(drift.low + drift.high) else change_span(drift.low, drift.high)
