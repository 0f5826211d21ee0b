"""Errors as messages on stderr, and exit statuses that say whose they are.

| status | meaning |
| --- | --- |
| 0 | done, and what was judged holds |
| 1 | done, and what was judged does not hold (``check``, ``limit --check``, ``regimes --map``) |
| 2 | refused: the input, a file or this machine |
| 3 | the code of a custom model raised an error or ended the program, or training runs failed |
| 4 | a mistake in this package |
| 5 | done, and what was judged is undecided (``check``, ``transfer --fail-unless``) |
| 130 | interrupted by Ctrl-C |
| 141 | done, but whoever read the output had enough (``| head``) |
| 143 | ended by SIGTERM, as clusters do; finished runs are stored, as after Ctrl-C |
"""

import errno
import re
import sys
import traceback
from collections.abc import Callable

from depthmup.cli.folders import remove_unused
from depthmup.cli.interrupts import status_of
from depthmup.cli.output import fitting, print_error, styled
from depthmup.records.packages import EXTRAS, without
from depthmup.records.printable import printable

HOLDS, FAILS, REFUSED, OWN_CODE, DEFECT, UNDECIDED = range(6)

# What libraries raise where this package passes on what a person gave, with a text for people.
_MESSAGES = (ValueError, RuntimeError, OSError, OverflowError, MemoryError, ModuleNotFoundError)

_REPEAT = "Free some space, then repeat the command."
_DESCRIPTORS = "Raise the limit of open files (ulimit -n), or use fewer --workers."
_REMEDIES = {
    errno.ENOSPC: _REPEAT,
    errno.EDQUOT: _REPEAT,
    errno.EFBIG: "This account may write no file of that size (ulimit -f).",
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.EROFS: "Name another folder.",
}


def explained(work: Callable[[], int]) -> int:
    """The exit status of some work; an error becomes a message on stderr.

    After an error, folders that were made for its results and are still empty are removed.
    """
    try:
        return work()
    except KeyboardInterrupt as interrupt:
        status = status_of(interrupt)
        say_error("interrupted.", status)
    except BaseException as error:
        # SystemExit too: a model's factory that calls sys.exit(0) has not measured anything.
        status = _explain(error)
    remove_unused()
    return status


def _explain(error: BaseException) -> int:
    from depthmup.model.errors import is_refusal, own_trace

    if isinstance(error, GeneratorExit):
        raise error
    if (forward := _own_forward(error)) is not None:
        say_error(f"your own code raised {type(error.__cause__).__name__}:\n\n{forward}", OWN_CODE)
        return OWN_CODE
    if (trace := own_trace(error)) is not None:
        if isinstance(error, SystemExit):
            what = f"ended the program by sys.exit({error.code!r})"
        else:
            what = f"raised {type(error).__name__}"
        say_error(f"your own code {what}:\n\n{trace}", OWN_CODE)
        return OWN_CODE
    if _is_of_workers(error):
        say_error(str(error), OWN_CODE)
        return OWN_CODE
    if is_refusal(error) or _has_message(error):
        say_error(_text(error), REFUSED)
        return REFUSED
    say_error(
        "this is a mistake in depthmup, not yours. Please report it with the command and this:\n\n"
        + "".join(traceback.format_exception(error)).rstrip(),
        DEFECT,
    )
    return DEFECT


def _own_forward(error: BaseException) -> str | None:
    """The trace of a model's own forward pass that fails, and what may be wrong with its inputs."""
    if "depthmup.tracing" not in sys.modules:
        return None
    from depthmup.model.errors import own_trace
    from depthmup.tracing import ForwardError

    if not isinstance(error, ForwardError) or error.__cause__ is None:
        return None
    trace = own_trace(error.__cause__)
    return None if trace is None else f"{trace}\n\n{_as_typed(str(error))}"


_ARGUMENTS = {
    "Pass the arguments of one real call as example_inputs: a tensor, a tuple of several, or a "
    "dict of keywords. A batch function returns them first: return (x, z), targets.": (
        "Let batch(generator) return the arguments of one real call first: a tensor, a tuple of "
        "several, or a dict of keywords, as in return (x, z), targets."
    ),
    "pass those of one real call as example_inputs.": (
        "let batch(generator) return those of one real call first."
    ),
}
"""Remedies of a program that traces a model, and of a command, whose file has a batch function."""


def _as_typed(text: str) -> str:
    for python, typed in _ARGUMENTS.items():
        text = text.replace(python, typed)
    return text


def _is_of_workers(error: BaseException) -> bool:
    if "depthmup.sweep" not in sys.modules:
        return False
    from depthmup.sweep import WorkerError

    return isinstance(error, WorkerError)


def _has_message(error: BaseException) -> bool:
    if isinstance(error, ModuleNotFoundError):
        # One that asks for an extra has no name; a package that no extra installs is a defect.
        return not error.name or error.name in EXTRAS
    return isinstance(error, _MESSAGES)


def _text(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory for this. Use smaller sizes, or fewer workers at once."
    if isinstance(error, OverflowError):
        return f"a number is too large to compute with: {error}. Use sizes and exponents nearer 1."
    if isinstance(error, ModuleNotFoundError) and error.name:
        return without("This", error.name)
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}. {_REMEDIES[error.errno]}"
    if isinstance(error, KeyError) and error.args:  # whose str() is in quotes
        return str(error.args[0])
    return _as_typed(str(error)) or type(error).__name__


_SENTENCES = re.compile(r"(?s)(.+?(?<!e\.g|i\.e)\.) (?=[A-Z`])(.+)")


def say_error(text: str, status: int) -> None:
    """Print an error, and on a line of its own the hint that follows its first sentence.

    With ``--json`` both are JSON as well, with the exit status.
    """
    text = printable(text)
    error, hint = text, ""
    if "\n" not in text and (parts := _SENTENCES.fullmatch(text)):
        error, hint = parts.groups()
    for word, style, words in (("error:", "bold red", error), ("hint:", "bold cyan", hint)):
        if words:
            shown = fitting(f"{word} {words}", sys.stderr).removeprefix(word)
            print(f"{styled(word, style, sys.stderr)}{shown}", file=sys.stderr)
    print_error({"error": error, "hint": hint, "status": status})
