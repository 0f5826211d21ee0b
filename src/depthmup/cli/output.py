"""Standard output of a command: its result, apart from everything else that is printed.

With ``--json``, stdout holds JSON and nothing else: whatever a custom model's code prints, in this
process and in workers, from Python or from C, goes to stderr.
"""

import codecs
import io
import json as json_format
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from depthmup._drafts import together
from depthmup.cli.streams import Lasting
from depthmup.records.codec import strict, versioned
from depthmup.records.text import ON_TERMINALS, TONES

_result: ContextVar[IO[str] | None] = ContextVar("result", default=None)
_printed: ContextVar[bool] = ContextVar("printed", default=False)


# A terminal of another code page (cp1252 on Windows, ASCII in many containers) has no minus sign.
_PLAIN = {
    "\N{MINUS SIGN}": "-",
    "\N{INFINITY}": "inf",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{PLUS-MINUS SIGN}": "+-",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "--",
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{SQUARE ROOT}": "sqrt",
    "\N{RIGHTWARDS ARROW}": "->",
    "\N{LEFTWARDS ARROW}": "<-",
    "\N{GREEK SMALL LETTER ALPHA}": "alpha",
    "\N{GREEK SMALL LETTER GAMMA}": "gamma",
    "\N{GREEK SMALL LETTER KAPPA}": "kappa",
    "\N{GREEK SMALL LETTER MU}": "mu",
    "\N{BOX DRAWINGS LIGHT HORIZONTAL}": "-",
    "\N{BOX DRAWINGS HEAVY HORIZONTAL}": "-",
    "\N{BOX DRAWINGS LIGHT VERTICAL}": "|",
}


def plainly(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: what an encoding lacks, in ASCII; anything else as an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    text = "".join(
        _PLAIN.get(letter) or letter.encode("ascii", "backslashreplace").decode()
        for letter in lacking
    )
    return text, error.end


codecs.register_error("depthmup.plainly", plainly)


def show_everywhere() -> None:
    """Let both streams show any text: what their encoding lacks is written in ASCII."""
    # A path may hold bytes that no encoding has: they are shown as escapes.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="depthmup.plainly")


_COLOURS = {"bold red": "1;31", "bold cyan": "1;36", "bold green": "1;32", "bold yellow": "1;33"}
_STYLES = {
    form: ON_TERMINALS[tone]
    for word, tone in TONES.items()
    if tone in ON_TERMINALS
    for form in (word, word.capitalize())
}
_VERDICT = re.compile(rf"\b({'|'.join(_STYLES)})\b")


def styled(text: str, style: str, stream: IO[str]) -> str:
    """The text in a colour, where the stream is a terminal and NO_COLOR is not set."""
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m"


def terminal_width(stream: IO[str] | None = None) -> int | None:
    """Columns of the terminal, at most 100; none where there is no terminal."""
    from rich.console import Console

    console = Console(file=stream)
    return min(100, console.width) if console.is_terminal else None


def show(text: str) -> None:
    """Print a result; on a terminal with its verdicts in colours, and sentences that fit it."""
    text = fitting(text, sys.stdout)
    print(_VERDICT.sub(lambda m: styled(m[0], _STYLES[m[0]], sys.stdout), text))


def fitting(text: str, stream: IO[str]) -> str:
    """A text whose sentences fit the stream, if that is a terminal."""
    width = terminal_width(stream) if stream.isatty() else None
    if width is None:
        return text
    return "\n".join(fitted(line, width) for line in text.split("\n"))


def fitted(line: str, width: int) -> str:
    """A line in lines of at most ``width``, if it is a sentence.

    Rows of tables, which have gaps, and what is to be copied, which is indented or has options,
    stay whole.

    Example:
        >>> print(fitted("- one two three", 11))
        - one two
          three
    """
    bare = line.lstrip()
    indent = len(line) - len(bare)
    if len(line) <= width or indent > 3 or "  " in bare or " --" in bare:
        return line
    further = " " * (indent + 2 if indent or bare.startswith("- ") else 0)
    return textwrap.fill(
        line,
        width,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


@contextmanager
def json_alone(wanted: bool) -> Iterator[None]:
    """Inside, if ``wanted``, only ``print_json`` reaches stdout."""
    show_everywhere()
    if not wanted:
        yield
        return
    before, descriptor = sys.stdout, _descriptor(sys.stdout)
    before.flush()
    result: IO[str] = before
    if descriptor == 1:
        result = Lasting(os.fdopen(os.dup(1), "wb"), encoding="utf-8")
        os.dup2(2, 1)  # of this process, and of the workers that it starts
    token, printed = _result.set(result), _printed.set(False)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = before
        _result.reset(token)
        _printed.reset(printed)
        if result is not before:
            before.flush()
            # ``print_json`` flushed already: an error was shown where it came.
            with suppress(OSError):
                result.flush()
            os.dup2(result.fileno(), 1)
            with suppress(OSError):
                result.close()
            if isinstance(before, Lasting) and isinstance(result, Lasting):
                before.unread |= result.unread


def print_json(value: Any) -> None:
    """Print the result of the command: a value as strict JSON, or a text that is JSON already."""
    if not isinstance(value, str):
        value = json_format.dumps(versioned(value), indent=2, allow_nan=False)
    print(value, file=_result.get() or sys.stdout, flush=True)
    _printed.set(True)


def print_error(error: Any) -> None:
    """Print an error as JSON, where a program reads it and has no result yet."""
    if _result.get() is not None and not _printed.get():
        with suppress(OSError):  # it may be what cannot be written
            print_json(error)


def answer(result: Any, text: str, *, json: bool) -> None:
    """Print a result: as JSON where that was asked for, else as text."""
    if json:
        print_json(strict(result))
    else:
        show(text)


def write_files(files: tuple[Path, Path] | None, result: Any, page: Callable[[str], str]) -> None:
    """Write a result as JSON and its page, which is told that file's name; print where it is.

    The result may be a text that is JSON already.
    """
    if files is None:
        return
    page_file, data_file = files
    if not isinstance(result, str):
        result = json_format.dumps(versioned(strict(result)), indent=2, allow_nan=False) + "\n"
    with together() as drafts:
        drafts.write(page_file, page(data_file.name))
        drafts.write(data_file, result)
    say_page(page_file)


def say_page(path: Path, what: str = "page") -> None:
    """Print where a page is: beside JSON, on stderr."""
    print(f"\nThe {what}: {path.resolve()}")


def _descriptor(stream: IO[str]) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
