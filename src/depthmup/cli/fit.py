"""``depthmup fit``: what do the runs that I already have say about my best learning rate?"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from depthmup.cli.columns import EXAMPLE_COLUMNS, RunColumns, table_named
from depthmup.cli.folders import prepare_file, prepare_folder
from depthmup.cli.output import print_json
from depthmup.cli.report import show_report
from depthmup.cli.sizes import parse_pairs
from depthmup.cli.spelling import arguments
from depthmup.records.printable import printable


@dataclass(frozen=True, kw_only=True)
class Options:
    """Fit a table of finished runs: how the best learning rate moves with size, with intervals.

    Trains nothing. Each row is a run. Fits the optimum of every size, then the exponent along each
    axis, from slices along that axis alone. Reports defects of the table, and writes rows that it
    leaves out to OUT/excluded.csv with the reason.

        depthmup fit runs.csv --axes depth=n_layers width=d_model --lr lr --loss final_loss
    """

    API: ClassVar = ("from_table:fit", "tables.question:Reading")

    table: Annotated[Path | None, tyro.conf.Positional] = None
    """A CSV, JSON, Parquet or Excel file; the --out folder of `depthmup transfer`, with its known
    columns; a tracker's runs, such as wandb:FOLDER, mlflow:FILE, optuna:FILE or ray:FOLDER; or the
    word "example" for the table that ships with this package."""

    runs: str = ""
    """Instead of a table the pattern of logs' paths and the place of the loss in each, such as
    'sweep/w{width}/lr={lr}_s{seed}/log.csv:val_loss'."""

    columns: Annotated[RunColumns, tyro.conf.OmitArgPrefixes] = field(default_factory=RunColumns)
    steps: str = ""
    by: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    keep: tuple[Literal["rate", "impossible", "short", "unfinished", "duplicate", "unit"], ...] = ()
    """Tests to skip: their rows stay."""

    scheme: str = ""

    target: tuple[str, ...] = ()
    """Size to predict the best value for: AXIS=NUMBER for every axis, which need not be whole, or
    WIDTHxDEPTH."""

    over: str = ""
    tuned: str = "learning rate"
    wide: str = ""
    names: str = ""
    chance: float = math.inf
    tolerance: float = 0.15

    out: Path | None = None
    """Folder for report.html, summary.json and excluded.csv."""

    plot: Path | None = None
    """Draw optima against every axis here: .svg, .pdf, .png or .html."""

    json: bool = False


def run(options: Options) -> int:
    """Fit, print, and write where asked; nothing is written of a table that cannot be fitted."""
    from depthmup._excluded import EXCLUDED, FILES
    from depthmup.from_table import fit
    from depthmup.reports.files import CHART_FORMATS
    from depthmup.tables import Reading

    if options.plot is not None:
        prepare_file(options.plot, option="--plot", ends=CHART_FORMATS)
    if (options.table is None) is not bool(options.runs):
        got = "both are given" if options.runs else "TABLE is missing"
        raise ValueError(f"Expected a table, or --runs PATTERN; {got}. See depthmup fit --help.")
    table, columns = table_named(options.table or f"runs:{options.runs}", options.columns)
    if columns is EXAMPLE_COLUMNS and not options.by:
        options = replace(options, by=("scheme",))
    asked = arguments(
        fit,
        options,
        **columns.named(),
        table=table,
        target=_target(options.target),
        reading=Reading(**arguments(Reading, options)),
    )
    report = fit(**asked)
    if options.out is not None:
        prepare_folder(options.out, results=FILES)
    # Printed first: it stays where the disk is full.
    if options.json:
        print_json(report.to_dict())
    else:
        show_report(report)
    written: list[Path] = []
    if options.out is not None:
        written += report.save(options.out)
    if options.plot is not None:
        report.plot(options.plot)
        written.append(options.plot)
    if options.json:
        return 0
    if written:
        print()
    for path in written:
        if path.name == EXCLUDED and not report.excluded:
            continue  # a header alone
        print(printable(f"{_NAMES.get(path.name, 'The plot')}: {path.resolve()}"))
    if options.out is None and report.excluded:
        print(
            "\n--out FOLDER writes the page, and the rows that were left out with the reason: "
            f"{len(report.excluded):,}."
        )
    return 0


def _target(words: tuple[str, ...]) -> Mapping[str, float] | str | None:
    """A size by axis, of numbers that need not be whole, or as WIDTHxDEPTH."""
    if not any("=" in word for word in words):
        return " ".join(words) or None
    return parse_pairs(words, option="--target", value="NUMBER")


_NAMES = {"report.html": "The page", "summary.json": "The result", "excluded.csv": "Rows left out"}
