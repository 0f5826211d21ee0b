"""Cleaning in the open: from the rows of one group to its curves, every test in its order."""

from collections.abc import Mapping

import numpy as np

from depthmup.fitting import defects
from depthmup.fitting.columns import Columns
from depthmup.fitting.group import FEWEST_RATES, Group, group_of
from depthmup.fitting.read import Table
from depthmup.fitting.rows import Rows
from depthmup.fitting.settings import settings_of
from depthmup.fitting.units import in_other_units
from depthmup.records.fit import Defect
from depthmup.records.printable import printable
from depthmup.statistics import optima
from depthmup.statistics.intervals import Array
from depthmup.statistics.table import Cells, curves_of

FEWEST_RUNS = 8
"""Runs beyond one of each size and one of each axis, with which all sizes together have a law."""


def clean(
    table: Table,
    columns: Columns,
    *,
    name: str,
    tuned: str,
    chance: float,
    keep: frozenset[Defect],
) -> Group:
    """One group's curves, and what was wrong with its rows.

    Args:
        table: the rows of the group.
        columns: what stands for what.
        name: of the group, for messages.
        tuned: the tuned hyperparameter in words.
        chance: the loss of guessing.
        keep: defects whose rows are kept all the same.

    Returns:
        The group; optima at edges and sizes where nothing trains are in its findings.

    Raises:
        ValueError: no run is left, there is one size or one rate, runs of one size differ in a
            setting that was not named.
    """
    rows = Rows(table=table, columns=columns, name=name, keep=keep)
    defects.numbers(rows, tuned)
    defects.repeats(rows, rows.sizes()[1])
    sizes, size = rows.sizes()
    settings = settings_of(rows, size, len(sizes))
    defects.strays(rows, tuned)
    defects.tokens(rows)
    defects.steps(rows)
    defects.unsaid(rows)
    sizes, size = rows.sizes()
    log2_rate, loss = defects.rates_and_losses(rows, size)
    _askable(rows, sizes, log2_rate, loss, tuned)
    cells = curves_of(size, log2_rate, loss, rows.seed, len(sizes))
    _enough(rows, cells, log2_rate, tuned)
    fitted = optima(cells.curves, chance=chance)
    slips = in_other_units(rows, sizes, size, fitted, tuned)
    if slips.any():
        rows.drop(slips)
        return _without_slips(rows, chance, settings)
    return group_of(rows, sizes, size, cells=cells, fitted=fitted, settings=settings)


def _without_slips(rows: Rows, chance: float, settings: Mapping[str, Array]) -> Group:
    """The group once slices of another unit are out."""
    sizes, size = rows.sizes()
    log2_rate, loss = defects.rates_and_losses(rows, size, told=False)
    cells = curves_of(size, log2_rate, loss, rows.seed, len(sizes))
    fitted = optima(cells.curves, chance=chance)
    again = settings_of(rows, size, len(sizes))
    return group_of(rows, sizes, size, cells=cells, fitted=fitted, settings=again or settings)


def _askable(rows: Rows, sizes: Array, log2_rate: Array, loss: Array, tuned: str) -> None:
    """Refuse rows of one size, one rate, or no finite loss."""
    if len(sizes) < 2:
        axes = rows.columns.axes
        only = ", ".join(f"{a} {v:g}" for a, v in zip(axes, sizes[0], strict=True))
        raise ValueError(
            f"Expected runs of two sizes or more{rows.of_group}; all have {only}. Name the columns "
            "in which your runs differ as axes."
        )
    if not np.isfinite(loss).any():
        raise ValueError(
            f"Expected a run that ended with a finite loss{rows.of_group}; all diverged."
        )
    if len(np.unique(log2_rate)) < 2:
        raise ValueError(
            f"Expected at least three values of the {tuned}{rows.of_group}; the column "
            f"{printable(rows.columns.lr)!r} has {2.0 ** log2_rate[0]:g} alone."
        )


def _enough(rows: Rows, cells: Cells, log2_rate: Array, tuned: str) -> None:
    """Refuse sizes that have no optimum, neither of their own nor together."""
    rates = (~np.isnan(cells.curves.log2_lrs)).sum(-1)
    pooled = (rates - 1).sum() >= FEWEST_RUNS + len(rows.columns.axes)
    if (rates >= FEWEST_RATES).sum() < 2 and not (pooled and len(np.unique(log2_rate)) > 2):
        raise ValueError(
            f"Expected at least three values of the {tuned} at two sizes or more, or two at many"
            f"{rows.of_group}; of {len(rates)} sizes fewer have. Is every column named as an axis "
            "one?"
        )
