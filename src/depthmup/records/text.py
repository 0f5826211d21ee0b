"""Records as text for terminals, and as cards for notebooks."""

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from types import MappingProxyType

MUTED = "#5b6472"
GOOD, BAD, OPEN, FAINT = "#00734f", "#a83f00", MUTED, "#b9bfc9"
_WORDS = {
    GOOD: "transfers, pass, consistent, certified, reproduced, Held, helps, needed",
    BAD: "drifts, fail, rejected, refused, not reproduced, Missed, hurts, better without",
    OPEN: "undecided, cannot tell, for the best batch, undecidable",
    FAINT: "shown",
}
TONES = {word: tone for tone, words in _WORDS.items() for word in words.split(", ")}
"""The colour of every verdict, by its word."""

ON_TERMINALS = {GOOD: "bold green", BAD: "bold red", OPEN: "bold yellow"}
"""The same colours as terminals have them."""


def counted(count: int, noun: str) -> str:
    """A number of things: ``1 run``, ``1,200 runs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def begin(words: str) -> str:
    """Words that begin a sentence; a name within keeps its letters, unlike ``capitalize``."""
    return words[:1].upper() + words[1:]


WIDE = 80
"""Columns of a usual terminal."""


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Rows as lines with columns of one width; columns that are not ``left`` end flush right.

    Columns stand two spaces apart, or one where that makes lines fit a usual terminal.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    widest = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    letters, gaps = sum(widest), len(widest) - 1
    apart = 1 if letters + gaps <= WIDE < letters + 2 * gaps else 2
    table = Table.grid(padding=(0, apart, 0, 0))
    for column in range(len(rows[0]) if rows else 0):
        table.add_column(justify="left" if column in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # no markup: a name may hold brackets
    file = io.StringIO()
    # In Jupyter a console would show the table and write nothing.
    console = Console(file=file, width=100_000, color_system=None, force_jupyter=False)
    console.print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def table_lines(
    rows: Sequence[Mapping[str, str]],
    *,
    width: int = WIDE,
    spared: Sequence[str] = (),
    left: Collection[int] = (0,),
    headings: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Rows under their keys, with a rule below; what is ``spared`` goes, in this order, until they
    fit.

    Example:
        >>> rows = [{"size": "8", "loss": "0.48", "why": "at an edge"}]
        >>> table_lines(rows, width=12, spared=["why"])
        ['size  loss', '----------', '8     0.48']
    """
    lines: list[str] = []
    for gone in range(len(spared) + 1):
        kept = [name for name in rows[0] if name not in spared[:gone]]
        heads = [headings.get(name, name) for name in kept]
        lines = aligned([heads, *([row[name] for name in kept] for row in rows)], left=left)
        if max(map(len, lines)) <= width:
            break
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def html_card(title: str, verdict: str, lines: Iterable[str]) -> str:
    """A card for a notebook: a title, a verdict in its colour, and sentences."""
    tone = TONES.get(verdict, MUTED)
    badge = (
        f'<span style="background:{tone};color:#fff;border-radius:1em;padding:1px 10px">'
        f"{escape(verdict)}</span>"
        if verdict
        else ""
    )
    body = "".join(f'<div style="margin-top:4px">{escape(line)}</div>' for line in lines)
    return (
        f'<div style="display:inline-block;vertical-align:top;max-width:46em;margin:4px 8px 4px 0;'
        f'border:1px solid #8884;border-top:4px solid {tone};border-radius:6px;padding:8px 14px">'
        f"<b>{escape(title)}</b> {badge}{body}</div>"
    )
