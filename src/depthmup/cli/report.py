"""``depthmup report``: rebuild the page of a measurement from its store."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class Options:
    """Rebuild report.html and summary.json from the store in a folder; nothing is trained."""

    folder: Annotated[Path, tyro.conf.Positional]
    """The --out folder of a transfer measurement."""

    export: tuple[Literal["svg", "pdf", "png"], ...] = ()
    """Also write every chart in these formats."""

    json: bool = False
    """Print the summary as JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    from depthmup.cli.outputs import deliver, load_study
    from depthmup.sweep import Store

    with Store(options.folder / "results.sqlite", must_exist=True) as store:
        study = load_study(store)
    deliver(study, options.folder, export=options.export, json=options.json)
    return 0
