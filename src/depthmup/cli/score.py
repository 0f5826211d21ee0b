"""``depthmup score``: did the forecast hold?"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from depthmup.cli.columns import RunColumns, table_named
from depthmup.cli.folders import page_file
from depthmup.cli.output import answer, say_page
from depthmup.cli.spelling import arguments


@dataclass(frozen=True, kw_only=True)
class Options:
    """Judge a forecast: a certificate against runs that were made at its target later.

    Fits the optimum at the target as `depthmup fit` does. The value held if the forecast's interval
    holds that optimum; the bound held if training with the forecast's value costs no more. Columns
    of sizes are called as in the certificate unless --axes names them.

        depthmup score runs/first/certificate.json runs/large
        depthmup score certificate.json large.csv --lr lr --loss final_loss --seed seed
    """

    API: ClassVar = ("from_table:fit",)

    certificate: Annotated[Path, tyro.conf.Positional]
    """The certificate.json that `depthmup transfer` or `depthmup fit` wrote."""

    table: Annotated[Path, tyro.conf.Positional]
    """The runs: a CSV, JSON lines or Parquet file; the --out folder of `depthmup transfer`; or the
    word "example" for the table that ships with this package."""

    columns: Annotated[RunColumns, tyro.conf.OmitArgPrefixes] = field(default_factory=RunColumns)
    by: tuple[str, ...] = ()
    where: tuple[str, ...] = ()

    out: Path | None = None
    """Folder for score.html; or the page's file, .html."""

    json: bool = False


def run(options: Options) -> int:
    from depthmup.from_table import score
    from depthmup.reports import score_page, write_text

    file = None if options.out is None else page_file(options.out, "score")
    table, columns = table_named(options.table, options.columns)
    result = score(**arguments(score, options, **columns.named(), table=table))
    answer(result.to_dict(), result.summary(), json=options.json)
    if file is not None:
        write_text(file, score_page(result, command=["depthmup", *sys.argv[1:]]))
        say_page(file)
    return 0
