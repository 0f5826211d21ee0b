"""The files and the screen output of a measurement."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from depthmup import reports
from depthmup.cli.folders import prepare_folder
from depthmup.cli.output import print_json, show
from depthmup.reports.certificate import certificate_text

if TYPE_CHECKING:
    from depthmup.report import Report

__all__ = ["deliver", "prepare_folder"]


def deliver(
    report: "Report",
    folder: Path | None,
    *,
    export: Collection[str],
    json: bool,
    saved: bool = False,
    figure: "reports.FigureKind | None" = None,
) -> None:
    """Show the tables, or print the summary; write both files unless they are ``saved`` already,
    or there is no folder that can be written.
    """
    studies, certificates = report.studies, report.certificates
    if folder is not None and (export or not saved):
        reports.write_result(studies, folder, certificates=certificates, formats=export)
    if folder is not None and figure is not None:
        _write_figures(report, folder / "figures", figure)
    if json:
        print_json(report.to_dict())
        return
    from rich.console import Console

    console = Console()
    for study in studies:
        if console.is_terminal:
            console.print(reports.table(study))
        else:
            print(reports.plain_table(study))
    for certificate in certificates:
        show(f"\n{certificate_text(certificate)}")
    if folder is not None:
        print(f"\nThe page: {(folder / 'report.html').resolve()}")


def _write_figures(report: "Report", folder: Path, kind: "reports.FigureKind") -> None:
    """Every figure as PDF and SVG, with its caption."""
    folder.mkdir(exist_ok=True)
    names: tuple[reports.FigureName, ...] = ("transfer", "rates", "loss", "drift")
    figures = {
        f"{name}-{study.axis}": reports.study_figure(study, name, kind=kind)
        for study in report.studies
        for name in names
    }
    parts: tuple[Literal["law", "penalty"], ...] = ("law", "penalty")
    figures |= {
        f"certificate-{i}-{part}": reports.certificate_figure(certificate, part, kind=kind)
        for i, certificate in enumerate(report.certificates, start=1)
        for part in parts[: 1 + certificate.issued]
    }
    for path, figure in figures.items():
        for suffix in ("pdf", "svg"):
            figure.save(folder / f"{path}.{suffix}")
