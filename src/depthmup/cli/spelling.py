"""What people type: lists with commas, 1e3 for 1000, and names of commands with typos."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

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
    whole = _whole_numbers(options)
    option = ""
    meant = []
    for word in _with_commas(words, _lists(options)):
        if word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            option = option.replace("_", "-")
            if equals and option in whole:
                word = f"--{option}={_digits(value)}"
        elif option in whole:
            word = _digits(word)
        meant.append(word)
    return meant


def _digits(word: str) -> str:
    """A whole number such as 1e3 or 2.5e2 in digits; any other word as it is."""
    if not _EXPONENT.fullmatch(word) or not float(word).is_integer():
        return word
    return str(int(float(word)))


def _with_commas(words: Sequence[str], lists: Mapping[str, re.Pattern[str]]) -> list[str]:
    split: list[str] = []
    option = ""
    for word in words:
        if word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            option = option.replace("_", "-")
            if equals and option in lists and lists[option].fullmatch(value):
                split += [f"--{option}", *value.strip(",").split(",")]
                continue
        elif option in lists and lists[option].fullmatch(word):
            split += word.strip(",").split(",")
            continue
        split.append(word)
    return split


def _whole_numbers(options: type) -> set[str]:
    """Options whose values are whole numbers, one or several."""
    names: set[str] = set()
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        kind = hints[field.name]
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        if is_dataclass(kind):
            names |= _whole_numbers(kind)  # type: ignore[arg-type]
        elif int in (kind, *get_args(kind), _several(kind)):
            names.add(field.name.replace("_", "-"))
    return names


def _lists(options: type) -> dict[str, re.Pattern[str]]:
    """Options that take several values, with the form of values that a comma separates."""
    patterns: dict[str, re.Pattern[str]] = {}
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        name, kind = field.name.replace("_", "-"), hints[field.name]
        aliases: tuple[str, ...] = ()
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            aliases = tuple(a for m in more for a in getattr(m, "aliases", None) or ())
        if is_dataclass(kind):
            patterns |= _lists(kind)  # type: ignore[arg-type]
            continue
        values = _several(kind)
        if values in (int, float):
            patterns |= {n.lstrip("-"): _NUMBERS for n in (name, *aliases)}
        elif values is not None and name in _LISTS_OF_NAMES:
            patterns |= {n.lstrip("-"): _NAMES for n in (name, *aliases)}
    return patterns


def _several(kind: Any) -> Any:
    """The type of the values of ``tuple[type, ...]``, also where it may be None."""
    for member in (kind, *get_args(kind)):
        if get_origin(member) is tuple and get_args(member)[1:] == (...,):
            return get_args(member)[0]
    return None


def unknown_command(word: str, commands: Collection[str]) -> str:
    """What to say of a command that does not exist.

    Example:
        >>> unknown_command("tranfer", ["plan", "transfer"])
        "there is no command 'tranfer'. Did you mean `depthmup transfer`?"
    """
    near = difflib.get_close_matches(word.lower(), commands, n=1, cutoff=0.5)
    advice = f"Did you mean `depthmup {near[0]}`?" if near else "`depthmup --help` lists them."
    return f"there is no command {word!r}. {advice}"
