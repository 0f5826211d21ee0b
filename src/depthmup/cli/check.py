"""``depthmup check``: do activations and updates scale as the scheme predicts?"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from depthmup.cli.folders import page_and_data
from depthmup.cli.output import answer, terminal_width, write_files
from depthmup.cli.refusals import FAILS, HOLDS, UNDECIDED
from depthmup.cli.sizes import parse_along
from depthmup.cli.spelling import arguments
from depthmup.records import Outcome
from depthmup.records.packages import need


@dataclass(frozen=True, kw_only=True)
class Options:
    """Check that a model's activations and updates scale with width and depth as a scheme predicts.

    Trains the model at several sizes for a few steps, fits an exponent of growth to every
    observable, and compares it with the scheme's. Exits with 0 if all exponents are as predicted, 1
    if one is not, 5 if the measurement cannot decide.

        depthmup check --model mine.py:make --scheme completep --out runs/check
        depthmup check --model mine.py:make --apply as-is --widths 64 --seeds 6
    """

    API: ClassVar = ("diagnostics.coordinates:check",)

    model: str
    scheme: str | None = None
    optimizer: str = "adamw"

    apply: Literal["plan", "as-is"] = "plan"
    """plan: apply the scheme's plan to the model. as-is: the model's own code follows the scheme
    already; its file may define optimizers(model, lr) -> list of optimizers."""

    widths: tuple[int, ...] = (32, 64, 128, 256)
    depths: tuple[int, ...] = (4, 8, 16, 32)

    along: tuple[str, ...] = ()
    """Values along further axes that your factory takes by name, as NAME=VALUE,VALUE,VALUE, such as
    experts=4,8,16,32: each is varied at the smallest width and depth."""

    seeds: int = 3
    steps: int = 5
    lr: float | None = None
    own_init: Literal["measured", "fixed", "fan_in"] = "measured"
    modules: str | None = None
    batch: str = "batch"
    loss: str = ""

    out: Path | None = None
    """Folder for check.html and check.json; or a file that ends in .html or .json; the other is
    written next to it."""

    all: bool = False
    """Print every exponent: the passed ones too, and those that are shown without a verdict."""

    json: bool = False


def run(options: Options) -> int:
    if options.out is not None:
        need("The page", "vl_convert")
    import torch

    from depthmup.cli.terminal import Done
    from depthmup.diagnostics import as_is, check, planned
    from depthmup.model import Model
    from depthmup.reports.check_page import check_page

    along = parse_along(options.along, check)
    torch.set_num_threads(1)  # networks this small lose by more
    asked = arguments(
        check,
        options,
        model=Model.load(options.model, batch=options.batch, loss=options.loss),
        plan_options={} if options.own_init == "measured" else {"own_init": options.own_init},
        prepare=planned if options.apply == "plan" else as_is,
        progress=Done(),
        **along,
    )
    files = None if options.out is None else page_and_data(options.out, "check")
    result = replace(check(**asked), command=("depthmup", *sys.argv[1:]))
    # Printed first: it stays where the disk is full.
    text = result.summary(everything=options.all, width=terminal_width())
    answer(result, text, json=options.json)
    write_files(files, result, lambda data: check_page(result))
    return {Outcome.PASS: HOLDS, Outcome.FAIL: FAILS}.get(result.outcome, UNDECIDED)
