"""What a measurement leaves in its folder and on the screen."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from depthmup import reports
from depthmup.cli.folders import prepare_folder
from depthmup.cli.output import print_json
from depthmup.records import Study, environment
from depthmup.records.certificate import Certificate
from depthmup.reports.certificate import certificate_text
from depthmup.sweep import Grid, Store, StoreError, study
from depthmup.sweep.certify import certify
from depthmup.sweep.sessions import environment_of

__all__ = ["about_session", "deliver", "load_certificates", "load_study", "prepare_folder"]


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


def load_study(store: Store, grid: Grid | None = None) -> Study:
    """The study of a grid, or of the one that was asked for last, from the store alone."""
    sessions = _sessions(store, grid)
    last = sessions[-1]
    return study(
        Grid.from_dict(last["grid"]),
        store,
        tolerance=last["tolerance"],
        config={
            **last["grid"],
            "tolerance": last["tolerance"],
            "command": last["command"],
        },
        environment=environment_of([s for s in sessions if s["grid"] == last["grid"]]),
    )


def load_certificates(
    store: Store, study: Study, grid: Grid | None = None
) -> tuple[Certificate, ...]:
    """The certificates that the last measurement of a grid asked for; none if it did not."""
    last = _sessions(store, grid)[-1]
    depth = last.get("target_depth", 0)
    if not depth:
        return ()
    return certify(
        Grid.from_dict(last["grid"]),
        store,
        depth=depth,
        tolerance=last["tolerance"],
        config=study.config,
        environment=study.environment,
    )


def _sessions(store: Store, grid: Grid | None) -> list[dict[str, Any]]:
    """The sessions that measured a grid (of any, if none is named), oldest first."""
    sessions = [s for s in store.sessions() if "grid" in s]
    if grid is not None:  # another sweep may have begun on this store since
        sessions = [s for s in sessions if s["grid"] == grid.to_dict()]
    if not sessions:
        raise StoreError(
            f"No measurement was started in {store.path}. Run `depthmup transfer` with this --out."
        )
    return sessions


def deliver(
    studies: Sequence[Study],
    folder: Path,
    *,
    export: Collection[str],
    json: bool,
    certificates: Sequence[Certificate] = (),
) -> None:
    """Write the page and the summary; show the tables, or print the summary."""
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
