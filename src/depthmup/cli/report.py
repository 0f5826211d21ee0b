"""``depthmup report``: rebuild the page of a measurement from its store."""

import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from depthmup._drafts import together
from depthmup.cli.clone import reproduction
from depthmup.cli.folders import page_file, prepare_folder
from depthmup.cli.output import print_json, say_page, show, terminal_width

if TYPE_CHECKING:
    from depthmup.recipes import RecipeReport
    from depthmup.report import Report
    from depthmup.reports import FigureKind


@dataclass(frozen=True, kw_only=True)
class Options:
    """Rebuild the page and the summary of a measurement from its store, without training.

    Of several folders, write one page with their reports side by side.

        depthmup report runs/demo --figure paper
        depthmup report runs/before runs/after --out compared.html
        depthmup report runs/new --over runs/old
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """The --out folder of `depthmup transfer`, `depthmup fit` or `depthmup reproduce`; or several,
    to compare."""

    out: Path = Path("compared.html")
    """With several folders: the page, a file that ends in .html, or a folder for compared.html."""

    over: Path | None = None
    """Of several folders: the one that gains are over; the first unless given."""

    export: tuple[Literal["svg", "pdf", "png"], ...] = ()

    figure: Literal["paper", "slide"] | None = None
    """Write figures with captions into FOLDER/figures: paper is 3.25 inches wide with type of 8
    points, slide 5.5 with 9."""

    measurement: int | None = None
    """Which one, where the folder has several: 1 is the first that began. By default the last that
    has all of its runs."""

    json: bool = False
    """Print the summary as JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    if not options.folders:
        raise ValueError("Expected the folder of a measurement; got none.")
    if options.over is not None and options.over not in options.folders:
        options = replace(options, folders=(options.over, *options.folders))
    if len(options.folders) > 1:
        return _compared(options)
    return report_on(
        options.folders[0],
        export=options.export,
        json=options.json,
        figure=options.figure,
        partial=True,
        measurement=options.measurement,
    )


def report_on(
    given: Path,
    *,
    export: Collection[str],
    json: bool,
    figure: "FigureKind | None" = None,
    partial: bool = False,
    measurement: int | None = None,
) -> int:
    """Make a folder's files again from its store, or a table's from its summary."""
    from depthmup._excluded import JSON
    from depthmup.report import load_report, read_report
    from depthmup.sweep import MAIN_STORE, snapshot

    if (given / JSON).is_file() and not (given / MAIN_STORE).exists():  # of a table
        report: Report | RecipeReport = read_report(given / JSON)
    else:
        with snapshot(given / MAIN_STORE) as store:
            if any("claims" in session for session in store.sessions()[-1:]):  # of the paper
                paper = reproduction("command")
                paper.deliver_evidence(
                    paper.load_evidence(store), given, markdown=None, export=export, as_json=json
                )
                return 0
            report = load_report(store, partial=partial, measurement=measurement)
    folder: Path | None = given
    try:
        prepare_folder(given)
    except ValueError as error:
        if export or figure:
            raise
        print(f"No page is written. {error}", file=sys.stderr)
        folder = None
    deliver(report, folder, export=export, json=json, figure=figure)
    return 0


def _compared(options: Options) -> int:
    """Write the page of several reports side by side."""
    from depthmup.report import load, of_one_value
    from depthmup.reports import comparison_page, write_text
    from depthmup.reports.gain import gain_lines
    from depthmup.several import gains_between

    file = page_file(options.out, "compared")
    names = [path.name for path in options.folders]
    if len({*names}) < len(names):
        names = [str(path) for path in options.folders]
    loaded = {
        name: of_one_value(load(path), "a page of several reports")
        for name, path in zip(names, options.folders, strict=True)
    }
    over = names[options.folders.index(options.over)] if options.over else names[0]
    gains = gains_between(loaded, over)
    studies = {name: report.studies for name, report in loaded.items()}
    page = comparison_page(studies, gains=gains, command=["depthmup", *sys.argv[1:]])
    first = next(iter(loaded.values())).studies[0]
    for line in gain_lines(replace(first, gains=tuple(gains))):
        show(line)
    write_text(file, page)
    say_page(file)
    return 0


def deliver(
    report: "Report | RecipeReport",
    folder: Path | None,
    *,
    export: Collection[str],
    json: bool,
    saved: bool = False,
    figure: "FigureKind | None" = None,
) -> None:
    """Show the tables, or print the summary; write both files unless they are ``saved`` already,
    or there is no folder that can be written.
    """
    from depthmup.recipes import RecipeReport

    if figure is not None and isinstance(report, RecipeReport):
        raise ValueError(
            "Expected no --figure for several tuned values; --export svg writes the plane."
        )
    # Printed first: it stays where the disk is full.
    if json:
        print_json(report.to_dict())
    else:
        show_report(report)
    if folder is None:
        return
    if export or not saved:
        report.save(folder, formats=export)
    if figure is not None and not isinstance(report, RecipeReport):
        _write_figures(report, folder / "figures", figure)
    if not json:
        say_page(folder / "report.html")


def show_report(report: "Report | RecipeReport") -> None:
    """Show the tables, as wide as the terminal."""
    from rich.console import Console

    from depthmup.recipes import RecipeReport
    from depthmup.reports.tables import parts

    if isinstance(report, RecipeReport):
        show(report.summary(terminal_width()))
        return
    console = Console()
    width = terminal_width()
    coloured = width is not None
    shown = parts(report.studies, report.certificates, width=width or 100, coloured=coloured)
    for i, part in enumerate(shown):
        if i:
            print()
        if isinstance(part, str):
            show(part)
        else:
            console.print(part)


def _write_figures(report: "Report", folder: Path, kind: "FigureKind") -> None:
    """Every figure as PDF and SVG, with its caption."""
    from depthmup import reports
    from depthmup.reports.study_charts import available

    folder.mkdir(exist_ok=True)
    figures = {
        f"{name}-{study.axis}": reports.study_figure(study, name, kind=kind)
        for study in report.studies
        for name in available(study)
    }
    parts: tuple[Literal["law", "penalty"], ...] = ("law", "penalty")
    figures |= {
        f"certificate-{i}-{part}": reports.certificate_figure(certificate, part, kind=kind)
        for i, certificate in enumerate(report.certificates, start=1)
        for part in parts[: 1 + certificate.issued]
    }
    with together() as files:
        for name, figure in figures.items():
            for suffix in ("pdf", "svg"):
                figure.save(folder / f"{name}.{suffix}", files=files)
