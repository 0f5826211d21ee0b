"""A verdict from results that a person already has: a table in, exponents and predictions out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from depthmup._version import __version__
from depthmup.fitting.clean import clean
from depthmup.fitting.columns import Columns, checked, propose
from depthmup.fitting.formats import names_of
from depthmup.fitting.group import Group
from depthmup.fitting.judge import at_target, judgements
from depthmup.fitting.measure import (
    exponent_of,
    from_pooled,
    joint_law,
    octave_costs,
    optimum_of,
    partners_of,
    points_of,
    pooled_joint_law,
    slices_of,
    sparse,
)
from depthmup.fitting.predict import checked_target, predict
from depthmup.fitting.read import Table, read
from depthmup.fitting.report import FitReport
from depthmup.fitting.rows import Excluded
from depthmup.fitting.where import Comparison, parse_filter
from depthmup.records import Certificate, worded
from depthmup.records.fit import EXCLUDED, Defect, Fit, GroupFit, RuleAtTarget
from depthmup.records.printable import printable
from depthmup.rules import Scheme, canonical
from depthmup.rules import scheme as scheme_named
from depthmup.statistics import TOLERANCE

MOST_GROUPS = 40
VERSION = 1
"""Of what is concluded: raised when the same table would give another fit."""

KEEP: Mapping[str, Defect] = {
    "rate": Defect.RATE,
    "impossible": Defect.IMPOSSIBLE,
    "short": Defect.SHORT,
    "duplicate": Defect.DUPLICATE,
    "unit": Defect.UNIT,
}
"""Tests whose rows may be kept all the same, by their names."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How ``fit`` reads a table, where the default reading is not what a person means by it.

    Attributes:
        ignore: columns in which runs of one size may differ without meaning anything.
        keep: tests whose rows are not left out: rate, impossible, short, duplicate, unit.
        chance: the loss of guessing; a size fails where no run ends below it.
        tuned: what the tuned hyperparameter is, in words.
        title: of the report.
    """

    ignore: str | Sequence[str] = ()
    keep: str | Sequence[str] = ()
    chance: float = math.inf
    tuned: str = "learning rate"
    title: str = ""

    def __post_init__(self) -> None:
        if unknown := [name for name in _listed(self.keep) if name not in KEEP]:
            raise ValueError(
                f"Expected tests to keep rows of: {', '.join(KEEP)}; got "
                f"{printable(', '.join(map(str, unknown)))}."
            )
        if not (isinstance(self.chance, int | float) and self.chance > 0):
            raise ValueError(f"Expected a positive loss of guessing; got {self.chance}.")

    @property
    def kept_defects(self) -> frozenset[Defect]:
        """The defects whose rows are not left out."""
        return frozenset(KEEP[name] for name in _listed(self.keep)) & EXCLUDED


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What ``fit`` asks of every group of a table."""

    columns: Columns
    scheme: Scheme | None
    target: dict[str, float] | None
    tolerance: float
    reading: Reading


def fit(
    table: Any,
    *,
    axes: Mapping[str, str] | Sequence[str],
    lr: str,
    loss: str,
    seed: str = "",
    steps: str = "",
    by: str | Sequence[str] = (),
    where: str | Sequence[str] = (),
    scheme: str | Scheme | None = None,
    target: Mapping[str, float] | None = None,
    tolerance: float = TOLERANCE,
    reading: Reading | None = None,
) -> FitReport:
    """How the best learning rate moves with size, from a table of finished runs; trains nothing.

    Each row is a run. The optimum of every size is fitted with its interval, and from the optima
    the exponent along each axis in ``best ~ size**exponent``, from slices in which that axis alone
    changes. With one seed intervals come from the scatter of sizes (``statistics.regression``).

    Args:
        table: a pandas DataFrame, or the path of a CSV, JSON lines or Parquet file.
        axes: the columns of the sizes, by the names of their axes (width, depth, parameters, batch,
            tokens, steps or any other); a list where columns are called as their axes.
        lr: the column of the tuned hyperparameter, which need not be a learning rate.
        loss: the column of the final loss; a run that diverged says nan or inf.
        seed: the column of the seed, if runs were repeated.
        steps: the column of the steps that a run took: finds runs that were cut short, and tells
            whether tokens or steps were held while the batch changed.
        by: columns whose values make groups, each with a verdict of its own.
        where: filters such as ``"optimizer == adamw and lr < 1"``; all must hold.
        scheme: the parametrization by which the table's values were scaled already: they are those
            at its base, and what is measured is a drift beyond it.
        target: a size, to predict the best value for, in all axes.
        tolerance: octaves per doubling within which a value counts as staying.
        reading: columns that mean nothing, tests whose rows stay, the loss of guessing, words
            (``fitting.Reading``).

    Returns:
        The report: text, page, frames, JSON. Groups that cannot be fitted say why.

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

    *Source:* the statistics are those of ``depthmup.transfer`` (docs/statistics.md).
    """
    reading = reading or Reading()
    named = dict(axes) if isinstance(axes, Mapping) else {str(a): str(a) for a in _listed(axes)}
    columns = Columns(
        axes=texts(named, "axes"),
        lr=str(lr or ""),
        loss=str(loss or ""),
        seed=str(seed or ""),
        steps=str(steps or ""),
        by=_listed(by),
        ignore=_listed(reading.ignore),
    )
    check_tolerance(tolerance)
    question = _Question(
        columns=columns,
        scheme=None if scheme is None or scheme == "" else scheme_named(scheme),
        target=None if target is None else checked_target(dict(target), columns.axes),
        tolerance=tolerance,
        reading=reading,
    )
    comparisons = tuple(c for text in _listed(where) for c in parse_filter(text))
    names = names_of(table)
    checked(columns, names)
    source = _read(table, columns, comparisons, names)
    groups: list[GroupFit] = []
    excluded: list[Excluded] = []
    rows = _filtered(source, comparisons)
    for name, part in _groups(rows, columns.by):
        fitted, out = _group_fit(part, name, question)
        groups.append(fitted)
        excluded += out
    # One group that cannot be fitted is a result beside the others; none at all is an error.
    if all(group.problem for group in groups):
        raise ValueError(groups[0].problem)
    record = Fit(
        title=reading.title or f"Fit of {source.title}",
        tuned=reading.tuned,
        columns={
            "axes": dict(columns.axes), "lr": columns.lr, "loss": columns.loss,
            "seed": columns.seed, "steps": columns.steps, "by": list(columns.by),
            "where": list(_listed(where)), "keep": sorted(_listed(reading.keep)),
        },
        rows=len(rows),
        groups=tuple(groups),
        excluded=len(excluded),
        tolerance=tolerance,
        scheme="" if question.scheme is None else question.scheme.title,
        target=question.target or {},
        notes=_notes(groups, columns, names, len(source) - len(rows)),
        code={"depthmup": __version__, "fit": VERSION},
    )  # fmt: skip
    return FitReport(record=record, excluded=tuple(excluded), cells=_cells(source, excluded))


def _group_fit(
    part: Table, name: str, question: _Question
) -> tuple[GroupFit, tuple[Excluded, ...]]:
    """One group, or why it cannot be fitted."""
    reading, scheme, tolerance = question.reading, question.scheme, question.tolerance
    tuned = reading.tuned
    try:
        group = clean(
            part,
            question.columns,
            name=name,
            tuned=tuned,
            chance=reading.chance,
            keep=reading.kept_defects,
        )
    except ValueError as error:
        empty = GroupFit(
            name=name, runs=len(part), seeds=0, findings=(), optima=(), points=(), exponents=(),
            joint=None, judgements=(), confounded=(), problem=str(error),
        )  # fmt: skip
        return empty, ()
    partners = partners_of(group)
    along = [slices_of(group, a, partners) for a in group.axes if _varies(group, a)]
    exponents = [exponent_of(group, s, tuned=tuned, tolerance=tolerance) for s in along]
    joint = joint_law(group, tuned)
    # Two rates say on which side an optimum lies: many such sizes fix a law that none has alone.
    if sparse(group, joint) and not partners:
        pooled = pooled_joint_law(group, tuned)
        if pooled is not None:
            joint = pooled
            exponents = [from_pooled(e, pooled, tolerance) for e in exponents]
    judged = [
        judgement
        for slices, exponent in zip(along, exponents, strict=True)
        if worded(tuned).is_learning_rate  # of which published rules speak
        for judgement in judgements(group, slices, exponent, scheme=scheme, tolerance=tolerance)
    ]
    prediction, rules = _at_target(group, question)
    return GroupFit(
        name=name,
        runs=group.runs,
        seeds=group.cells.seeds,
        findings=group.findings,
        optima=tuple(optimum_of(group, i) for i in range(len(group.sizes))),
        points=points_of(group),
        exponents=tuple(exponents),
        joint=joint,
        judgements=tuple(judged),
        confounded=(*_confounded(partners), *group.notes),
        prediction=prediction,
        at_target=rules,
        octave_costs=octave_costs(group),
    ), group.excluded


def _at_target(
    group: Group, question: _Question
) -> tuple[Certificate | None, tuple[RuleAtTarget, ...]]:
    """The prediction at the target, and what published rules prescribe there."""
    scheme, target = question.scheme, question.target
    if target is None:
        return None, ()
    prediction = predict(
        group,
        target,
        tolerance=question.tolerance,
        chance=question.reading.chance,
        about={
            "title": ", ".join(part for part in (question.reading.title, group.name) if part),
            "scheme": "" if scheme is None else scheme.title,
            "measure": question.columns.loss,
            "tuned": worded(question.reading.tuned),
        },
    )
    if prediction is None:
        return None, ()
    start = next(o for o in prediction.optima if dict(o.size) == dict(prediction.base))
    if not start.log2_lr.known or not prediction.tuned.is_learning_rate:
        return prediction, ()
    return prediction, at_target(prediction.base, target, start.log2_lr.value, scheme)


def _varies(group: Group, axis: str) -> bool:
    return len(np.unique(group.sizes[:, group.axes.index(axis)])) > 1


def _confounded(partners: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(
        f"{' and '.join(axes).capitalize()} always change together: what each does cannot be told "
        "apart. Vary one alone."
        for axes in partners
    )


def _read(
    table: Any, columns: Columns, comparisons: Sequence[Comparison], names: Sequence[str]
) -> Table:
    wanted = [c.column for c in comparisons]
    for column in wanted:
        if column not in names:
            raise ValueError(
                f"Expected the column {printable(repr(column))} of a filter in the table; it has "
                f"{printable(', '.join(map(str, names[:20])))}."
            )
    labels = (*columns.labels, *(c for c in wanted if c not in columns.numbers))
    return read(table, numbers=columns.numbers, labels=tuple(dict.fromkeys(labels)))


def _filtered(table: Table, comparisons: Sequence[Comparison]) -> Table:
    keep = np.ones(len(table), bool)
    for comparison in comparisons:
        name = comparison.column
        if name in table.numbers:
            values, codes = np.unique(table.numbers[name], return_inverse=True)
            texts = [repr(float(v)) for v in values]
        else:
            codes, texts = table.codes[name], table.names[name]
        keep &= comparison.of(texts)[codes]
    if not keep.any():
        raise ValueError("Expected rows that satisfy the filter; none does.")
    return table.where(keep)


def _groups(table: Table, by: Sequence[str]) -> list[tuple[str, Table]]:
    if not by:
        return [("", table)]
    keys = np.column_stack([table.codes[column] for column in by])
    distinct, number = np.unique(keys, axis=0, return_inverse=True)
    if len(distinct) > MOST_GROUPS:
        raise ValueError(
            f"Expected at most {MOST_GROUPS} groups; {printable(', '.join(by))} make "
            f"{len(distinct):,}. Pick some with a filter."
        )
    number = number.reshape(-1)
    named = []
    for i, key in enumerate(distinct):
        name = ", ".join(
            f"{column} {table.names[column][code] or '(none)'}"
            for column, code in zip(by, key, strict=True)
        )
        named.append((printable(name), table.where(number == i)))
    return sorted(named, key=lambda pair: pair[0])


def _cells(table: Table, excluded: Sequence[Excluded]) -> dict[str, list[Any]]:
    """What the excluded rows hold, by column."""
    index = np.searchsorted(table.rows, [e.row for e in excluded])
    cells: dict[str, list[Any]] = {c: v[index].tolist() for c, v in table.numbers.items()}
    for column, codes in table.codes.items():
        cells[column] = [table.names[column][code] for code in codes[index]]
    return cells


def _notes(
    groups: Sequence[GroupFit], columns: Columns, names: Sequence[str], filtered: int
) -> tuple[str, ...]:
    notes = [f"{filtered:,} rows do not satisfy the filter."] if filtered else []
    notes += [f"{g.name or 'The table'}: {g.problem}" for g in groups if g.problem]
    known = {canonical(a) for a in columns.axes}
    if "batch" in known and not {"tokens", "steps"} & known and not columns.steps:
        like = propose([n for n in names if n not in columns.axes.values()]).get("tokens", "")
        notes.append(
            "Whether tokens or steps were held while the batch changed is not known: name their "
            f"column{f' ({printable(like)}?)' if like else ''} as an axis, or with --steps."
        )
    return tuple(notes)


def texts(named: Mapping[Any, Any], what: str) -> dict[str, str]:
    """Names with their columns, all of them texts.

    Raises:
        ValueError: one of them is none.
    """
    for name, column in named.items():
        if not (isinstance(name, str) and isinstance(column, str) and name and column):
            raise ValueError(
                f"Expected {what} as names of axes with their columns, such as "
                f"{{'depth': 'n_layers'}}; got {printable(repr(name))}: {printable(repr(column))}."
            )
    return dict(named)


def _listed(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) and value else tuple(value)


def check_tolerance(tolerance: float) -> None:
    """Refuse a tolerance that is no positive number.

    Raises:
        ValueError: it is none.
    """
    if not (isinstance(tolerance, int | float) and 0 < tolerance < math.inf):
        raise ValueError(f"Expected a positive tolerance in octaves per doubling; got {tolerance}.")


def example() -> Path:
    """The table that ships with this package: 5 depths of residual MLPs under three schemes.

    Example:
        >>> fit(example(), axes={"depth": "n_layers"}, lr="lr", loss="final_loss", seed="seed",
        ...     by="scheme").verdict.value
        'transfers'
    """
    return Path(__file__).parent / "runs.csv"
