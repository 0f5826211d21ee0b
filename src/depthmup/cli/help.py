"""The help of a verb: what it does, examples, and its options as they are typed."""

import ast
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator, Set
from dataclasses import MISSING, Field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from depthmup.cli.spelling import options_of, value_of
from depthmup.rules import NAMES

_WIDEST, _COLUMN = 100, 25
"""Letters of a line, and where the words of an option begin."""

SIZES = frozenset({"--base", "--target", "--corners", "--sizes"})
"""Options of any verb whose words are sizes."""

_METAVARS = {int: "INT", float: "FLOAT", Path: "PATH", bool: ""}


def help_of(verb: str, options: type, *, only: Set[str] = frozenset(), more: str = "") -> str:
    """The help, as wide as the terminal: options ``only``, if any are named; ``more`` shows all."""
    columns = min(shutil.get_terminal_size().columns, _WIDEST)
    listed = list(entries(options))
    positional = [names for _, names, _ in listed if not names.startswith("-")]
    usage = " ".join(["usage: depthmup", verb, *positional, "[OPTIONS]"])
    lines = [usage, "", *_described(options, columns)]
    group = ""
    for title, names, words in listed:
        if only and not only & set(re.findall(r"--[\w-]+", names)):
            continue
        if title != group:
            lines += ["", title]
            group = title
        lines += _wrapped(names, words, columns)
    return "\n".join([*lines, *(["", f"All {len(listed)} options: {more}"] if only else [])])


def about(options: type) -> tuple[list[str], str]:
    """The paragraphs that describe a verb, and its examples."""
    *parts, last = inspect.getdoc(options).split("\n\n")  # type: ignore[union-attr]
    examples = "" if not last.startswith("    ") else textwrap.dedent(last)
    return [" ".join(p.split()) for p in (parts if examples else [*parts, last])], examples


def entries(options: type) -> Iterator[tuple[str, str, str]]:
    """The group of every option, its names with the form of its value, and its words."""
    yield "Options", "-h, --help", "Show this help and exit."
    # A verb's own options stand before those of its groups.
    for owner, names, kind, field in sorted(options_of(options), key=lambda o: o[0] is not options):
        title = "Options" if owner is options else (inspect.getdoc(owner) or "").split("\n")[0]
        words = f"{_words(owner)[field.name]} {_default(field)}".strip()
        if field.default is True:
            names = (*names, f"--no-{names[0].removeprefix('--')}")
        of, several = value_of(kind)
        form = _METAVARS.get(of, "STR")
        if get_origin(of) is Literal:
            form = f"{{{','.join(str(choice) for choice in get_args(of) if choice)}}}"
        if several and form[:1] != "{":
            form = "SIZE" if names and names[0] in SIZES else "LIST"
        elif several:
            form += " ..."
        if not names:
            names, form = (field.name.upper(),), "..." if several else ""
        yield title, f"{', '.join(names)} {form}".strip(), words


@cache
def _words(owner: type) -> dict[str, str]:
    """The text below every field of a class; ``{schemes}`` stands for the names of schemes."""
    [of_class] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(of_class, ast.ClassDef)
    words: dict[str, str] = {}
    for field, below in zip(of_class.body, of_class.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            text = " ".join(ast.literal_eval(below.value).split())
            for what, names in NAMES.items():
                text = text.replace(f"{{{what}}}", ", ".join(names))
            words[ast.unparse(field.target)] = text
    return words


def _default(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "(required)" if field.default_factory is MISSING else ""
    if field.default is None or field.default is False or field.default in ("", ()):
        return ""
    if field.default is True:
        return "(the default)"
    values = field.default if isinstance(field.default, tuple) else (field.default,)
    return f"(default: {' '.join(map(str, values))})"


def _described(options: type, columns: int) -> Iterator[str]:
    paragraphs, examples = about(options)
    for i, paragraph in enumerate(paragraphs):
        yield from [""][:i] + textwrap.wrap(paragraph, columns, break_on_hyphens=False)
    if examples:
        yield from ("", "Examples")
        yield from textwrap.indent(examples, "    ").split("\n")


def _wrapped(names: str, words: str, columns: int) -> Iterator[str]:
    room = columns - 2 - _COLUMN
    lines = textwrap.wrap(words, room, break_long_words=False, break_on_hyphens=False) or [""]
    if len(names) >= _COLUMN:
        yield f"  {names}"
        names = ""
    for line in lines:
        yield f"  {names:<{_COLUMN}}{line}".rstrip()
        names = ""
