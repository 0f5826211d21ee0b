"""What a measurement leaves in its folder and on the screen."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from depthmup import reports
from depthmup.cli.folders import prepare_folder
from depthmup.cli.output import print_json
from depthmup.records import environment
from depthmup.reports.certificate import certificate_text
from depthmup.sweep import Grid

if TYPE_CHECKING:
    from depthmup.report import Report

__all__ = ["about_session", "deliver", "prepare_folder"]


def about_session(
    grid: Grid, *, tolerance: float, command: Sequence[str], engine: str, target_depth: int = 0
) -> dict[str, object]:
    """What is noted in the store about a session of work: enough to rebuild its page."""
    return {
        "grid": grid.to_dict(),
        "tolerance": tolerance,
        "target_depth": target_depth,
        "command": ["depthmup", *command],
        "environment": {**environment(), "engine": engine},
    }


def deliver(report: "Report", folder: Path, *, export: Collection[str], json: bool) -> None:
    """Write the page and the summary; show the tables, or print the summary."""
    studies, certificates = report.studies, report.certificates
    found = reports.write_result(studies, folder, certificates=certificates, formats=export)
    if json:
        print_json(found)
        return
    from rich.console import Console

    console = Console()
    for each in studies:
        if console.is_terminal:
            console.print(reports.table(each))
        else:
            print(reports.plain_table(each))
    for certificate in certificates:
        print(f"\n{certificate_text(certificate)}")
    print(f"\nThe page: {(folder / 'report.html').resolve()}")
