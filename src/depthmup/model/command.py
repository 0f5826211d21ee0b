"""A command that trains one run: its placeholders, and the place from which its loss is read."""

import hashlib
import re
import shlex
import string
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from depthmup.model.source_files import Walk, add_file, add_import
from depthmup.records import Axis, Trial
from depthmup.records.trial import written

OUT = "{out}"
INIT_SCALE = "init_scale"
"""The setting that scales the initial weights inside branches."""

LARGEST_TEXT = 2**20
"""Bytes of a file named in a command whose content is hashed; larger ones are data."""

_PATTERN = "re:"

_HOW = (
    "Expected loss to be '{out}/FILE:COLUMN' (a column of a CSV or JSON lines file, "
    "with COLUMN:min its least value and with COLUMN@STEP that of a step), '{out}/FILE' "
    "(a file with one number) or 're:PATTERN' (a regular expression with one group, matched to "
    "every line of the output)"
)

_OF_TRIAL = ("lr", "seed", "steps", "scheme", "optimizer", "weight_decay", "multiplier")

_BETAS = ("beta1", "beta2", "one_minus_beta2")


class CommandError(RuntimeError):
    """A person's command failed, or left no loss; the message has all there is to see."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command with placeholders, and its loss: in a file, perhaps a column of it, or printed.

    The template is split into words as a shell would do it, and then every word is filled in: no
    shell runs, so neither a path nor a value is ever split or expanded.
    """

    template: str
    file: str = ""
    column: str = ""
    pattern: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words, with their placeholders."""
        return tuple(shlex.split(self.template))

    @property
    def placeholders(self) -> frozenset[str]:
        """The names in braces."""
        return frozenset(name for word in self.words for name in _fields(word))

    @property
    def name(self) -> str:
        """The script's name, or the program's."""
        words = self.words
        if "-m" in words[1:-1]:
            return words[words.index("-m", 1) + 1]
        scripts = [word for word in words if word.endswith((".py", ".sh")) and "{" not in word]
        return Path((scripts or words)[0]).name

    def filled(self, trial: Trial, out: Path) -> tuple[str, ...]:
        """The words of one run, whose folder is ``out``."""
        values = _values(trial, out)
        return tuple(word.format(**values) for word in self.words)

    def file_of(self, trial: Trial, out: Path) -> Path:
        """The file of the loss of one run, whose folder is ``out``."""
        return Path(self.file.format(**_values(trial, out)))


def parsed(template: str, loss: object) -> Command:
    """The command of a template and its loss.

    Example:
        >>> parsed("python train.py --lr {lr} --out {out}", "{out}/log.csv:val").column
        'val'
    """
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ValueError(
            f"Expected a command that splits into words; got {template!r}: {error}."
        ) from None
    if not words:
        raise ValueError(
            "Expected a command, such as 'python train.py --lr {lr} --out {out}'; got none."
        )
    command = Command(template=template, **_loss(loss))
    if command.file and "out" not in command.placeholders:
        raise ValueError(
            f"Expected the command to take {OUT}, the run's folder, where its loss is read "
            f"({command.file}); got {template!r}."
        )
    return command


def check_names(command: Command, axes: Iterable[Axis], settings: Iterable[str]) -> None:
    """Refuse placeholders that no run gives."""
    axes = list(axes)
    of_base = [f"base_{axis}" for axis in axes]
    names = list(dict.fromkeys([*axes, *settings, *_OF_TRIAL, INIT_SCALE, "out", *of_base]))
    inside = command.placeholders | {*_fields(command.file)}
    if unknown := sorted(inside - {*names}):
        raise ValueError(
            f"Expected placeholders that a run has ({', '.join(names)}); got "
            f"{{{unknown[0]}}}. Add {unknown[0]} to the base of the design if it is an axis, or "
            f"write {{{{ and }}}} for braces of your own."
        )


def check_axes_of(command: Command, axes: Iterable[Axis]) -> None:
    """Refuse axes that a command does not take."""
    for axis in axes:
        either = {axis, "steps"} if axis == "tokens" else {axis}
        if not either & command.placeholders:
            raise ValueError(
                f"Expected the command to take every axis of the base; it has no {{{axis}}}. Pass "
                f"it to your script, such as --{axis} {{{axis}}}, or leave {axis} out of the base."
            )


def code_of(command: Command) -> str:
    """A hash of the command and the code that it names: scripts, modules, small text files."""
    walk = Walk()
    read = repr((command.file, command.column, command.pattern))
    walk.texts.extend([("command", command.template), ("loss", read)])
    here, words = Path.cwd(), command.words
    for before, word in zip(("", *words), words, strict=False):
        path = (here / word.rpartition("=")[2]).absolute()
        if before == "-m":
            for names in (word.split("."), [*word.split("."), "__main__"]):
                add_import(walk, here, names, here)
        elif path.suffix == ".py" and path.is_file():
            add_file(walk, path, path.parent)
        elif path.is_file() and path.stat().st_size <= LARGEST_TEXT:
            walk.texts.append((word, hashlib.sha256(path.read_bytes()).hexdigest()))
    return hashlib.sha256(repr(sorted(walk.texts)).encode()).hexdigest()[:16]


def _values(trial: Trial, out: Path) -> dict[str, str]:
    """The text of every placeholder; tuned numbers as a person wrote them, others exactly."""
    values: dict[str, object] = {name: getattr(trial, name) for name in _OF_TRIAL}
    values |= {f"base_{axis}": n for axis, n in trial.base.items()}
    values |= {INIT_SCALE: 1.0, **trial.settings, **trial.size, "out": out}
    if (betas := trial.settings.get("betas")) is not None:
        values |= dict(zip(_BETAS, (*betas, 1.0 - betas[1]), strict=True))
    return {
        name: str(written(value) if isinstance(value, float) else value)
        for name, value in values.items()
    }


def names_of(settings: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The placeholders by which a command can take each setting."""
    return {name: _BETAS if name == "betas" else (name,) for name in settings}


def _loss(given: object) -> dict[str, str]:
    if not isinstance(given, str) or not given:
        raise ValueError(f"{_HOW}; got {given!r}.")
    if given.startswith(_PATTERN):
        pattern = given.removeprefix(_PATTERN)
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"Expected a regular expression; got {pattern!r}: {error}.") from None
        if groups != 1:
            raise ValueError(
                f"Expected a regular expression with one group, the loss, such as "
                rf"'re:loss=(\S+)'; got {groups} groups in {pattern!r}."
            )
        return {"pattern": pattern}
    if not given.startswith(f"{OUT}/"):
        raise ValueError(f"{_HOW}; got {given!r}.")
    file, _, column = given.partition(":")
    _fields(file)
    return {"file": file, "column": column}


def _fields(word: str) -> list[str]:
    """The names in braces of a word; attributes, indices and formats are refused."""
    try:
        parts = [*string.Formatter().parse(word)]
    except ValueError as error:
        raise ValueError(
            f"Expected placeholders such as {{lr}} in {word!r}: {error}. Write {{{{ and }}}} for "
            "braces of your own."
        ) from None
    names = []
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if form or conversion or not name.isidentifier():
            raise ValueError(
                f"Expected a placeholder to be a name in braces, such as {{lr}}; got "
                f"{word!r}. Write {{{{ and }}}} for braces of your own."
            )
        names.append(name)
    return names
