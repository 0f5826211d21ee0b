"""``depthmup next``: which runs tell most next?"""

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from depthmup.cli.columns import RunColumns, table_named
from depthmup.cli.output import print_json
from depthmup.cli.sizes import parse_amounts, parse_pairs
from depthmup.cli.spelling import arguments
from depthmup.records.printable import printable


@dataclass(frozen=True, kw_only=True)
class Options:
    """Show which runs to train next; it trains none.

    Given a folder of `depthmup transfer`: the runs its search is waiting for. Given a table of
    results, as `depthmup fit` reads it: the most informative runs, for your own trainer or job
    queue. Train them, add their results to the table, and ask again. The columns of its values and
    losses are lr and loss unless --lr and --loss name others.

        depthmup next runs.csv --axes depth=n_layers --lr lr --loss final_loss --seed seed
            --sizes depth=4,8,16,32
    """

    source: Annotated[Path, tyro.conf.Positional]
    """The --out folder of `depthmup transfer`; a CSV, JSON lines or Parquet file; or the word
    "example" for the table that ships with this package."""

    columns: Annotated[RunColumns, tyro.conf.OmitArgPrefixes] = field(default_factory=RunColumns)

    sizes: tuple[str, ...] = ()
    """For a table: the sizes to decide about, AXIS=VALUE,VALUE,... for each axis, such as
    depth=4,8,16."""

    base: tuple[str, ...] = ()
    """For a table: the size that all axes share, as AXIS=VALUE; by default the smallest."""

    tuned: str = "learning rate"
    """For a table: name of the tuned hyperparameter, such as 'weight decay'."""

    start: float | None = None
    """For a table: the first value to try; 2^-8 for learning rates."""

    cost: tuple[str, ...] = ()
    """For a table: cost of a run as a power of each axis: AXIS=POWER; by default 2 for width and 1
    for others."""

    seeds: int = 8
    """For a table: most seeds of a rate."""

    drift_precision: float | None = None
    """For a table: stop when the drift is known to within this many octaves per doubling, instead
    of at a verdict."""

    tolerance: float = 0.15
    """For a table: largest drift, in octaves per doubling, that still counts as staying."""

    ignore: tuple[str, ...] = ()
    """For a table: columns to ignore when runs are grouped."""

    where: tuple[str, ...] = ()
    """For a table: only rows that satisfy all of these, such as "optimizer == adamw"."""

    json: bool = False
    """Print the runs as JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    from depthmup.tables.trackers import address_of

    source, columns = table_named(options.source, options.columns)
    of_table = address_of(source) or Path(source).is_file()
    rows, why = _of_table(source, columns, options) if of_table else _of_folder(Path(source))
    if options.json:
        print_json({"runs": list(rows), "why": why})
        return 0
    print(why, file=sys.stderr)
    if rows:
        # Runs of other sizes may name other axes: the columns are all of them.
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writerow({name: printable(name) for name in names})
        # Seeds are texts of a table that may come from anyone, and this goes to a terminal.
        writer.writerows(
            {k: printable(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows
        )
    return 0


def _of_table(
    source: Path | str, columns: RunColumns, options: Options
) -> tuple[Sequence[Mapping[str, Any]], str]:
    from depthmup.tables import next_runs

    base = parse_amounts(options.base, option="--base", example="depth=4")
    cost = parse_pairs(options.cost, option="--cost", value="POWER")
    asked = arguments(
        next_runs,
        options,
        **columns.named(lr="lr", loss="loss"),
        table=source,
        sizes=parse_amounts(options.sizes, option="--sizes"),
        base={axis: _one(axis, values) for axis, values in base.items()} or None,
        cost={axis: _number(power, "--cost") for axis, power in cost.items()} or None,
        precision=options.drift_precision,
    )
    proposal = next_runs(**asked)
    return proposal.rows, proposal.why


def _of_folder(folder: Path) -> tuple[Sequence[Mapping[str, Any]], str]:
    from depthmup.report import next_of
    from depthmup.sweep import MAIN_STORE, snapshot
    from depthmup.sweep.hyperparameters import tuned_in

    with snapshot(folder / MAIN_STORE) as store:
        runs, why, what = next_of(store)
    return [
        {**run.row, **{key: v for one in what for key, v in tuned_in(run, one).items()}}
        for run in runs
    ], why


def _one(axis: str, values: Sequence[float]) -> float:
    if len(values) > 1:
        raise ValueError(f"Expected one value of {printable(axis)} in --base; got {len(values)}.")
    return values[0]


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"Expected {option} to have numbers; got {text!r}.") from None
