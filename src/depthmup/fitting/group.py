"""One group of a table, cleaned: its curves, their optima, and what a reader must know of both."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from depthmup.fitting.rows import SHOWN, Excluded, Rows
from depthmup.records import Place
from depthmup.records.fit import Defect, Finding
from depthmup.records.printable import printable
from depthmup.statistics import Optima
from depthmup.statistics.intervals import Array, Flags, Index
from depthmup.statistics.strays import usual_steps
from depthmup.statistics.table import Cells

FEWEST_RATES = 3
"""With fewer a curve has no optimum."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """One group, cleaned.

    Attributes:
        sizes: (sizes, axes), increasing.
        cells: the curves of all sizes.
        fitted: their optima.
        excluded: the rows that are left out.
        notes: what else a reader must know.
        steps: of each size, where a column of steps was named; else empty.
        settings: unnamed columns that look like settings: whether each is one value for all.
    """

    name: str
    axes: tuple[str, ...]
    sizes: Array
    cells: Cells
    fitted: Optima
    runs: int
    findings: tuple[Finding, ...]
    excluded: tuple[Excluded, ...]
    notes: tuple[str, ...]
    steps: Array
    settings: Mapping[str, Array] = field(default_factory=dict)


def group_of(
    rows: Rows,
    sizes: Array,
    size: Index,
    *,
    cells: Cells,
    fitted: Optima,
    settings: Mapping[str, Array],
) -> Group:
    """The group of rows that are clean.

    Args:
        rows: of the group.
        sizes: (sizes, axes).
        size: number of every row's size.
        cells: the curves of all sizes.
        fitted: their optima.
        settings: unnamed columns that look like settings.
    """
    steps = np.zeros(0)
    if rows.counts_steps:
        steps = np.zeros(len(sizes))
        steps[size] = usual_steps(size, rows.table.numbers[rows.columns.steps])
    return Group(
        name=rows.name,
        axes=tuple(rows.columns.axes),
        sizes=sizes,
        cells=cells,
        fitted=fitted,
        runs=len(rows.table),
        findings=(*rows.findings, *_of_sizes(sizes, fitted)),
        excluded=tuple(rows.excluded),
        notes=_notes(rows, cells),
        steps=steps,
        settings=settings,
    )


def _of_sizes(sizes: Array, fitted: Optima) -> list[Finding]:
    """Optima that are bounds, and sizes at which nothing trains."""
    places = fitted.places()
    few = (~np.isnan(fitted.curves.log2_lrs)).sum(-1) < FEWEST_RATES
    failed = np.array([p is Place.FAILED for p in places]) & ~few
    edge = np.array([p in (Place.LOW_EDGE, Place.HIGH_EDGE) for p in places]) & ~few
    at_edge = "have their best rate at an edge of their grid: a bound, no optimum"
    told = (
        _finding(Defect.FEW, few, sizes, "have fewer than three rates"),
        _finding(Defect.FAILED, failed, sizes, "have no rate that trains"),
        _finding(Defect.EDGE, edge, sizes, at_edge),
    )
    return [finding for finding in told if finding.count]


def _finding(defect: Defect, flags: Flags, sizes: Array, said: str) -> Finding:
    which = "; ".join(", ".join(f"{v:g}" for v in values) for values in sizes[flags][:SHOWN])
    count = int(flags.sum())
    sentence = f"{count} size{'s' if count > 1 else ''} ({which}) {said}. Not fitted."
    return Finding(defect=defect, count=count, sentence=sentence)


def _notes(rows: Rows, cells: Cells) -> tuple[str, ...]:
    notes, named = [], rows.columns.seed
    if named and not cells.shared and cells.seeds == 1:
        notes.append("Seeds are not repeated over rates: every run counts as one of its own.")
    like = [name for name in rows.table.others if name.lower().endswith("seed")]
    if not named and like:
        column = printable(repr(like[0]))
        notes.append(f"The column {column} looks like a seed: name it with --seed.")
    if cells.seeds == 1:
        notes.append(
            "One run for each rate: intervals are from the scatter of sizes and of points about "
            "their curves, and cannot see a shift that all runs share."
        )
    return tuple(notes)
