"""The help of a verb as people read it: paragraphs that fit the page, options as they are typed."""

import contextlib
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator

_WIDEST = 100
# An option that may be left out is shown as {None}|INT or {None}|{[INT [INT ...]]}: as typed, the
# braces and the None are no part of it.
_OPTIONAL = re.compile(r"\{None\}\|(?:\{(\[(?:[^{}])*\])\}|(\S+))")


def printed(help_of: Callable[[], object]) -> None:
    """Print the help that a call prints, in a form for people; its SystemExit goes on."""
    text = _Captured()
    try:
        with contextlib.redirect_stdout(text):
            help_of()
    finally:
        sys.stdout.write(readable(text.getvalue(), columns=_columns()))
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


def _columns() -> int:
    return min(shutil.get_terminal_size().columns, _WIDEST)


def readable(text: str, *, columns: int) -> str:
    """A help with its description wrapped and its options as they are typed.

    Example:
        >>> print(readable("Some words that go on.\\n│ --lr {None}|FLOAT  Rate. │", columns=12))
        Some words
        that go on.
        │ --lr FLOAT         Rate. │
    """
    lines = text.split("\n")
    box = next((i for i in range(len(lines)) if _begins_a_box(lines[i : i + 2])), len(lines))
    above = list(_paragraphs(lines[:box], columns))
    above = above[:-1]  # the empty line that ended the last paragraph
    return "\n".join([*above, *(_OPTIONAL.sub(_as_typed, line) for line in lines[box:])])


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
