"""Cleaning in the open: from the rows of one group to its runs, every test in its order."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.records import Axis, Place
from depthmup.records.note import Defect, Excluded, Note
from depthmup.records.printable import printable
from depthmup.records.sizes import size_number, size_text
from depthmup.records.text import counted
from depthmup.statistics import Curves
from depthmup.statistics.pooled import Pooled
from depthmup.statistics.runs import FEWEST_RATES, Runs
from depthmup.statistics.scattered import gather
from depthmup.statistics.slips import slipped_losses, two_units
from depthmup.statistics.strays import usual_steps
from depthmup.statistics.table import curves_of_table
from depthmup.tables import defects, ends
from depthmup.tables.columns import CHANCE, axis_named
from depthmup.tables.question import Question
from depthmup.tables.read import RunTable, distinct, first_of_each
from depthmup.tables.rows import SHOWN, GroupRows
from depthmup.tables.settings import codes_of_sizes, is_seed, random_settings, settings_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Cleaned:
    """The runs of one group, and what a reader must know of them.

    ``steps`` are those of each size, where a column of steps was named; ``settings`` are unnamed
    columns that look like settings, each as one code for every size. ``law`` is that of a random
    design, whose runs stand at the sizes of cells. ``where`` is the filter of its rows.
    ``prefixes`` is the column of the runs of which an axis of steps has checkpoints; ``remedy`` the
    command that most likely mends a group without a fit.
    """

    runs: Runs
    notes: tuple[Note, ...]
    excluded: tuple[Excluded, ...] = ()
    steps: Array = field(default_factory=lambda: np.zeros(0))
    settings: Mapping[str, Index] = field(default_factory=dict)
    law: Pooled | None = None
    where: str = ""
    prefixes: str = ""
    remedy: str = ""


def clean(table: RunTable, question: Question, *, name: str, title: str) -> Cleaned:
    """One group's runs, and what was wrong with its rows."""
    rows = GroupRows(table=table, question=question, name=name)
    defects.numbers(rows)
    prefixes = ends.ended(rows)
    ends.zeros(rows)
    defects.losses_of_no_logarithm(rows)
    # What no option mends is said before what one does.
    _answerable(rows, *rows.sizes(), rows.rate, rows.loss, rows.points())
    names = settings_of(rows, rows.sizes()[1])
    defects.unsound(rows)
    sizes, size = rows.sizes()
    log2_rate, loss = defects.rates_and_losses(rows)
    _answerable(rows, sizes, size, rows.rate, loss, rows.points())
    seed, law, settings = rows.seed, None, codes_of_sizes(rows, size, names)
    if scattered := rows.scattered(size):
        law, sizes, size, log2_rate, log_loss = _gathered(rows, sizes[size], log2_rate, loss)
        loss = np.exp(log_loss)
        seed, settings = np.full_like(seed, -1), {}
        of_cells = distinct(log2_rate, size, ordered=False)
        _answerable(rows, sizes, size, np.exp2(log2_rate), loss, of_cells)
    if noise := random_settings(rows, size):
        rows.findings.append(noise)
    points = distinct(size, log2_rate)[1] if scattered else rows.points()[1]
    curves, shared = curves_of_table(
        *_averaged(size, log2_rate, loss, seed, points), count=len(sizes)
    )
    runs = Runs(
        name=name,
        title=title,
        sizes=tuple(_named(question, values) for values in sizes),
        curves=curves,
        chance=question.reading.chance,
        gathered=len(loss) if scattered else 0,
        seeds=rows.seed_names if shared and len(rows.seed_names) == curves.losses.shape[-1] else (),
    )
    usual = np.zeros(0)
    if rows.counts_steps and not scattered:
        usual = np.zeros(len(sizes))
        usual[size] = usual_steps(size, rows.table.numbers[rows.question.steps])
    notes = (
        *rows.findings,
        *_of_axes(runs),
        *_of_sizes(runs),
        *_of_losses(runs),
        *_of_seeds(rows, curves.losses.shape[-1], len(loss) - points, shared),
    )
    return Cleaned(
        runs=runs,
        notes=notes,
        excluded=tuple(rows.excluded),
        steps=usual,
        settings=settings,
        law=law,
        prefixes=prefixes,
    )


def _averaged(
    size: Index, log2_rate: Array, loss: Array, seed: Index, points: int
) -> tuple[Index, Array, Array, Index]:
    """The runs, those of one size, rate and seed as their mean where most stand several times."""
    if points > len(seed) / 2 or (seed < 0).any():
        return size, log2_rate, loss, seed
    run, count = distinct(size, log2_rate, seed)
    if count > len(run) / 2:
        return size, log2_rate, loss, seed
    first = first_of_each(run, count)
    mean = np.exp(np.bincount(run, weights=np.log(loss)) / np.bincount(run))
    return size[first], log2_rate[first], mean, seed[first]


def own_runs(table: RunTable, question: Question, *, name: str, title: str) -> Cleaned:
    """The runs of one variant of this package's own table, whose every row is a sound run."""
    numbers = table.numbers
    sizes, size = np.unique(
        np.column_stack([numbers[c] for c in question.axes.values()]), axis=0, return_inverse=True
    )
    log2, point = np.unique(np.log2(numbers[question.lr]), return_inverse=True)
    seeds = np.array([float(s) for s in table.names[question.seed]])[table.codes[question.seed]]
    names, column = np.unique(seeds, return_inverse=True)
    losses = np.full((len(sizes), len(log2), int(column.max()) + 1), math.nan)
    losses[size.reshape(-1), point.reshape(-1), column.reshape(-1)] = numbers[question.loss]
    return Cleaned(
        runs=Runs(
            name=name,
            title=title,
            sizes=tuple(_named(question, values) for values in sizes),
            curves=Curves.of(log2.tolist(), losses),
            chance=float(numbers[CHANCE][0]),
            base={axis: number(numbers[column][0]) for axis, column in question.base.items()},
            seeds=tuple(str(number(name)) for name in names),
        ),
        notes=(),
    )


def number(value: float) -> float:
    """Whole numbers as such."""
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else float(value)


def _named(question: Question, values: Sequence[float]) -> dict[str, float]:
    return dict(zip(question.axes, map(number, values), strict=True))


def _answerable(
    rows: GroupRows, sizes: Array, size: Index, rate: Array, loss: Array, points: tuple[Index, int]
) -> None:
    """Refuse rows of too few sizes, few rates, or no finite loss; ``points`` as ``rows.points``."""
    if len(sizes) < rows.question.fewest:
        axes = rows.question.axes
        only = ", ".join(f"{a} {size_number(v)}" for a, v in zip(axes, sizes[0], strict=True))
        several = (n for n in rows.table.others if len(np.unique(rows.table.codes[n])) > 1)
        like = [f"{axis_named(n)}={n}" for n in several if axis_named(n)]
        hint = "Name the columns in which your runs differ as axes"
        if like:
            hint = f"These differ and look like sizes: --axes {printable(shlex.join(like))}"
        raise ValueError(
            f"Expected runs of two sizes or more{rows.of_group}; all have {only}. "
            + (rows.told if rows.excluded else f"{hint}.")
        )
    if not np.isfinite(loss).any():
        raise ValueError(
            f"Expected a run that ended with a finite loss{rows.of_group}; all diverged."
        )
    if rate.min() == rate.max():
        raise ValueError(
            f"Expected at least three values of the {rows.tuned}{rows.of_group}; the column "
            f"{printable(rows.question.lr)!r} has {rate[0]:g} alone."
        )
    rates = np.bincount(size[first_of_each(*points)])
    _several_tuned(rows, sizes, rates)
    if not rows.has_curves(rates, size, rate):
        at = "at two sizes or more, or two at many" if rows.question.fewest > 1 else "at the size"
        raise ValueError(
            f"Expected at least three values of the {rows.tuned} {at}{rows.of_group}; of "
            f"{len(sizes)} sizes fewer have. Is every column named as an axis one?"
        )


def _several_tuned(rows: GroupRows, sizes: Array, rates: Index) -> None:
    """Refuse a value that was tuned at one size and used at the others, which shows no movement."""
    tuned = np.flatnonzero(rates >= FEWEST_RATES)
    if rows.question.fewest < 2 or len(tuned) != 1 or len(sizes) < 2 or (rates > 1).sum() > 1:
        return
    axes = rows.question.axes
    there = ", ".join(f"{a} {size_number(v)}" for a, v in zip(axes, sizes[tuned[0]], strict=True))
    others = counted(len(sizes) - 1, "other size")
    raise ValueError(
        f"Expected several values of the {rows.tuned} at two sizes or more{rows.of_group}; it was "
        f"tuned at {there} alone ({rates[tuned[0]]} values), and the {others} have one each, which "
        f"cannot show where their best one lies. Train three values at another size."
    )


def _gathered(
    rows: GroupRows, values: Array, log2_rate: Array, loss: Array
) -> tuple[Pooled, Array, Index, Array, Array]:
    """The runs of a random design at the sizes of cells, told in a note."""
    # Runs of one cell and rate become its repetitions: in an order by chance, but not that of rows.
    order = np.lexsort((*values.T, log2_rate, loss))
    order = order[np.random.default_rng(0).permutation(len(order))]
    found = gather(values[order], log2_rate[order], np.log(loss[order]))
    if found is None:
        raise ValueError(
            f"Expected runs that show where the best {rows.tuned} is{rows.of_group}; nearly every "
            f"one of the {len(loss):,} has a size of its own, and together they show no valley. "
            f"Train several values of the {rows.tuned} at a few sizes."
        )
    rows.findings.append(
        Note(
            text=f"Nearly every one of the {len(loss):,} runs has a size of its own. Exponents are "
            "fitted to all runs together. Charts, costs and tables of sizes show the runs in "
            f"{len(found[1])} cells of neighbouring sizes, each moved to the middle of its cell "
            "by the fitted law.",
            scheme=rows.name,
        )
    )
    return found


def _of_axes(runs: Runs) -> list[Note]:
    """Axes whose values may be counted in two units; no row says which is right."""
    notes = []
    for axis in runs.sizes[0]:
        if sides := two_units(runs.along(axis)):
            low, high = sides
            text = (
                f"Between {printable(axis)} {size_number(low)} and {size_number(high)} lies a "
                f"factor of {high / low:.3g} without runs, far more than between its other values. "
                "Are all in one unit (sequences or tokens, millions)? They are kept."
            )
            count = int((runs.along(axis) >= high).sum())
            notes.append(Note(text=text, scheme=runs.name, defect=Defect.UNIT, count=count))
    return notes


def _of_sizes(runs: Runs) -> list[Note]:
    """Optima that are bounds, and sizes at which nothing trains."""
    places = runs.optima.places()
    few = (~np.isnan(runs.curves.log2_lrs)).sum(-1) < FEWEST_RATES
    failed = np.array([p is Place.FAILED for p in places]) & ~few
    edge = np.array([p.at_edge for p in places]) & ~few
    notes = (
        _of_some(Defect.FEW, few, runs, "fewer than three rates: not fitted"),
        _of_some(Defect.FAILED, failed, runs, "no rate that trains: not fitted"),
        _of_some(Defect.EDGE, edge, runs, "the best rate at an edge of the grid: a bound"),
    )
    return [note for note in notes if note.count]


def _first(runs: Runs, flags: Flags) -> str:
    """The first of some sizes, as text; of several axes behind their names."""
    sizes = [runs.sizes[i] for i in np.flatnonzero(flags)[:SHOWN]]
    axes = f"{', '.join(runs.sizes[0])}: " if len(runs.sizes[0]) > 1 else ""
    return axes + "; ".join(", ".join(map(size_number, size.values())) for size in sizes)


def _size(size: Mapping[Axis, float]) -> str:
    """A size as text; of one axis its value alone."""
    return size_text(size) if len(size) > 1 else ", ".join(map(size_number, size.values()))


def _of_some(defect: Defect, flags: Flags, runs: Runs, what: str) -> Note:
    count = int(flags.sum())
    has = "has" if count == 1 else "have"
    text = f"{counted(count, 'size')} ({_first(runs, flags)}) {has} {what}."
    return Note(text=text, scheme=runs.name, defect=defect, count=count)


def _of_losses(runs: Runs) -> list[Note]:
    """Sizes whose losses are in another unit: their optimum is where it is, so they are kept."""
    fitted = runs.optima
    centre = np.where(runs.inside, fitted.centre, np.nan)
    slips = slipped_losses(
        np.log2(runs.array), fitted.curves.log2_lrs, fitted.log_losses, centre, fitted.spacing
    )
    return [
        Note(
            text=f"The losses of size "
            f"{_size(runs.sizes[size])} are "
            f"{math.exp(shift):.3g} times the trend of all others: bits for nats, percent, or "
            "runs that train badly? They are kept.",
            scheme=runs.name,
            defect=Defect.UNIT,
            count=1,
            size=tuple(runs.sizes[size].items()),
        )
        for size, shift in slips.items()
    ]


def _of_seeds(rows: GroupRows, seeds: int, averaged: int, shared: bool) -> list[Note]:
    texts, named = [], rows.question.seed
    if named and not shared and seeds == 1:
        texts.append("Seeds are not repeated over rates: every run counts as one of its own.")
    like = [name for name in rows.table.others if is_seed(rows, name)]
    if not named and like:
        column = printable(repr(like[0]))
        texts.append(f"The column {column} looks like a seed: name it with --seed.")
    if seeds == 1 and averaged:
        repeat = "repeats" if averaged == 1 else "repeat"
        texts.append(
            f"{counted(averaged, 'run')} {repeat} the size and rate of another. Averaged: most "
            "rates have one run."
        )
    if seeds == 1:
        texts.append(
            "One run for each rate: how seeds differ is assumed, and a shift that all runs share "
            "cannot be seen."
        )
    return [Note(text=text, scheme=rows.name) for text in texts]
