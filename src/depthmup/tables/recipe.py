"""Recipes of a table: the runs of each group with several tuned values, read and refused."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from depthmup.posterior.curve import far_above
from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.posterior.recipe import recipe_posterior
from depthmup.posterior.trials import Trials
from depthmup.records import LEARNING_RATE, Tuned, worded
from depthmup.records.note import Excluded
from depthmup.records.printable import printable
from depthmup.records.recipe import Recipe
from depthmup.records.text import counted
from depthmup.rules import canonical
from depthmup.rules.claims import AxisClaim, claims
from depthmup.statistics.minimum import doublings_of
from depthmup.statistics.recipe import recipe
from depthmup.statistics.scattered import is_scattered
from depthmup.tables import defects, ends
from depthmup.tables.clean import number
from depthmup.tables.columns import LIKELY
from depthmup.tables.groups import named, parts
from depthmup.tables.held import confounding, is_batch_held, its_doing
from depthmup.tables.question import Question
from depthmup.tables.read import RunTable
from depthmup.tables.rows import GroupRows
from depthmup.tables.settings import codes_of_sizes, settings_of

MOST_VALUES = 4
"""Tuned together: people have general optimizers for more."""

SPARE = 4
"""Runs that a group needs beyond the numbers that are fitted to it."""

MOST_SIZES = 40
"""Of a group: the time grows with the cube of sizes times values."""

APART = 0.01
"""Of the scatter of all tuned values: a direction that has less was not varied."""


@dataclass(frozen=True, kw_only=True)
class Recipes:
    """The recipes of all groups of a table, why others have none, and the rows left out."""

    rows: RunTable
    found: tuple[Recipe, ...]
    problems: tuple[tuple[str, str], ...]
    excluded: tuple[Excluded, ...]


def recipes_of(question: Question) -> Recipes:
    """Every group's recipe; an error where none has one."""
    columns = (question.lr, *question.beside)
    if len(columns) > MOST_VALUES:
        raise ValueError(
            f"Expected at most {MOST_VALUES} values tuned together; got {len(columns)}: "
            f"{printable(', '.join(columns))}. Name those that matter most, and pick one value of "
            "the others with a filter."
        )
    table = question.read()
    found: list[Recipe] = []
    problems: list[tuple[str, str]] = []
    excluded: list[Excluded] = []
    for part, values in parts(table, question):
        name, title = named(question, part, values)
        rows = GroupRows(table=part, question=question, name=name)
        try:
            found.append(_recipe(rows, title))
        except np.linalg.LinAlgError:
            raise  # no fault of the table
        except ValueError as error:
            problems.append((name, str(error)))
        excluded += rows.excluded
    if not found:
        raise ValueError(problems[0][1])
    return Recipes(
        rows=table, found=tuple(found), problems=tuple(problems), excluded=tuple(excluded)
    )


def tuned_of(question: Question) -> tuple[Tuned, ...]:
    """What is tuned, by ``reading.tuned`` where it names as many, else by the columns' names."""
    columns = (question.lr, *question.beside)
    words = [word.strip() for word in question.reading.tuned.split(",")]
    if len(words) == len(columns):
        return tuple(map(worded, words))
    if question.reading.tuned != LEARNING_RATE.name:
        raise ValueError(
            f"Expected a name for each of {printable(', '.join(columns))}, separated by commas; "
            f"got {printable(repr(question.reading.tuned))}."
        )
    return tuple(
        LEARNING_RATE if column in LIKELY["lr"] else worded(column.replace("_", " "))
        for column in columns
    )


def _recipe(rows: GroupRows, title: str) -> Recipe:
    """One group's recipe."""
    question, tuned = rows.question, tuned_of(rows.question)
    defects.numbers(rows)
    ends.ended(rows)
    ends.zeros(rows)
    defects.losses_of_no_logarithm(rows)
    names = settings_of(rows, rows.sizes()[1])
    defects.unsound(rows)
    sizes, size = rows.sizes()
    # Valleys of several values have no wall.
    above = far_above(size, np.log2(rows.rate), np.log(rows.loss))
    log2_rate, loss = defects.rates_and_losses(rows, above)
    if is_scattered(size, log2_rate):
        raise ValueError(
            f"Expected several runs of every size{rows.of_group}; nearly every one of the "
            f"{len(loss):,} has a size of its own. Tune one value, or run a few sizes."
        )
    others = [np.log2(rows.table.numbers[column]) for column in question.beside]
    x = np.column_stack([log2_rate, *others])
    settings = codes_of_sizes(rows, size, names)
    kept, some = _trained(size, loss, len(sizes))
    settings = {column: codes[some >= 0] for column, codes in settings.items()}
    x, loss, size, sizes = x[kept], loss[kept], some[size[kept]], sizes[some >= 0]
    seed = np.unique(rows.seed[kept], return_inverse=True)[1].reshape(-1)
    _told(rows, tuned, x, loss, size, len(sizes))
    named_sizes = [
        dict(zip(question.axes, map(number, values), strict=True)) for values in sizes.tolist()
    ]
    # In one order, whatever that of the rows.
    order = np.lexsort((loss, seed, *x.T[::-1], size))
    notes = [finding.text for finding in rows.findings]
    if lost := int((~kept).sum()):
        notes.append(f"{counted(lost, 'run')} of sizes where nothing trains left out.")
    if not question.seed:
        notes.append("No column of seeds: how seeds differ is assumed, not measured.")
    doing = {
        axis: confounding(settings, axis, question.axes, [np.arange(len(sizes))])
        for axis in question.axes
    }
    notes += [its_doing(column, axis) for axis, columns in doing.items() for column in columns]
    called = set(map(canonical, question.axes))
    fixed = next((axis for axis in ("tokens", "steps") if axis in called), "")
    held = is_batch_held(settings, question)

    def claimed(axis: str, one: Tuned) -> Iterable[AxisClaim]:
        if doing[axis]:
            return ()
        return claims(axis, fixed, question.scheme, batch_held=held, quantity=one.law)

    trials = Trials(
        x=x[order],
        y=np.log(loss[order]),
        size=np.asarray(size[order], np.int64),
        seed=np.asarray(seed[order], np.int64),
        s=doublings_of(named_sizes),
    )
    found = recipe(
        recipe_posterior(trials),
        named_sizes,
        tuned,
        name=rows.name,
        title=title,
        tolerance=question.tolerance,
        target=question.target,
        notes=notes,
        claims=claimed,
    )
    return replace(found, scheme=question.scheme)


def _trained(size: Index, loss: Array, count: int) -> tuple[Flags, Index]:
    """Runs of sizes at which some run ended, and these sizes' new numbers; -1 of the others."""
    trains = np.asarray(np.bincount(size, np.isfinite(loss), minlength=count) > 0)
    some = np.where(trains, np.cumsum(trains) - 1, -1)
    return np.asarray(trains[size], bool), np.asarray(some, np.int64)


def _told(
    rows: GroupRows, tuned: tuple[Tuned, ...], x: Array, loss: Array, size: Index, sizes: int
) -> None:
    """Refuse runs that cannot tell every value, and say what to vary."""
    question, values = rows.question, len(tuned)
    columns = (question.lr, *question.beside)
    if sizes > MOST_SIZES:
        raise ValueError(
            f"Expected at most {MOST_SIZES} sizes for several tuned values{rows.of_group}; got "
            f"{sizes}. Pick some with a filter."
        )
    if sizes < 2:
        raise ValueError(
            f"Expected runs of two sizes or more that train{rows.of_group}; got {sizes}. Name the "
            "columns in which your runs differ as axes."
        )
    for one, column, own in zip(tuned, columns, x.T, strict=True):
        if np.ptp(own) == 0:
            raise ValueError(
                f"Expected {one.the} to vary{rows.of_group}; the column {printable(repr(column))} "
                f"has {2.0 ** own[0]:.3g} alone. Vary it, or tune the other values without it."
            )
    apart = x - np.array([x[size == i].mean(0) for i in range(sizes)])[size]
    _together(rows, columns, tuned, apart)
    ended = int(np.isfinite(loss).sum())
    fitted = sizes * (1 + values) + values * (values + 1) // 2
    need = fitted + SPARE
    each = np.array(
        [len(np.unique(x[(size == i) & np.isfinite(loss)], axis=0)) for i in range(sizes)]
    )
    if ended < need or (each >= values + 2).sum() < 2:
        more = f"{need} runs that end, {values + 2} of them different ones at two sizes or more"
        raise ValueError(
            f"Expected at least {more}, to tell {values} values at {sizes} sizes{rows.of_group}; "
            f"got {ended}, with {', '.join(map(str, each))} different ones. Train more, with all "
            f"of {printable(', '.join(columns))} varied, or tune fewer values."
        )


def _together(
    rows: GroupRows, columns: tuple[str, ...], tuned: tuple[Tuned, ...], apart: Array
) -> None:
    """Refuse values that change only together, within sizes."""
    still = np.ptp(apart, axis=0) < 1e-6
    if still.any():
        at = int(np.flatnonzero(still)[0])
        raise ValueError(
            f"Expected {tuned[at].the} to vary at one size{rows.of_group}; the column "
            f"{printable(repr(columns[at]))} differs between sizes alone. Vary it at two sizes or "
            "more, or tune the other values without it."
        )
    scaled = apart / np.sqrt((apart**2).mean(0))
    lengths, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    if lengths[0] >= APART**2:
        return
    involved = [i for i in range(len(columns)) if abs(vectors[i, 0]) > 0.1]
    which = " and ".join(printable(repr(columns[i])) for i in involved)
    alone = tuned[involved[-1]].the
    raise ValueError(
        f"Expected values that vary apart{rows.of_group}; {which} vary only together, so no run "
        f"tells which matters. Train runs in which {alone} alone is another, or tune one of them."
    )
