"""What people type: lists with commas, 1e3 for 1000, and commands and options with typos."""

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from depthmup.rules import scheme

_NUMBERS = re.compile(r"[-+.\de]+(,[-+.\de]+)+,?")
_NAMES = re.compile(r"[A-Za-z][\w.()+/-]*(,[A-Za-z][\w.()+/-]*)+,?")
_EXPONENT = re.compile(r"\d{1,9}(\.\d{1,9})?[eE]\+?\d{1,2}")
# Of these lists of names, a comma cannot be part of a value that begins with a letter.
_LISTS_OF_NAMES = frozenset({"schemes", "scheme", "optimizers", "optimizer", "claims", "export"})


def as_meant(words: Sequence[str], options: type) -> list[str]:
    """The command line with ``--depths 8,16,32`` written ``--depths 8 16 32``, and 1e3 as 1000.

    Only values of options that take several numbers, or several names, come apart: ``3/4,1/4`` is
    one scheme.
    """
    kinds = {name: kind for _, names, kind, _ in options_of(options) for name in names}
    forms = {int: _NUMBERS, float: _NUMBERS}
    meant = []
    option = ""
    for word in words:
        value, equals = word, ""
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            option = option.replace("_", "-")
            if not equals:
                meant.append(word)
                continue
        of, several = value_of(kinds.get(option, str))
        form = forms.get(of) or (_NAMES if option[2:] in _LISTS_OF_NAMES else None)
        values = [value]
        if several and form is not None and form.fullmatch(value):
            values = value.strip(",").split(",")
            if equals:
                meant.append(option)
                equals = ""
        if of is int:
            values = [_digits(each) for each in values]
        meant += [f"{option}={values[0]}"] if equals else values
    return meant


def _digits(word: str) -> str:
    """A whole number such as 1e3 or 2.5e2 in digits; any other word as it is."""
    if not _EXPONENT.fullmatch(word) or not float(word).is_integer():
        return word
    return str(int(float(word)))


def options_of(options: type) -> Iterator[tuple[type, tuple[str, ...], Any, Field[Any]]]:
    """The class of every option, its names, none of a positional; its type; and its field."""
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        kind: Any = hints[field.name]
        more: list[Any] = []
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
        if is_dataclass(kind):
            yield from options_of(kind)  # type: ignore[arg-type]
            continue
        name = next((n for m in more if (n := getattr(m, "name", None))), field.name)
        aliases = [a for m in more for a in getattr(m, "aliases", None) or ()]
        names = () if tyro.conf.Positional in more else (f"--{name.replace('_', '-')}", *aliases)
        yield options, names, kind, field


def arguments(function: Callable[..., Any], options: Any, /, **others: Any) -> dict[str, Any]:
    """The arguments of a function: ``others``, and the options that are called as its own."""
    taken = inspect.signature(function).parameters.values()
    known = {p.name for p in taken if p.kind is not p.VAR_KEYWORD}
    same = {f.name: getattr(options, f.name) for f in fields(options) if f.name in known}
    return {**same, **others}


def value_of(kind: Any) -> tuple[Any, bool]:
    """The type of an option's values, also where it may be None, and whether it takes several."""
    for member in (kind, *get_args(kind)):
        if get_origin(member) is tuple:
            return get_args(member)[0], True
    members = [m for m in get_args(kind) if m is not type(None)]
    return (kind if get_origin(kind) is Literal or not members else members[0]), False


def mistake(words: Sequence[str], verb: str, options: type) -> tuple[str, str]:
    """What is wrong with a command line that the parser has refused, and what to type instead."""
    listed = list(options_of(options))
    kinds = {name: kind for _, names, kind, _ in listed for name in names}
    given, loose, wrong = set(), [], ""
    option, room = "", 0.0
    for word in (*words, "--"):
        if word.startswith("--"):
            if room == 1:
                wrong = wrong or f"{option} needs a value."
            if word == "--":
                break
            option, equals, word = word.partition("=")
            option = option.replace("_", "-")
            if option not in kinds:
                near = difflib.get_close_matches(option, kinds, n=1)
                meant = f"Did you mean {near[0]}? " if near else ""
                lists = f"`depthmup {verb} --help` lists the options."
                return f"There is no option {option}.", meant + lists
            given.add(option)
            of, several = value_of(kinds[option])
            room = 0 if of is bool else float("inf") if several else 1
            if not equals:
                continue
        if room < 1:
            loose.append(word)
        else:
            room -= 1
            wrong = wrong or _wrong(word, option, value_of(kinds[option])[0])
    if loose and all(names for _, names, _, _ in listed):
        hint = f"`depthmup {verb} --help` lists the options."
        if "--model" in kinds.keys() - given:
            hint = f"Use --model {loose[0] if ':' in loose[0] else 'PATH:FUNCTION'}."
        elif scheme_option := {"--scheme", "--schemes"} & kinds.keys() - given:
            with suppress(ValueError):
                hint = f"Use {min(scheme_option)} {scheme(loose[0]).name}."
        return f"{loose[0]} stands without an option.", hint
    if wrong:
        return wrong, f"`depthmup {verb} --help` describes it."
    for _, names, _, field in listed:
        needed = field.default is MISSING and field.default_factory is MISSING
        there = given & set(names) if names else loose[:1]
        if not names:
            del loose[:1]
        if needed and not there:
            name = names[0] if names else field.name.upper()
            return f"{name} is missing.", f"`depthmup {verb} --help` has examples."
    return "", ""


def _wrong(word: str, option: str, of: Any) -> str:
    """Why a word is no value of an option; empty if it is one."""
    if get_origin(of) is Literal:
        choices = [str(choice) for choice in get_args(of) if choice]
        return "" if word in choices else f"{option} takes {', '.join(choices)}; got {word!r}."
    if of not in (int, float):
        return ""
    try:
        of(word)
    except ValueError:
        return f"{option} takes {'whole ' if of is int else ''}numbers; got {word!r}."
    return ""


def unknown_command(word: str, commands: Collection[str]) -> str:
    """The error for a command that does not exist."""
    if word.startswith("-"):
        near = difflib.get_close_matches(word, ("--help", "--version"), n=1)
        meant = f"Did you mean {near[0]}? " if near else ""
        return f"there is no option {word!r}. {meant}`depthmup --help` lists options and commands."
    near = difflib.get_close_matches(word.lower(), commands, n=1, cutoff=0.5)
    advice = f"Did you mean `depthmup {near[0]}`?" if near else "`depthmup --help` lists them."
    return f"there is no command {word!r}. {advice}"
