"""The result as a table for the terminal: one row per scheme, one column per depth."""

from typing import TYPE_CHECKING

from depthmup.records import Place, Study, Transfer
from depthmup.reports.rows import transfers
from depthmup.reports.words import best_rate, headline, interval, number, significant

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {"transfers": "bold green", "drifts": "bold yellow", "undecided": "bold"}


def table(study: Study) -> "Table":
    """The best log2 learning rates, drift, regret and verdict, as a Rich table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    found = transfers(study)
    # Text, not markup: a scheme's name may hold square brackets.
    made = Table(
        title=Text(headline(study)),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    # Five depths and short names fit 80 columns: the interval stands below its drift, and
    # long names fold.
    made.add_column(Text("scheme"), overflow="fold")
    for name in _header(found)[1:]:
        if name != "95%":
            made.add_column(Text(name), justify="right", no_wrap=True)
    for transfer in found:
        title, *rates, drift, between, regret, verdict = (Text(c) for c in _cells(found, transfer))
        verdict.stylize(_STYLES[transfer.verdict.value])
        made.add_row(title, *rates, Text("\n").join([drift, between]), regret, verdict)
    made.caption = Text(_CAPTION)
    made.caption_justify = "left"
    return made


def plain_table(study: Study) -> str:
    """The same table as aligned text without colour, for logs and pipes."""
    found = transfers(study)
    lines = [_header(found), *(_cells(found, transfer) for transfer in found)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    rule = "-" * max(map(len, text))
    why = [f"{t.title}: {t.verdict.value}. {t.why}" for t in found if t.why]
    return "\n".join([headline(study), "", text[0], rule, *text[1:], "", _CAPTION, *why])


_CAPTION = (
    "Best log2 learning rate by depth L; drift in octaves per doubling of depth, with its 95% "
    "interval."
)


def _depths(found: tuple[Transfer, ...]) -> list[int]:
    return sorted({optimum.depth for transfer in found for optimum in transfer.optima})


def _header(found: tuple[Transfer, ...]) -> list[str]:
    return ["scheme", *(f"L={d}" for d in _depths(found)), "drift", "95%", "regret", "verdict"]


def _cells(found: tuple[Transfer, ...], transfer: Transfer) -> list[str]:
    by_depth = {optimum.depth: optimum for optimum in transfer.optima}
    rates = [
        "" if (optimum := by_depth.get(depth)) is None
        else "fails" if optimum.place is Place.FAILED
        else best_rate(optimum)
        for depth in _depths(found)
    ]  # fmt: skip
    return [
        transfer.title,
        *rates,
        number(transfer.drift.value),
        interval(transfer.drift),
        significant(transfer.regret.value),  # infinite where training diverges
        transfer.verdict.value,
    ]
