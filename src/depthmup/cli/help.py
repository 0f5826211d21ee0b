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
from depthmup.records.text import begin
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


def document_of(verb: str, options: type) -> dict[str, Any]:
    """The help for a program: ``--help --json``."""
    paragraphs, examples = about(options)
    listed = [
        {"group": group, "names": names, "help": words} for group, names, words in entries(options)
    ]
    return {
        "command": verb,
        "about": paragraphs,
        "examples": examples.splitlines(),
        "options": listed,
    }


def entries(options: type) -> Iterator[tuple[str, str, str]]:
    """The group of every option, its names with the form of its value, and its words."""
    yield "Options", "-h, --help", "Show this help and exit."
    # A verb's own options stand before those of its groups.
    listed = [(_title(owner, options), owner, *more) for owner, *more in options_of(options)]
    for title, owner, names, kind, field in sorted(listed, key=lambda each: each[0] != "Options"):
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


def _title(owner: type, options: type) -> str:
    """The title over the options of a class: the verb's own, or of a group, in its first line."""
    own = owner is options or getattr(owner, "AMONG_OWN", False)
    return "Options" if own else (inspect.getdoc(owner) or "").split("\n")[0]


COMMON = {
    "base": "Size with a known or cheaply tuned learning rate: WIDTHxDEPTH, such as 64x4, or "
    "NAME=VALUE for each argument of the factory, such as width=64 depth=4 experts=8.",
    "batch": "Function that returns a batch: a name in the same file, or module:function.",
    "export": "Also write every chart in these formats.",
    "json": "Print the result as JSON, and nothing else on stdout.",
    "loss": "Function that returns the loss; by default the file's loss, or cross-entropy.",
    "model": "Your model: module:factory or path/to/file.py:factory, called as factory(width, "
    "depth), with further axes by name. The same file defines batch(generator) -> (inputs, "
    "targets) and, unless the loss is cross-entropy, loss(outputs, targets).",
    "own_init": "How the model's own initialization depends on its size, where its code does not "
    "show that: measured, fixed (the same at every size) or fan_in (like torch's layers).",
    "tolerance": "Largest drift, in octaves per doubling of size, that still counts as staying: "
    "0.15 is -10% to +11%.",
    "unverified_data": "Accept files with other than the official checksum.",
}
"""What options of several verbs mean, where a verb says nothing else."""


@cache
def _words(owner: type) -> dict[str, str]:
    """The texts of a class's fields: its own below each, common ones, or ``API``'s arguments'."""
    [of_class] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(of_class, ast.ClassDef)
    words: dict[str, str] = {}
    for reference in getattr(owner, "API", ()):
        words |= api_words(reference)
    words |= COMMON
    for field, below in zip(of_class.body, of_class.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            text = " ".join(ast.literal_eval(below.value).split())
            words[ast.unparse(field.target)] = with_names(text)
    return words


def with_names(text: str) -> str:
    """A text in which ``{schemes}`` and the like are the names that they stand for."""
    for what, names in NAMES.items():
        text = text.replace(f"{{{what}}}", ", ".join(names))
    return text


_ARGUMENT = re.compile(r"^    (\w[\w, ]*): (.+(?:\n {8}.+)*)", re.M)


def api_words(reference: str) -> dict[str, str]:
    """The texts of a function's arguments, by name, from its source: loading it takes seconds."""
    module, _, name = reference.partition(":")
    file = Path(__file__).parents[1] / f"{module.replace('.', '/')}.py"
    # Overloads of a function stand before it.
    *_, found = [
        node
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    ]
    _, _, listed = re.split(r"(Args|Attributes):\n", ast.get_docstring(found) or "", maxsplit=1)
    return {
        argument: begin(text)
        for names, words in _ARGUMENT.findall(listed.split("\n\n")[0])
        for text in [" ".join(words.replace("``", "").split())]
        for argument in names.split(", ")
    }


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
