"""The verbs, and how one of them is run."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Union

import tyro

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
    transfer,
)
from depthmup.cli.output import json_alone
from depthmup.cli.refusals import REFUSED, explained

VERBS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "plan": (plan.Options, plan.run),
    "transfer": (transfer.Options, transfer.run),
    "fit": (fit.Options, fit.run),
    "next": (next_runs.Options, next_runs.run),
    "report": (report.Options, report.run),
    "merge": (merge.Options, merge.run),
    "limit": (limit.Options, limit.run),
    "regimes": (regimes.Options, regimes.run),
    "check": (check.Options, check.run),
    "predict": (predict.Options, predict.run),
    "reproduce": (reproduce.Options, reproduce.run),
    "doctor": (doctor.Options, doctor.run),
}


def parse(arguments: Sequence[str]) -> Any:
    """The options of the verb that the command line names."""
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
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; its exit status."""
    # One thread per process unless asked otherwise: two pools on the same cores crawl.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        with suppress(SystemExit):
            parse(["--help"])
        return REFUSED
    chosen = parse(words)
    run = next(run for options, run in VERBS.values() if type(chosen) is options)
    with json_alone(getattr(chosen, "json", False)):
        return explained(lambda: run(chosen))
