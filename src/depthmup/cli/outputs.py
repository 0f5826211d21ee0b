"""The files and the screen output of a measurement."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from depthmup import reports
from depthmup.cli.folders import prepare_folder
from depthmup.cli.output import print_json
from depthmup.reports.certificate import certificate_text

if TYPE_CHECKING:
    from depthmup.report import Report

__all__ = ["deliver", "prepare_folder"]


def deliver(
    report: "Report", folder: Path, *, export: Collection[str], json: bool, saved: bool = False
) -> None:
    """Show the tables, or print the summary; write both files unless they are ``saved`` already.

    Args:
        report: the measurement.
        folder: for its page, summary and charts.
        export: formats of further chart files.
        json: print the summary instead of tables.
        saved: whether page and summary are in the folder already.
    """
    studies, certificates = report.studies, report.certificates
    if export or not saved:
        reports.write_result(studies, folder, certificates=certificates, formats=export)
    if json:
        print_json(report.summary)
        return
    from rich.console import Console

    console = Console()
    for study in studies:
        if console.is_terminal:
            console.print(reports.table(study))
        else:
            print(reports.plain_table(study))
    for certificate in certificates:
        print(f"\n{certificate_text(certificate)}")
    print(f"\nThe page: {(folder / 'report.html').resolve()}")
