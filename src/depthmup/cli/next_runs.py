"""``depthmup next``: which runs tell most next?"""

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from depthmup.cli.output import print_json
from depthmup.records.printable import printable


@dataclass(frozen=True, kw_only=True)
class Options:
    """Say which runs to train next: nothing is trained.

    Of a folder of `depthmup transfer`, the runs that its search waits for. Of a table of results
    (the one that `depthmup fit` reads), the runs that tell most next, for people with a trainer or
    a job queue of their own: train them, add their results to the table, and ask again.

        depthmup next runs.csv --axes depth=n_layers --lr lr --loss final_loss --seed seed
            --sizes depth=4,8,16,32
    """

    source: Annotated[Path, tyro.conf.Positional]
    """The --out folder of `depthmup transfer`, or a CSV, JSON lines or Parquet file."""

    axes: tuple[str, ...] = ()
    """Of a table: the columns of the sizes, as AXIS=COLUMN."""

    sizes: tuple[str, ...] = ()
    """Of a table: the values wanted along each axis, as AXIS=VALUE,VALUE,...; the others stay at
    the base's."""

    base: tuple[str, ...] = ()
    """Of a table: the size at which the arms meet, as AXIS=VALUE; by default the smallest."""

    lr: str = "lr"
    """Of a table: the column of the learning rate, or of what is tuned instead."""

    tuned: str = "learning rate"
    """Of a table: what is tuned, in words, such as 'weight decay'."""

    loss: str = "loss"
    """Of a table: the column of the final loss: nan or inf if a run diverged."""

    seed: str = ""
    """Of a table: the column of the seed."""

    start: float | None = None
    """Of a table: the value from which the first optimum is looked for; 2^-8 for learning rates."""

    cost: tuple[str, ...] = ()
    """Of a table: powers of the axes that a run costs, as AXIS=POWER; by default 2 for width, 1 for
    others."""

    seeds: int = 8
    """Of a table: most seeds of a rate."""

    drift_precision: float | None = None
    """Of a table: half-width of the drift's interval that is wanted, instead of a verdict."""

    tolerance: float = 0.15
    """Of a table: octaves per doubling within which an optimum counts as staying."""

    ignore: tuple[str, ...] = ()
    """Of a table: columns in which runs of one size may differ without meaning anything."""

    json: bool = False
    """Print the runs as JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    rows, why = _of_table(options) if options.source.is_file() else _of_folder(options.source)
    if options.json:
        print_json({"runs": list(rows), "why": why})
        return 0
    print(why, file=sys.stderr)
    if rows:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writerow({name: printable(name) for name in names})
        # Seeds are texts of a table that may come from anyone, and this goes to a terminal.
        writer.writerows(
            {k: printable(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows
        )
    return 0


def _of_table(options: Options) -> tuple[Sequence[Mapping[str, Any]], str]:
    from depthmup.fitting import SearchOptions, next_runs

    sizes = {
        axis: tuple(_whole(n, "--sizes") for n in values.split(","))
        for axis, values in _pairs(options.sizes, "--sizes").items()
    }
    base = {axis: _whole(n, "--base") for axis, n in _pairs(options.base, "--base").items()}
    cost = {axis: _number(n, "--cost") for axis, n in _pairs(options.cost, "--cost").items()}
    proposal = next_runs(
        options.source,
        axes=_pairs(options.axes, "--axes"),
        lr=options.lr,
        loss=options.loss,
        sizes=sizes,
        seed=options.seed,
        base=base or None,
        tolerance=options.tolerance,
        tuned=options.tuned,
        options=SearchOptions(
            start=options.start,
            cost=cost or None,
            seeds=options.seeds,
            precision=options.drift_precision,
            ignore=options.ignore,
        ),
    )
    return proposal.rows, proposal.why


def _of_folder(folder: Path) -> tuple[Sequence[Mapping[str, Any]], str]:
    from depthmup.report import next_of
    from depthmup.sweep import MAIN_STORE, Store
    from depthmup.sweep.tuning import tuned_in

    with Store(folder / MAIN_STORE, must_exist=True) as store:
        runs, why, what = next_of(store)
    return [{**run.row, **tuned_in(run, what)} for run in runs], why


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    pairs = dict(word.partition("=")[::2] for word in words)
    if not all(name and value for name, value in pairs.items()):
        raise ValueError(f"Expected {option} as AXIS=VALUE; got {' '.join(words)!r}.")
    return pairs


def _whole(text: str, option: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"Expected {option} to have whole numbers; got {text!r}.")
    return int(text)


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"Expected {option} to have numbers; got {text!r}.") from None
