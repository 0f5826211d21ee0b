"""The verbs: their overview, and how one of them is run."""

import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Union

import tyro

from depthmup._version import __version__
from depthmup.cli.help import document_of, help_of, with_names
from depthmup.cli.output import json_alone, print_error, print_json
from depthmup.cli.refusals import REFUSED, explained, say_error
from depthmup.cli.spelling import as_meant, mistake, unknown_command
from depthmup.records.grammar import on_command_line
from depthmup.records.packages import need

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Your model": {
        "plan": "the factors of every parameter under a scheme, and why",
        "check": "do activations and updates scale as the scheme predicts?",
        "transfer": "does the best learning rate stay as the model grows? (trains)",
        "predict": "which way will SGD's best learning rate move? (trains nothing)",
    },
    "Runs that exist": {
        "fit": "the same verdict from a table of your finished runs",
        "score": "did a certificate's forecast hold, by later runs?",
        "next": "which runs to train next, for your own trainer or queue",
        "report": "rebuild the page of a measurement, export its figures",
        "merge": "join the shards of a sweep",
    },
    "Theory": {
        "limit": "training at infinite width, without a network",
        "regimes": "where a pair of exponents lies, or the map of all",
        "rules": "the learning rates that published rules prescribe",
        "reproduce": "figures and claims of Tensor Programs VI (in a clone)",
    },
    "This installation": {
        "doctor": "versions, hardware, and which engine trains here",
        "completion": "print a completion script for bash, zsh, tcsh or fish",
    },
}

VERBS = tuple(verb for group in GROUPS.values() for verb in group if verb != "completion")
"""Each is a module of this package with ``Options`` and ``run``, loaded when it is called."""

EXAMPLES = (
    "depthmup transfer --preset tiny --out runs/first",
    "depthmup plan --model mine.py:make --base 64x4 --target 1024x32",
    "depthmup fit runs.csv --axes depth=n_layers --lr lr --loss final_loss",
)

SHELLS = dict.fromkeys(("bash", "zsh", "tcsh", "fish")).keys()
"""In the order in which help lists them."""

COMPLETION = """usage: depthmup completion [bash|zsh|tcsh|fish]

Print a script that completes commands and options; bash where no shell is named.

    depthmup completion bash > ~/.local/share/bash-completion/completions/depthmup
    depthmup completion zsh > ~/.zfunc/_depthmup"""


def overview() -> str:
    """The commands in groups, each in one line of at most 80 columns: ``depthmup --help``."""
    lines = [
        "usage: depthmup COMMAND [OPTIONS]",
        "",
        "Measure and make hyperparameters transfer across width and depth.",
    ]
    for title, commands in GROUPS.items():
        lines += ["", title]
        lines += [f"  {name:<12}{says}" for name, says in commands.items()]
    lines += ["", "Examples", *(f"  {example}" for example in EXAMPLES)]
    lines += [
        "",
        "Options and examples: depthmup COMMAND --help. Version: depthmup --version.",
        "Lists may be written 8 16 32 or 8,16,32.",
    ]
    return "\n".join(lines)


def module_of(verb: str) -> ModuleType:
    """The module of a verb."""
    return import_module(f"depthmup.cli.{verb}")


def parse(arguments: Sequence[str]) -> Any:
    """The options of the verb that the command line names."""
    config = (tyro.conf.FlagCreatePairsOff,)
    verb, *rest = arguments
    if verb in VERBS:
        # Alone, so that a misspelled option is not answered with those of other verbs.
        return tyro.cli(module_of(verb).Options, prog=f"depthmup {verb}", args=rest, config=config)
    commands = [
        Annotated[module_of(verb).Options, tyro.conf.subcommand(verb, prefix_name=False)]
        for verb in VERBS
    ]
    choice: Any = Union[tuple(commands)]  # noqa: UP007 - made at run time
    return tyro.cli(
        choice,
        prog="depthmup",
        description="Measure and make hyperparameters transfer across width and depth.",
        args=list(arguments),
        config=config,
    )


def read(verb: str, words: Sequence[str]) -> Any:
    """The options of a verb; what is wrong with them is printed with what to type instead."""
    options = module_of(verb).Options
    meant = as_meant(words, options)
    told = io.StringIO()
    try:
        with redirect_stderr(told):
            return parse([verb, *meant])
    except SystemExit:
        error, hint = mistake(meant, verb, options)
        if error:
            say_error(f"{error} {hint}", REFUSED)
        else:  # in the parser's own words
            print(told.getvalue(), end="", file=sys.stderr)
            print_error({"error": told.getvalue().strip(), "hint": "", "status": REFUSED})
        raise


def _completion(words: Sequence[str]) -> int:
    """Print the completion script of the shell that is named."""
    if {"-h", "--help"} & {*words}:
        return explained(lambda: _print(COMPLETION))
    if words[1:] or not {*words} <= SHELLS:
        say_error(
            f"there is no completion for {' '.join(words)!r}. Name one of {', '.join(SHELLS)}.",
            REFUSED,
        )
        return REFUSED
    return explained(lambda: _complete(*words))


def _complete(shell: str = "bash") -> int:
    if shell == "tcsh":
        need("Completion for tcsh", "shtab")
    script = io.StringIO()
    with redirect_stdout(script), suppress(SystemExit):
        parse(["--tyro-print-completion", shell])
    print(with_names(script.getvalue()), end="", flush=True)
    return 0


def _help(verb: str, words: Sequence[str], *, as_json: bool) -> int:
    """Print the options that most people need, or all of them, which a program always gets."""
    module = module_of(verb)
    if as_json:
        return _print_document(document_of(verb, module.Options))
    everyday: frozenset[str] = getattr(module, "EVERYDAY", frozenset())
    only = frozenset() if "--help-all" in words else everyday
    more = f"depthmup {verb} --help-all"
    return _print(help_of(verb, module.Options, only=only, more=more))


def _overview(*, as_json: bool) -> int:
    """Print the commands."""
    if as_json:
        return _print_document({"commands": GROUPS, "examples": EXAMPLES})
    return _print(overview())


def _version(*, as_json: bool) -> int:
    if as_json:
        return _print_document({"version": __version__})
    return _print(f"depthmup {__version__}")


def _print(text: str) -> int:
    """Print what was asked for; where it cannot be written, that shows here and not at the end."""
    print(text, flush=True)
    return 0


def _print_document(document: Mapping[str, Any]) -> int:
    print_json({**document})
    return 0


def run(words: list[str]) -> int:
    """The exit status of a command line."""
    as_json = "--json" in words
    verb, *rest = [word for word in words if word != "--json"] or ["--help"]
    if verb == "help" and rest:
        verb, rest = rest[0], ["--help"]
    if verb in ("-h", "--help", "help"):
        named = {*words} - {"--json"}
        return explained(lambda: _overview(as_json=as_json)) or (0 if named else REFUSED)
    if verb in ("-V", "--version", "version"):
        return explained(lambda: _version(as_json=as_json))
    if verb == "completion":
        return _completion(rest)
    if verb not in VERBS:
        with json_alone(as_json):
            say_error(unknown_command(verb, (*VERBS, "completion")), REFUSED)
        return REFUSED
    if {"-h", "--help", "--help-all"} & {*rest}:
        return explained(lambda: _help(verb, rest, as_json=as_json))
    rest = words[1:] if words[0] == verb else [*rest, "--json"]
    with json_alone(as_json):
        options = read(verb, rest)
    with on_command_line(), json_alone(getattr(options, "json", False)):
        return explained(lambda: int(module_of(verb).run(options)))
