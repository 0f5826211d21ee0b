"""``depthmup.fit``: a report from results that a person already has; trains nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from depthmup.report import Report, load_report
from depthmup.rules import Scheme
from depthmup.rules import scheme as scheme_named
from depthmup.statistics import TOLERANCE
from depthmup.sweep import MAIN_STORE, snapshot
from depthmup.tables.columns import Columns, check_tolerance, checked, own_columns, texts
from depthmup.tables.formats import names_of
from depthmup.tables.groups import Question, Reading, answered, listed
from depthmup.tables.predict import checked_target
from depthmup.tables.where import parse_filter


def fit(
    table: Any,
    *,
    axes: Mapping[str, str] | Sequence[str] = (),
    lr: str = "",
    loss: str = "",
    seed: str = "",
    steps: str = "",
    by: str | Sequence[str] = (),
    where: str | Sequence[str] = (),
    scheme: str | Scheme | None = None,
    target: Mapping[str, float] | None = None,
    tolerance: float = TOLERANCE,
    reading: Reading | None = None,
) -> Report:
    """How the best learning rate moves with size, from a table of finished runs; trains nothing.

    Each row is a run. The optimum of every size is fitted with its interval, and from the optima
    the exponent along each axis in ``best ~ size**exponent``, from slices in which that axis alone
    changes. With one seed intervals come from the scatter of sizes (``statistics.regression``).

    The columns of ``report.to_pandas("runs")``, and of a folder of ``depthmup.transfer``, are
    known: without ``axes``, ``lr`` and ``loss`` their report is the one that was measured.

    Args:
        table: a pandas DataFrame, the path of a CSV, JSON lines or Parquet file, or the folder or
            store of a measurement.
        axes: the columns of the sizes, by the names of their axes (width, depth, parameters, batch,
            tokens, steps or any other); a list where columns are called as their axes.
        lr: the column of the tuned hyperparameter, which need not be a learning rate.
        loss: the column of the final loss; a run that diverged says nan or inf.
        seed: the column of the seed, if runs were repeated.
        steps: the column of the steps that a run took: finds runs that were cut short, and tells
            whether tokens or steps were held while the batch changed.
        by: columns whose values make groups, each a variant with a verdict of its own.
        where: filters such as ``"optimizer == adamw and lr < 1"``; all must hold.
        scheme: the parametrization by which the table's values were scaled already: they are those
            at its base, and what is measured is a drift beyond it.
        target: a size, to predict the best value for, in all axes.
        tolerance: octaves per doubling within which a value counts as staying.
        reading: columns that mean nothing, tests whose rows stay, the loss of guessing, words
            (``tables.Reading``).

    Returns:
        The report: text, page, frames, figures, JSON. Groups that cannot be fitted say why.

    Raises:
        ValueError: the table cannot be read, columns are missing or no numbers, nothing can be
            asked of it, or no group can be fitted.

    Example:
        >>> import numpy as np, pandas as pd
        >>> runs = pd.DataFrame(
        ...     [(d, 2.0**k, 2 + 0.1 * (k + 4 + 0.5 * np.log2(d)) ** 2)
        ...      for d in (4, 8, 16, 32) for k in range(-12, 0)], columns=["layers", "lr", "loss"])
        >>> report = fit(runs, axes={"depth": "layers"}, lr="lr", loss="loss")
        >>> round(report.exponent("depth").value, 2), report.verdict.value
        (-0.5, 'drifts')

    *Source:* the statistics are those of ``depthmup.transfer`` (docs/studies/statistics.md).
    """
    table = _runs_in(table)
    reading = reading or Reading()
    named = dict(axes) if isinstance(axes, Mapping) else {str(a): str(a) for a in listed(axes)}
    columns = Columns(
        axes=texts(named, "axes"),
        lr=str(lr or ""),
        loss=str(loss or ""),
        seed=str(seed or ""),
        steps=str(steps or ""),
        by=listed(by),
        ignore=listed(reading.ignore),
    )
    check_tolerance(tolerance)
    comparisons = tuple(c for text in listed(where) for c in parse_filter(text))
    under = None if scheme is None or scheme == "" else scheme_named(scheme)
    names = names_of(table)
    if not (named or columns.lr or columns.loss):
        columns = own_columns(names) or columns
    wanted = None if target is None else checked_target(dict(target), columns.axes)
    checked(columns, names)
    found = answered(
        table,
        comparisons,
        names,
        Question(
            columns=columns,
            scheme=under,
            target=wanted,
            tolerance=tolerance,
            reading=reading,
            where=listed(where),
        ),
    )
    return Report(
        studies=found.studies,
        certificates=found.certificates,
        table_runs=found.runs,
        excluded=found.excluded,
        cells=found.cells,
    )


def _runs_in(table: Any) -> Any:
    """The runs of a folder or a store of ``depthmup.transfer``; any other table as it is."""
    if not isinstance(table, str | Path):
        return table
    path = Path(table)
    store = path / MAIN_STORE if path.is_dir() else path
    if store.suffix != ".sqlite" or not store.is_file():
        return table
    with snapshot(store) as opened:
        return load_report(opened).to_pandas("runs")
