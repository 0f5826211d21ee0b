"""``depthmup report``: rebuild the page of a measurement from its store."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from depthmup.sweep import Store


@dataclass(frozen=True, kw_only=True)
class Options:
    """Rebuild the page and the summary of a measurement from its store; nothing is trained.

    depthmup report runs/demo --figure paper
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """The --out folder of `depthmup transfer` or `depthmup reproduce`."""

    export: tuple[Literal["svg", "pdf", "png"], ...] = ()
    """Also write every chart in these formats."""

    figure: Literal["paper", "slide"] | None = None
    """Write figures with captions into FOLDER/figures: paper is 3.25 inches wide with type of 8
    points, slide 5.5 with 9."""

    json: bool = False
    """Print the summary as JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    from depthmup.cli.clone import reproduction
    from depthmup.cli.outputs import deliver, prepare_folder
    from depthmup.report import load_report
    from depthmup.sweep import MAIN_STORE, snapshot

    with snapshot(options.folder / MAIN_STORE) as store:
        if is_of_claims(store):
            paper = reproduction("command")
            paper.deliver_evidence(
                paper.load_evidence(store),
                options.folder,
                markdown=None,
                export=options.export,
                as_json=options.json,
            )
            return 0
        report = load_report(store)
    folder: Path | None = options.folder
    try:
        prepare_folder(options.folder)
    except ValueError as error:
        if options.export or options.figure:
            raise
        print(f"No page is written. {error}", file=sys.stderr)
        folder = None
    deliver(report, folder, export=options.export, json=options.json, figure=options.figure)
    return 0


def is_of_claims(store: "Store") -> bool:
    """Whether the last session on a store reproduced claims of the paper."""
    return any("claims" in session for session in store.sessions()[-1:])
