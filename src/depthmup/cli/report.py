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
    """Rebuild the page and the summary of a measurement from its store, without training.

    Of several folders, write one page with their reports side by side.

        depthmup report runs/demo --figure paper
        depthmup report runs/before runs/after --out compared.html
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """The --out folder of `depthmup transfer`, `depthmup fit` or `depthmup reproduce`; or several,
    to compare."""

    out: Path = Path("compared.html")
    """With several folders: the page, a file that ends in .html."""

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

    if not options.folders:
        raise ValueError("Expected the folder of a measurement; got none.")
    if len(options.folders) > 1:
        return _compared(options)
    given = options.folders[0]
    with snapshot(given / MAIN_STORE) as store:
        if is_of_claims(store):
            paper = reproduction("command")
            paper.deliver_evidence(
                paper.load_evidence(store),
                given,
                markdown=None,
                export=options.export,
                as_json=options.json,
            )
            return 0
        report = load_report(store)
    folder: Path | None = given
    try:
        prepare_folder(given)
    except ValueError as error:
        if options.export or options.figure:
            raise
        print(f"No page is written. {error}", file=sys.stderr)
        folder = None
    deliver(report, folder, export=options.export, json=options.json, figure=options.figure)
    return 0


def _compared(options: Options) -> int:
    """Write the page of several reports side by side."""
    from depthmup.cli.folders import prepare_file
    from depthmup.loading import load
    from depthmup.reports import comparison_page, write_text

    if options.out.suffix != ".html":
        raise ValueError(f"Expected --out to end in .html; got {options.out.name!r}.")
    names = [path.name for path in options.folders]
    if len({*names}) < len(names):
        names = [str(path) for path in options.folders]
    studies = {n: load(path).studies for n, path in zip(names, options.folders, strict=True)}
    page = comparison_page(studies, command=["depthmup", *sys.argv[1:]])
    prepare_file(options.out, option="--out")
    write_text(options.out, page)
    print(f"The page: {options.out.resolve()}")
    return 0


def is_of_claims(store: "Store") -> bool:
    """Whether the last session on a store reproduced claims of the paper."""
    return any("claims" in session for session in store.sessions()[-1:])
