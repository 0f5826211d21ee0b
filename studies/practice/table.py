"""What the sweeps of all entries say, as lines and as data."""

import depthmup
from depthmup.records import Estimate
from studies.practice.entries import Entry


def drifts(report: depthmup.Report) -> dict[str, Estimate]:
    """By axis."""
    return {study.axis: study.windows[-1].transfers[0].drift for study in report.studies}


def row_of(entry: Entry, optimizer: str, report: depthmup.Report) -> str:
    """One line, as an entry ends."""
    found = drifts(report)
    cells = [f"{e.value:+.2f} ({e.low:+.2f} to {e.high:+.2f})" for e in found.values()]
    axes = " ".join(f"{axis} {cell}" for axis, cell in zip(found, cells, strict=True))
    return f"{entry.name:44} {optimizer:5} {axes}  {len(report.records)} runs"


def written(out: object) -> str:
    """The table."""
    raise NotImplementedError
