"""Remedies in the grammar of where they are shown: Python, or the command line."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_typed: ContextVar[bool] = ContextVar("typed", default=False)


@contextmanager
def on_command_line() -> Iterator[None]:
    """Inside, remedies are options."""
    token = _typed.set(True)
    try:
        yield
    finally:
        _typed.reset(token)


def either(python: str, options: str) -> str:
    """The remedy to show: Python to a program, options to a command.

    Example:
        >>> either("lrs=(0.001, 0.002)", "--lrs 1e-3,2e-3")
        'lrs=(0.001, 0.002)'
        >>> with on_command_line():
        ...     either("lrs=(0.001, 0.002)", "--lrs 1e-3,2e-3")
        '--lrs 1e-3,2e-3'
    """
    return options if _typed.get() else python


def with_option(command: Sequence[str], option: str) -> list[str]:
    """A command with an option and its value, in place of what it gave that option before.

    Example:
        >>> with_option(["depthmup", "fit", "--seeds", "3", "--json"], "--seeds 6")
        ['depthmup', 'fit', '--json', '--seeds', '6']
    """
    name, kept, dropping = re.split("[ =]", option)[0], list[str](), False
    for word in command:
        if word.startswith("--"):
            dropping = word.partition("=")[0] == name
        if not dropping:
            kept.append(word)
    return [*kept, *option.split()]
