"""The help of a verb as people read it: paragraphs that fit the page, options as they are typed."""

import contextlib
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Set

_WIDEST = 100
# An option that may be left out is shown as {None}|INT or {None}|{[INT [INT ...]]}: as typed, the
# braces and the None are no part of it.
_OPTIONAL = re.compile(r"\{None\}\|(?:\{(\[(?:[^{}])*\])\}|(\S+))")
_SEVERAL = re.compile(r"\[(\{[^}]*\}|[A-Z]+) \[(?:\1 )?\.\.\.\]\]")
_NO_DEFAULT = re.compile(r" ?\(default: (?:None|''|False)?\)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

SIZES = frozenset({"--base", "--target", "--corners", "--sizes"})
"""Options of any verb whose words are sizes."""


def printed(
    help_of: Callable[[], object],
    *,
    only: Set[str] = frozenset(),
    more: str = "",
    columns: int | None = None,
) -> None:
    """Print the help that a call prints, in a form for people; its SystemExit goes on.

    Of some options ``only``, where any are named; ``more`` is the command that shows all. As wide
    as the terminal, unless ``columns`` are given.
    """
    text = _Captured()
    try:
        with contextlib.redirect_stdout(text):
            help_of()
    finally:
        columns = columns or min(shutil.get_terminal_size().columns, _WIDEST)
        sys.stdout.write(readable(text.getvalue(), columns=columns, only=only, more=more))
        sys.stdout.flush()


class _Captured(io.StringIO):
    """Colours are chosen by whether the text goes to a terminal: say what the real stream says."""

    _terminal = False

    def __init__(self) -> None:
        super().__init__()
        self._terminal = sys.stdout.isatty()

    def isatty(self) -> bool:
        return self._terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.__stdout__.encoding if sys.__stdout__ is not None else "utf-8"


def readable(text: str, *, columns: int, only: Set[str] = frozenset(), more: str = "") -> str:
    """A help with its description wrapped and its options as they are typed.

    Example:
        >>> print(readable("│ --lr {None}|FLOAT  Rate. (default: None) │", columns=34))
        │ --lr FLOAT               Rate. │
    """
    lines = _COLOUR.sub("", text).split("\n")
    box = next((i for i in range(len(lines)) if _begins_a_box(lines[i : i + 2])), len(lines))
    above = list(_titled(_paragraphs(lines[:box], columns)))
    above = above[:-1]  # the empty line that ended the last paragraph
    below = [_OPTIONAL.sub(_as_typed, line) for line in lines[box:]]
    if below[:1] and below[0][0] in "╭│":
        count = sum(line.startswith("│ -") for line in below)
        below = list(_boxes(below, columns, only))
        below += [f"All {count} options: {more}", ""] if only else []
    else:  # without frames: as they are
        below = [_NO_DEFAULT.sub("", line) for line in below]
    return "\n".join([*above, *([""] if above else []), *below])


def _titled(lines: Iterator[str]) -> Iterator[str]:
    """Examples under a title, and no two empty lines."""
    before, titled = "", False
    for line in lines:
        if line.startswith("    ") and not titled:
            titled = True
            yield "Examples"
        if line or before:
            yield line
        before = line


def _boxes(lines: list[str], columns: int, only: Set[str]) -> Iterator[str]:
    """Boxes whose options are wrapped once; of those with none that is shown, nothing."""
    rest: list[str] = []
    head: list[str] = []
    entries: list[list[str]] = []  # of each option its names, then its words
    inside = False
    for line in lines:
        inner = line[2:-2].rstrip() if line.startswith("│") else ""
        if line.startswith("╭"):
            inside, head, entries = True, [line], []
        elif inner.startswith("-") or ("positional" in "".join(head[:1]) and inner[:1].strip()):
            names, _, words = inner.partition("  ")
            entries.append([names, words.strip()])
        elif inner.startswith(" ") and entries:
            entries[-1].append(inner.strip())
        elif line.startswith("│") and not entries and inside:
            head.append(line)
        elif line.startswith("╰"):
            inside = False
            kept = [e for e in entries if not only or set(re.findall(r"--[\w-]+", e[0])) & only]
            if kept:
                yield from head
                for entry in kept:
                    yield from _wrapped(entry, columns)
                yield line
            elif not entries:
                yield from (*head, line)
            head, entries = [], []
        else:
            rest.append(line)
    for entry in entries:  # without a frame
        yield from _wrapped(entry, columns)
    yield from rest


_COLUMN = 25
"""Where the words of an option begin."""


def _wrapped(entry: list[str], columns: int) -> Iterator[str]:
    first = entry[0].split()[0].rstrip(",")
    several = "SIZE" if first in SIZES else "LIST"
    names = _SEVERAL.sub(lambda m: f"{m[1]} ..." if m[1][0] == "{" else several, entry[0])
    words = _NO_DEFAULT.sub("", " ".join(filter(None, entry[1:])))
    wide = columns - 4
    lines = textwrap.wrap(
        words, wide - _COLUMN, break_long_words=False, break_on_hyphens=False
    ) or [""]
    if len(names) >= _COLUMN:
        lines.insert(0, "")
    for i, line in enumerate(lines):
        text = names if i == 0 and not line else f"{names if i == 0 else '':<{_COLUMN}}{line}"
        yield f"│ {text:<{wide}} │"


def _begins_a_box(lines: list[str]) -> bool:
    """Its frame, or where a stream has no such signs its title over a row of dashes."""
    return lines[0].lstrip()[:1] in ("╭", "│") or set("".join(lines[1:]).strip()) == {"-"}


def _as_typed(match: re.Match[str]) -> str:
    """The same number of characters, so that the columns stay."""
    return (match[1] or match[2]).ljust(len(match[0]))


def _paragraphs(lines: list[str], columns: int) -> Iterator[str]:
    """Lines that begin with a word are wrapped; those of an example stay as they are."""
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line and not line[0].isspace():
            paragraph.append(line)
            continue
        if paragraph:
            yield from textwrap.wrap(
                " ".join(paragraph), columns, break_long_words=False, break_on_hyphens=False
            )
            paragraph = []
        yield line
