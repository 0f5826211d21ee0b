"""The verbs, and how one of them is run."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Union

import tyro

from depthmup._version import __version__
from depthmup.cli import (
    check,
    doctor,
    fit,
    limit,
    merge,
    next_runs,
    plan,
    predict,
    regimes,
    report,
    reproduce,
    rules,
    transfer,
)
from depthmup.cli.help import printed
from depthmup.cli.output import json_alone
from depthmup.cli.overview import overview
from depthmup.cli.refusals import REFUSED, explained
from depthmup.cli.spelling import unknown_command, with_commas

VERBS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "plan": (plan.Options, plan.run),
    "transfer": (transfer.Options, transfer.run),
    "fit": (fit.Options, fit.run),
    "next": (next_runs.Options, next_runs.run),
    "report": (report.Options, report.run),
    "merge": (merge.Options, merge.run),
    "limit": (limit.Options, limit.run),
    "regimes": (regimes.Options, regimes.run),
    "rules": (rules.Options, rules.run),
    "check": (check.Options, check.run),
    "predict": (predict.Options, predict.run),
    "reproduce": (reproduce.Options, reproduce.run),
    "doctor": (doctor.Options, doctor.run),
}


def parse(arguments: Sequence[str]) -> Any:
    """The options of the verb that the command line names."""
    config = (tyro.conf.FlagCreatePairsOff,)
    verb, *rest = arguments
    if verb in VERBS:
        # Alone, so that a misspelled option is not answered with those of other verbs.
        return tyro.cli(VERBS[verb][0], prog=f"depthmup {verb}", args=rest, config=config)
    commands = [
        Annotated[options, tyro.conf.subcommand(verb, prefix_name=False)]
        for verb, (options, _) in VERBS.items()
    ]
    choice: Any = Union[tuple(commands)]  # noqa: UP007 - made at run time
    return tyro.cli(
        choice,
        prog="depthmup",
        description="Measure and make hyperparameters transfer across width and depth.",
        args=list(arguments),
        config=config,
    )


def run(words: list[str]) -> int:
    """The exit status of a command line."""
    verb, rest = (words[0], words[1:]) if words else ("--help", [])
    if verb in ("-h", "--help", "help"):
        print(overview(), flush=True)
        return 0 if words else REFUSED
    if verb in ("-V", "--version", "version"):
        print(f"depthmup {__version__}", flush=True)
        return 0
    if verb == "completion":
        verb, rest = "--tyro-print-completion", rest or ["bash"]
    elif not verb.startswith("-"):
        if verb not in VERBS:
            print(f"depthmup: {unknown_command(verb, VERBS)}", file=sys.stderr)
            return REFUSED
        rest = with_commas(rest, VERBS[verb][0])
    if {"-h", "--help"} & set(rest):
        # Ends here: a parser raises SystemExit after its help.
        printed(lambda: parse([verb, *rest]))
    chosen = parse([verb, *rest])
    work = next(work for options, work in VERBS.values() if type(chosen) is options)
    with json_alone(getattr(chosen, "json", False)):
        return explained(lambda: work(chosen))
