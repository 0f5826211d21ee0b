"""``depthmup.fit`` and ``score``: results that a person already has; trains nothing."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

from depthmup.recipes import RecipeReport
from depthmup.records import Certificate, Score
from depthmup.records.grammar import either
from depthmup.records.note import Note
from depthmup.records.printable import printable
from depthmup.records.sizes import size_text
from depthmup.report import Report, load_report, measurements, of_one_value
from depthmup.rules import Scheme
from depthmup.rules import scheme as scheme_named
from depthmup.statistics import TOLERANCE
from depthmup.statistics.drift import check_tolerance
from depthmup.sweep import MAIN_STORE, snapshot
from depthmup.tables.columns import (
    UnnamedColumns,
    axis_named,
    listed,
    one_column,
    own_columns,
    texts,
)
from depthmup.tables.formats import EXAMPLE, Source, example
from depthmup.tables.groups import cells_of, cleaned, remedies_of
from depthmup.tables.predict import checked_target, prediction
from depthmup.tables.question import Question, Reading, command_of
from depthmup.tables.recipe import recipes_of
from depthmup.tables.score import scored
from depthmup.tables.study import studies_of
from depthmup.tables.trackers import Pattern, address_of
from depthmup.tables.where import parse_filters

LARGEST_CERTIFICATE = 2**24
"""Bytes."""


@overload
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
    target: Mapping[str, float] | str | None = None,
    over: str = "",
    tolerance: float = TOLERANCE,
    reading: Reading | None = None,
) -> Report: ...


@overload
def fit(
    table: Any,
    *,
    axes: Mapping[str, str] | Sequence[str] = (),
    lr: list[str] | tuple[str, ...],
    loss: str = "",
    seed: str = "",
    steps: str = "",
    by: str | Sequence[str] = (),
    where: str | Sequence[str] = (),
    scheme: str | Scheme | None = None,
    target: Mapping[str, float] | str | None = None,
    over: str = "",
    tolerance: float = TOLERANCE,
    reading: Reading | None = None,
) -> RecipeReport: ...


def fit(
    table: Any,
    *,
    axes: Mapping[str, str] | Sequence[str] = (),
    lr: str | list[str] | tuple[str, ...] = "",
    loss: str = "",
    seed: str = "",
    steps: str = "",
    by: str | Sequence[str] = (),
    where: str | Sequence[str] = (),
    scheme: str | Scheme | None = None,
    target: Mapping[str, float] | str | None = None,
    over: str = "",
    tolerance: float = TOLERANCE,
    reading: Reading | None = None,
) -> Report | RecipeReport:
    """How the best learning rate moves with size, from a table of finished runs; trains nothing.

    Each row is a run. The optimum of every size is fitted with its interval. The optima give the
    exponent along each axis in ``best ~ size**exponent``, from slices along that axis alone. With
    one seed intervals come from the scatter of sizes (``statistics.regression``).

    The columns of ``report.to_pandas("runs")``, and of a folder of ``depthmup.transfer``, are
    known: without ``axes``, ``lr`` and ``loss`` their report is the one that was measured.

    Args:
        table: a pandas DataFrame, the path of a CSV, JSON, Parquet or Excel file, the folder or
            store of a measurement, a tracker's runs such as ``"wandb:FOLDER"``, or
            ``"runs:PATTERN"``, the paths of logs with the place of the loss in each.
        axes: the columns of the sizes, by the names of their axes (width, depth, parameters, batch,
            tokens, steps or any other); a list where columns are called as their axes.
        lr: the column of the tuned hyperparameter, which need not be a learning rate; or several
            columns that were tuned together, such as ``["lr", "weight_decay"]``.
        loss: the column of the final loss: nan or inf if a run diverged, empty if it is missing. Of
            logs and trackers the last value of a metric; ``NAME:min`` and ``NAME@STEP`` are others.
        seed: the column of the seed, if runs were repeated.
        steps: the column of a run's steps. It shows runs that were cut short, and whether tokens or
            steps were fixed while the batch changed.
        by: columns that divide the runs into groups, each with its own verdict.
        where: filters such as ``"optimizer == adamw and lr < 1"``; all must hold.
        scheme: the scheme already applied to the table's learning rates, such as completep: they
            are rates at its base.
        target: a size, to predict the best value for, in all axes: ``{"depth": 64}``. Numbers need
            not be whole: ``{"tokens per parameter": 2.5}``. In whole numbers also as text.
        over: the group that the gains of the others are over, or a part of its name; by default the
            first of few.
        tolerance: largest drift, in octaves per doubling, that still counts as staying.
        reading: columns to ignore, tests to skip, the loss of guessing, words (``tables.Reading``).

    Returns:
        The report: text, page, frames, figures, JSON. It has the reason why a group has no fit. Of
        several columns a ``RecipeReport``: their joint optimum at every size.

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

    *Source:* the statistics of ``depthmup.transfer`` (docs/studies/statistics.md).
    """
    first, *beside = _tuned(lr)
    ask = partial(_asked, table, by=by, where=where, reading=reading or Reading(), beside=beside)
    try:
        question = ask(axes, lr=first, loss=loss, seed=seed, steps=steps)
    except UnnamedColumns as error:
        if command := _most_likely(ask, error):
            whole = f"{error.lacking} Most likely: {printable(command)}"
            raise ValueError(either(str(error), whole)) from None
        raise
    under = None if scheme is None or scheme == "" else scheme_named(scheme)
    check_tolerance(tolerance)
    wanted = None if target is None else checked_target(target, question.axes)
    question = replace(question, scheme=under, target=wanted, over=over, tolerance=tolerance)
    if beside:
        return _recipes(question)
    rows, groups = cleaned(question)
    excluded = tuple(out for group in groups for out in group.excluded)
    return Report(
        studies=studies_of(rows, groups, question),
        certificates=tuple(c for group in groups if (c := prediction(group, question))),
        table_runs=tuple(group.runs for group in groups),
        excluded=excluded,
        cells=cells_of(rows, excluded),
    )


def _most_likely(ask: Callable[..., Question], error: UnnamedColumns) -> str:
    """The command that answers with the columns that look like it; empty where none would."""
    named = {what: error.named[what] for what in ("lr", "loss", "seed", "steps")}
    try:
        question = ask(error.axes, **named)
        _, groups = cleaned(question)
    except ValueError:
        return ""
    if not question.path:
        return ""  # Python has the table under a name that is not known here
    answered = [group for group in groups if not group.runs.problem]
    return command_of(question) if answered else next(iter(remedies_of(groups).values()), "")


def _tuned(lr: str | Sequence[str]) -> tuple[str, ...]:
    """The columns of tuned values, the first of which may be unnamed."""
    names = (lr,) if isinstance(lr, str) else tuple(lr)
    if not names or not all(isinstance(n, str) for n in names) or len({*names}) < len(names):
        raise ValueError(
            "Expected the column of the tuned value, or different columns of several, such as "
            f"lr=['lr', 'weight_decay']; got {printable(repr(lr))}."
        )
    return names


def _recipes(question: Question) -> RecipeReport:
    """Several tuned values have a report of their own."""
    if question.over or math.isfinite(question.reading.chance):
        raise ValueError(
            "Expected several tuned values without a gain over a group or the loss of guessing; "
            "these are answers about one value. Leave over and chance out."
        )
    found = recipes_of(question)
    return RecipeReport(
        recipes=found.found,
        problems=found.problems,
        excluded=found.excluded,
        cells=cells_of(found.rows, found.excluded),
        title=question.reading.title or f"Recipe of {found.rows.title}",
    )


def score(
    certificate: Certificate | str | Path,
    table: Any,
    *,
    axes: Mapping[str, str] | Sequence[str] = (),
    lr: str = "",
    loss: str = "",
    seed: str = "",
    by: str | Sequence[str] = (),
    where: str | Sequence[str] = (),
    reading: Reading | None = None,
) -> Score:
    """Judge a forecast: a certificate against later runs at its target.

    Fits the optimum at the target like ``fit``. The forecast's value ``held`` if its interval
    contains that optimum, and ``missed`` if the two intervals do not meet. Its bound held if the
    forecast's value costs no more than the bound, and missed if it costs more, each with the whole
    interval of the cost.

    Args:
        certificate: of ``transfer`` or ``fit``, or the path of its file.
        table: the runs, as ``fit`` reads them: a DataFrame, a file, or the folder of a measurement.
        axes, lr, loss, seed, by, where, reading: the columns, like ``fit``'s; by default those that
            ``report.to_pandas("runs")`` has, with the certificate's names of axes.

    Returns:
        The score: both verdicts and the numbers behind them.

    Raises:
        ValueError: the certificate was refused, rests on runs at its target, or is about something
            else than the table; the table cannot be read, or has no runs at the target.

    Example:
        >>> import numpy as np, pandas as pd
        >>> runs = pd.DataFrame(
        ...     [(d, 2.0**k, s, 2 + 0.1 * (k + 4.1 + 0.01 * s) ** 2 + 0.001 * s)
        ...      for d in (4, 8, 16, 32, 64) for s in range(3) for k in np.arange(-9, 0, 0.5)],
        ...     columns=["depth", "lr", "seed", "loss"])
        >>> columns = dict(axes=["depth"], lr="lr", loss="loss", seed="seed")
        >>> forecast = fit(runs[runs.depth < 64], **columns, target={"depth": 64}).certificates[0]
        >>> score(forecast, runs, lr="lr", loss="loss", seed="seed").value.value
        'held'
    """
    if not isinstance(certificate, Certificate):
        certificate = _certificate_in(Path(certificate))
    if not certificate.issued:
        raise ValueError(
            "Expected a certificate that forecasts something; this one was refused: "
            f"{certificate.refusals[0].reason}"
        )
    if any(dict(at.size) == dict(certificate.target) for at in certificate.optima):
        raise ValueError(
            "Expected a forecast; this certificate rests on runs at its own target, "
            f"{printable(size_text(certificate.target))}. Certify the target from smaller sizes."
        )
    reading = reading or Reading(tuned=certificate.tuned.name)
    question = _asked(
        table,
        axes,
        by=by,
        where=where,
        reading=reading,
        lr=lr,
        loss=loss,
        seed=seed,
        otherwise=certificate.target,
    )
    if set(question.axes) != set(certificate.target):
        raise ValueError(
            f"Expected the axes of the forecast, {printable(', '.join(certificate.target))}; the "
            f"table has {printable(', '.join(question.axes))}."
        )
    if question.tuned != certificate.tuned:
        raise ValueError(
            f"Expected runs over {certificate.tuned.plural}, of which the forecast speaks; the "
            f"table has {question.tuned.plural}."
        )
    _, groups = cleaned(replace(question, fewest=1))
    return scored(certificate, [group.runs for group in groups])


def _certificate_in(path: Path) -> Certificate:
    try:
        if path.stat().st_size > LARGEST_CERTIFICATE:
            raise ValueError(
                f"Expected a certificate; {printable(str(path))} is too large for one."
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "it is no text"
        raise ValueError(
            f"Expected the file of a certificate, such as certificate.json; "
            f"{printable(str(path))}: {said}."
        ) from None
    return Certificate.from_json(text)


def _asked(
    table: Any,
    axes: Mapping[str, str] | Sequence[str],
    *,
    by: str | Sequence[str],
    where: str | Sequence[str],
    reading: Reading,
    lr: str,
    loss: str,
    seed: str,
    steps: str = "",
    beside: Sequence[str] = (),
    otherwise: Iterable[str] = (),
) -> Question:
    """What is asked of a table; axes that are not named are called as ``otherwise``."""
    lr = one_column(lr)
    path = str(table) if isinstance(table, str | Path) else ""
    table, command, others = _runs_in(table)
    sizes = dict(axes) if isinstance(axes, Mapping) else {str(a): str(a) for a in listed(axes)}
    if (tracker := address_of(table)) and tracker[0] == "runs":
        pattern = Pattern.of(tracker[1])
        if loss and not pattern.loss:
            return _asked(
                f"{table}:{loss}",
                axes,
                by=by,
                where=where,
                reading=reading,
                lr=lr,
                loss="",
                seed=seed,
                steps=steps,
                beside=beside,
            )
        sizes = sizes or {name: name for name in pattern.names if axis_named(name)}
        lr, seed = (n or (w if w in pattern.names else "") for n, w in ((lr, "lr"), (seed, "seed")))
        loss = pattern.column
    conditions = parse_filters(where)
    if reading.wide:
        sizes, loss = sizes or {reading.wide: reading.wide}, loss or "loss"
    source = Source(table, loss, reading.wide, reading.names)
    names = source.names
    own = {} if sizes or lr or loss else own_columns(names)
    columns: dict[str, Any] = own or {
        "axes": texts(sizes or {axis: axis for axis in otherwise}),
        "lr": str(lr or ""),
        "loss": str(loss or ""),
        "seed": str(seed or ""),
        "steps": str(steps or ""),
        "by": listed(by),
        "beside": tuple(beside),
    }
    return Question(
        source=source,
        **columns,
        reading=reading,
        where=listed(where),
        conditions=conditions,
        path=EXAMPLE if path == str(example()) else path,
        command=command,
        others=others,
    )


def _runs_in(table: Any) -> tuple[Any, Any, tuple[Note, ...]]:
    """The runs of a folder or a store of ``depthmup.transfer`` with the command that made them and
    what else it holds; any other table as it is.
    """
    if not isinstance(table, str | Path):
        return table, (), ()
    path = Path(table)
    store = path / MAIN_STORE if path.is_dir() else path
    if store.suffix != ".sqlite" or not store.is_file():
        return table, (), ()
    with snapshot(store) as opened:
        report = of_one_value(load_report(opened), "a fit of its folder")
        several = len(measurements(opened)) > 1
    study = report.study()
    # The report's last note names the other measurements.
    others = study.notes[-1:] if several else ()
    return report.to_pandas("runs"), study.config.get("command", ()), others
