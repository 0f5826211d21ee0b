"""Cleaning in the open: what is wrong with the rows of one group, and what became of each.

Nothing is dropped without a word: every row that is left out has a reason, every test that found
something is a ``Finding`` with its count and a sentence.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from depthmup.fitting.columns import Columns
from depthmup.fitting.read import Table
from depthmup.records.fit import EXCLUDED, Defect, Finding
from depthmup.records.printable import printable
from depthmup.statistics import Optima, optima
from depthmup.statistics.cleaning import (
    CUT,
    FINE,
    beyond_sense,
    far_above,
    impossible,
    slipped_losses,
    slipped_rates,
    usual_steps,
)
from depthmup.statistics.intervals import Array, Flags, Index
from depthmup.statistics.table import Cells, curves_of, merged, sizes_of

SHOWN_ROWS = 10
FEWEST_RATES = 3
"""With fewer a curve has no optimum."""

CLEAR_RATES = 5
"""With as many, no farther apart than an octave, a curve shows its best loss."""

FEWEST_RUNS = 8
"""Runs beyond one of each size and one of each axis, with which all sizes together have a law."""

MOST_SIZES = 500
"""Sizes of one group; an axis of more values is no axis."""

SETTING_SHARE = 8
"""A setting's values recur: it has at most one for so many rows."""

DIGITS = 6
"""Significant digits from which on two runs of different seeds do not end with one loss."""

COUNT_OFF = 0.05
"""How far tokens may be from batch x steps x a constant, as a fraction."""

_METADATA = (
    "status", "state", "host", "name", "id", "user", "group", "tag", "created", "updated", "date",
    "time", "start", "end", "duration", "runtime", "path", "dir", "commit", "version", "notes",
    "gpu", "device", "number", "index", "rank", "trial", "run", "uri", "url", "seed", "epoch",
    "done", "pid", "node_ip", "hostname", "diverged", "finished",
)  # fmt: skip
"""Last words of columns that tell where or when a run was made, not how."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Excluded:
    """A row that is left out, and why."""

    row: int
    group: str
    defect: Defect
    reason: str


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


@dataclass
class _Work:
    """Rows that are left, and what was said about the others."""

    table: Table
    name: str
    keep: frozenset[Defect]
    excluded: list[Excluded] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def tell(self, defect: Defect, flags: Flags, sentence: str, reasons: Any = None) -> Flags:
        """Count and list flagged rows.

        Args:
            defect: what is wrong with them.
            flags: of the rows of the table.
            sentence: the finding, as it follows the number of runs.
            reasons: one for each row of the table; the sentence unless given.

        Returns:
            The flags of those that are to be left out.
        """
        count = int(flags.sum())
        if not count:
            return flags
        out = defect in EXCLUDED and defect not in self.keep
        rows = self.table.rows[flags]
        done = "Left out" if out else "Kept"
        if defect is Defect.DIVERGED:
            done = "Taken as diverged"
        elif defect is Defect.REPEATED:
            done = "Averaged"
        self.findings.append(
            Finding(
                defect=defect,
                count=count,
                sentence=f"{_runs(count)} {sentence}. {done}.",
                rows=tuple(int(row) for row in rows[:SHOWN_ROWS]),
            )
        )
        if not out:
            return np.zeros(len(flags), bool)
        texts = (
            [sentence] * count if reasons is None else [reasons[i] for i in np.flatnonzero(flags)]
        )
        self.excluded += [
            Excluded(row=int(row), group=self.name, defect=defect, reason=text)
            for row, text in zip(rows, texts, strict=True)
        ]
        return flags

    def drop(self, flags: Flags) -> None:
        self.table = self.table.where(~flags)
        if not len(self.table):
            told = " ".join(finding.sentence for finding in self.findings)
            raise ValueError(f"No run is left{_of(self.name)}. {told}")


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
    work = _Work(table=table, name=name, keep=keep)
    _numbers(work, columns, tuned)
    sizes, size = _sizes(work, columns)
    _repeats(work, columns, size)
    sizes, size = _sizes(work, columns)
    settings = _settings(work, columns, size, len(sizes))
    size = _impossible(work, columns, size, tuned)
    size = _steps(work, columns, _tokens(work, columns, size))
    size = _unsaid(work, columns, size)
    sizes, size = _sizes(work, columns)
    log2_rate, loss = _rates_and_losses(work, columns, size)
    if len(sizes) < 2:
        only = ", ".join(f"{a} {v:g}" for a, v in zip(columns.axes, sizes[0], strict=True))
        raise ValueError(
            f"Expected runs of two sizes or more{_of(name)}; all have {only}. Name the columns in "
            "which your runs differ as axes."
        )
    if not np.isfinite(loss).any():
        raise ValueError(f"Expected a run that ended with a finite loss{_of(name)}; all diverged.")
    if len(np.unique(log2_rate)) < 2:
        raise ValueError(
            f"Expected at least three values of the {tuned}{_of(name)}; the column "
            f"{printable(columns.lr)!r} has {2.0 ** log2_rate[0]:g} alone."
        )
    seed = _seeds(work, columns)
    cells = curves_of(size, log2_rate, loss, seed, len(sizes))
    rates = (~np.isnan(cells.curves.log2_lrs)).sum(-1)
    pooled = (rates - 1).sum() >= FEWEST_RUNS + len(columns.axes)
    if (rates >= FEWEST_RATES).sum() < 2 and not (pooled and len(np.unique(log2_rate)) > 2):
        raise ValueError(
            f"Expected at least three values of the {tuned} at two sizes or more, or two at many"
            f"{_of(name)}; of {len(sizes)} sizes fewer have. Is every column named as an axis one?"
        )
    fitted = optima(cells.curves, chance=chance)
    slips = _slips(work, sizes, size, fitted, tuned)
    if slips.any():
        work.drop(slips)
        return _finished(work, columns, chance, settings_of=settings)
    return _group(work, columns, sizes, size, cells, fitted, settings)


def _finished(
    work: _Work, columns: Columns, chance: float, settings_of: Mapping[str, Array]
) -> Group:
    """The group once slices of another unit are out."""
    sizes, size = _sizes(work, columns)
    log2_rate, loss = _rates_and_losses(work, columns, size, again=True)
    cells = curves_of(size, log2_rate, loss, _seeds(work, columns), len(sizes))
    fitted = optima(cells.curves, chance=chance)
    again = _settings(work, columns, size, len(sizes))
    return _group(work, columns, sizes, size, cells, fitted, again or settings_of)


def _numbers(work: _Work, columns: Columns, tuned: str) -> None:
    """Rows whose sizes, rates or losses are missing or cannot be."""
    numbers = work.table.numbers
    loss = numbers[columns.loss]
    unsaid = work.table.unsaid[columns.loss]
    named = {**{a: numbers[c] for a, c in columns.axes.items()}, tuned: numbers[columns.lr]}
    if columns.steps:
        named["steps"] = numbers[columns.steps]
    lacking = np.isnan(loss) & ~unsaid
    reasons = np.where(lacking, "no loss", "").astype(object)
    for what, values in named.items():
        empty = np.isnan(values)
        reasons[empty & (reasons == "")] = f"no {what}"
        lacking |= empty
    out = work.tell(Defect.MISSING, lacking, "lack a number", reasons)
    bad = np.zeros(len(loss), bool)
    for what, values in named.items():
        wrong = ~lacking & ~((values > 0) & np.isfinite(values))
        reasons[wrong & ~bad] = f"{what} is not positive"
        bad |= wrong
    out = out | work.tell(
        Defect.NOT_POSITIVE, bad, f"have a size or a {tuned} that is not positive", reasons
    )
    below = ~out & ~bad & (loss <= 0)
    # Logarithms are fitted: what is not positive cannot be kept.
    sentence = "have a loss of zero or below, which no cross-entropy has"
    work.keep = work.keep - {Defect.MISSING, Defect.NOT_POSITIVE}
    exempt, work.keep = work.keep, work.keep - {Defect.IMPOSSIBLE}
    out = out | bad | work.tell(Defect.IMPOSSIBLE, below, sentence)
    work.keep = exempt
    work.drop(out)


def _sizes(work: _Work, columns: Columns) -> tuple[Array, Index]:
    values = np.column_stack([merged(work.table.numbers[c]) for c in columns.axes.values()])
    sizes, size = sizes_of(values)
    if len(sizes) > MOST_SIZES:
        axis = max(columns.axes, key=lambda a: len(np.unique(work.table.numbers[columns.axes[a]])))
        count = len(np.unique(work.table.numbers[columns.axes[axis]]))
        raise ValueError(
            f"Expected at most {MOST_SIZES} sizes{_of(work.name)}; got {len(sizes):,}. The column "
            f"{printable(columns.axes[axis])!r} ({axis}) has {count:,} values: is it an axis?"
        )
    return sizes, size


def _seeds(work: _Work, columns: Columns) -> Index:
    if not columns.seed:
        return np.full(len(work.table), -1, np.int64)
    return np.unique(work.table.codes[columns.seed], return_inverse=True)[1].reshape(-1)


def _repeats(work: _Work, columns: Columns, size: Index) -> None:
    """Rows that stand twice, and runs that do with different losses."""
    table = work.table
    rate, loss = table.numbers[columns.lr], table.numbers[columns.loss]
    seed = _seeds(work, columns)
    key = np.column_stack([size, rate, seed])
    _, run, count = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    run = run.reshape(-1)
    repeated = count[run] > 1
    if not repeated.any():
        return
    order = np.lexsort((table.rows, loss, run))
    same = np.zeros(len(run), bool)
    one = (run[order][1:] == run[order][:-1]) & (loss[order][1:] == loss[order][:-1])
    same[order[1:]] = one
    if not columns.seed:
        # Two seeds may end with one loss if it was printed with few digits.
        exact = np.zeros(len(run), bool)
        marked = np.flatnonzero(same)
        exact[marked] = [_digits(v) >= DIGITS for v in loss[marked]]
        same &= exact
    out = work.tell(Defect.DUPLICATE, same, "stand in the table before, with the same loss")
    if columns.seed:
        left = ~out
        _, again, counts = np.unique(key[left], axis=0, return_inverse=True, return_counts=True)
        twice = np.zeros(len(run), bool)
        twice[left] = counts[again.reshape(-1)] > 1
        sentence = "repeat a run of the same size, rate and seed with another loss"
        work.tell(Defect.REPEATED, twice, sentence)
    work.drop(out)


def _digits(value: float) -> int:
    if not math.isfinite(value):
        return 0
    return len(f"{value:.15g}".split("e")[0].replace(".", "").replace("-", "").strip("0"))


def _settings(work: _Work, columns: Columns, size: Index, count: int) -> dict[str, Array]:
    """Unnamed columns that look like settings, each as one code for every size.

    Raises:
        ValueError: runs of one size differ in one of them.
    """
    settings: dict[str, Array] = {}
    mixed: dict[str, int] = {}
    rate = np.unique(work.table.numbers[columns.lr], return_inverse=True)[1].reshape(-1)
    for name in work.table.others:
        last = name.lower().replace(".", "_").replace("/", "_").split("_")
        if name in columns.ignore or any(word in _METADATA for word in last):
            continue
        codes = work.table.codes[name]
        distinct = len(np.unique(codes))
        if distinct > max(2, len(codes) // SETTING_SHARE):
            continue
        pairs = np.unique(np.stack([size, codes]), axis=1)
        if pairs.shape[1] == count:
            settings[name] = pairs[1]
        elif len(np.unique(np.stack([rate, codes]), axis=1)[0]) > len(np.unique(rate)):
            mixed[name] = distinct  # else it follows the tuned rate, as its logarithm does
    if mixed:
        name, distinct = next(iter(mixed.items()))
        others = "".join(f", and {printable(repr(n))} too" for n in list(mixed)[1:4])
        raise ValueError(
            f"Runs of one size differ in {printable(repr(name))}, which takes {distinct} "
            f"values{others}{_of(work.name)}. Say what that means: --by makes groups of it, "
            "--where picks a value, --ignore says that it does not matter, --axes makes it an axis."
        )
    return settings


def _impossible(work: _Work, columns: Columns, size: Index, tuned: str) -> Index:
    """Rates beyond sense, losses far below all others."""
    rate = np.log2(work.table.numbers[columns.lr])
    beyond = beyond_sense(rate)
    reasons = [f"{tuned} {2.0**r:.3g} lies alone" for r in rate]
    sentence = f"have a {tuned} more than 256 times beyond all others"
    out = work.tell(Defect.RATE, beyond, sentence, reasons)
    loss = work.table.numbers[columns.loss]
    with np.errstate(divide="ignore"):
        low = impossible(size, np.where(np.isnan(loss), math.inf, np.log(loss)))
    reasons = [f"a loss of {v:.3g}, far below every other run" for v in loss]
    sentence = "end far below every other run, as no neighbour does"
    out = out | work.tell(Defect.IMPOSSIBLE, low, sentence, reasons)
    work.drop(out)
    return size[~out]


def _tokens(work: _Work, columns: Columns, size: Index) -> Index:
    """Slices that count tokens otherwise than batch x steps x length, all by one factor."""
    if not columns.steps or not {"batch", "tokens"} <= columns.axes.keys():
        return size
    numbers = work.table.numbers
    batch, tokens = (numbers[columns.axes[axis]] for axis in ("batch", "tokens"))
    ratio = np.log(tokens / (batch * numbers[columns.steps]))
    factor = ratio - float(np.median(ratio))
    _, which, runs = np.unique(
        np.round(factor / COUNT_OFF), return_inverse=True, return_counts=True
    )
    # A run that was cut short has a factor of its own; of a slice all rows have one.
    off = (np.abs(factor) > COUNT_OFF) & (runs[which.reshape(-1)] >= 3)
    if off.mean() > 1 / 3:
        return size
    reasons = [f"tokens are {math.exp(f):.3g} times batch x steps x length" for f in factor]
    sentence = "count their tokens otherwise than batch x steps x length"
    out = work.tell(Defect.UNIT, off, sentence, reasons)
    work.drop(out)
    return size[~out]


def _steps(work: _Work, columns: Columns, size: Index) -> Index:
    """Runs that were cut short."""
    if not columns.steps:
        return size
    if columns.steps in columns.axes.values():
        return size
    steps, loss = work.table.numbers[columns.steps], work.table.numbers[columns.loss]
    usual = usual_steps(size, steps)
    finite = np.isfinite(loss)
    usually = (np.abs(steps / usual - 1) <= CUT) | ~finite
    if usually.mean() < 0.5:
        raise ValueError(
            f"Expected most runs of a size to have one number of steps{_of(work.name)}; in "
            f"{printable(repr(columns.steps))} they differ. Make it an axis: --axes "
            f"steps={printable(columns.steps)}."
        )
    reasons = [
        f"{s:g} steps, where others of its size have {u:g}"
        for s, u in zip(steps, usual, strict=True)
    ]
    sentence = "were trained for another number of steps than most of their size"
    out = work.tell(Defect.SHORT, ~usually, sentence, reasons)
    work.drop(out)
    return size[~out]


def _unsaid(work: _Work, columns: Columns, size: Index) -> Index:
    """Runs without a loss or a word on why: diverged if smaller rates trained better."""
    table = work.table
    rate, loss = table.numbers[columns.lr], table.numbers[columns.loss]
    unsaid = np.isnan(loss)
    if not unsaid.any():
        return size
    finite = np.where(np.isfinite(loss), loss, math.inf)
    best = np.full(int(size.max()) + 1, math.inf)
    np.minimum.at(best, size, finite)
    at = np.full(len(best), math.inf)
    lowest = np.isfinite(finite) & (finite == best[size])
    np.minimum.at(at, size[lowest], rate[lowest])
    diverged = unsaid & (rate > at[size])
    losses = np.where(diverged, math.inf, loss)
    work.table = replace(table, numbers={**table.numbers, columns.loss: losses})
    sentence = "have no loss, at rates no larger than their size's best"
    out = work.tell(Defect.MISSING, unsaid & ~diverged, sentence)
    work.drop(out)
    return size[~out]


def _rates_and_losses(
    work: _Work, columns: Columns, size: Index, *, again: bool = False
) -> tuple[Array, Array]:
    """log2 rates, and losses that are infinite where runs diverged; nothing is told twice."""
    table = work.table
    rate, loss = np.log2(table.numbers[columns.lr]), table.numbers[columns.loss]
    above = far_above(size, rate, np.log(loss))
    diverged = above | np.isinf(loss)
    if not again:
        far = int(above.sum())
        also = (
            f", {far} of them with a finite loss far above what smaller rates leave" if far else ""
        )
        work.tell(Defect.DIVERGED, diverged, f"diverged{also}")
    return rate, np.where(diverged, math.inf, loss)


def _slips(work: _Work, sizes: Array, size: Index, fitted: Optima, tuned: str) -> Flags:
    """Runs of sizes whose rates or losses are in another unit than the others'."""
    positions, x = np.log2(sizes), fitted.curves.log2_lrs
    tried = (~np.isnan(x)).sum(-1)
    inside = np.array([location == "interior" for location in fitted.places()]) & (
        tried >= FEWEST_RATES
    )
    out = np.zeros(len(size), bool)
    centre = np.where(inside, fitted.centre, np.nan)
    low, high = (
        np.where(tried >= FEWEST_RATES, end(x, -1), np.nan) for end in (np.nanmin, np.nanmax)
    )
    for slip in slipped_rates(positions, centre, low, high, fitted.spacing):
        where = ", ".join(f"{v:g}" for v in sizes[slip.size])
        sentence = (
            f"of size {where} have a best {tuned} {2.0**slip.shift:.3g} times that of the law of "
            "all others: another unit"
        )
        out = out | work.tell(Defect.UNIT, size == slip.size, sentence)
    finite = np.where(np.isfinite(fitted.log_losses), fitted.log_losses, np.inf).min(-1)
    lowest = np.where(np.isfinite(finite) & (tried >= FEWEST_RATES), finite, np.nan)
    sure = inside & ~_ends(positions) & (tried >= CLEAR_RATES) & (fitted.spacing <= FINE)
    for slip in slipped_losses(positions, fitted.log_loss, lowest, inside, fitted.spacing):
        where = ", ".join(f"{v:g}" for v in sizes[slip.size])
        sentence = (
            f"of size {where} have losses {math.exp(slip.shift):.3g} times the trend of all "
            "others: bits for nats, or percent?"
        )
        flags = (size == slip.size) & ~out
        if not sure[slip.size]:
            # Training may also break down at an end of the range, or be far from its optimum.
            exempt, work.keep = work.keep, work.keep | {Defect.UNIT}
            work.tell(Defect.UNIT, flags, sentence + " Or runs that train badly")
            work.keep = exempt
            continue
        out = out | work.tell(Defect.UNIT, flags, sentence)
    return out


def _ends(positions: Array) -> Flags:
    """Whether a size is the smallest or the largest along every axis that varies."""
    varied = positions[:, np.ptp(positions, axis=0) > 0]
    return np.asarray(((varied == varied.min(0)) | (varied == varied.max(0))).all(-1))


def _group(
    work: _Work,
    columns: Columns,
    sizes: Array,
    size: Index,
    cells: Cells,
    fitted: Optima,
    settings: Mapping[str, Array],
) -> Group:
    steps = np.zeros(0)
    if columns.steps and columns.steps not in columns.axes.values():
        usual = usual_steps(size, work.table.numbers[columns.steps])
        steps = np.zeros(len(sizes))
        steps[size] = usual
    return Group(
        name=work.name,
        axes=tuple(columns.axes),
        sizes=sizes,
        cells=cells,
        fitted=fitted,
        runs=len(work.table),
        findings=(*work.findings, *_of_sizes(sizes, fitted)),
        excluded=tuple(work.excluded),
        notes=_notes(work, columns, cells),
        steps=steps,
        settings=settings,
    )


def _of_sizes(sizes: Array, fitted: Optima) -> list[Finding]:
    """Optima that are bounds, and sizes at which nothing trains."""
    places = fitted.places()
    tried = (~np.isnan(fitted.curves.log2_lrs)).sum(-1)
    findings = []
    kinds = {
        Defect.FAILED: ("failed",),
        Defect.EDGE: ("low edge", "high edge"),
    }
    few = tried < FEWEST_RATES
    if few.any():
        findings.append(_sizes_finding(Defect.FEW, few, sizes, "have fewer than three rates"))
    for defect, names in kinds.items():
        flags = np.array([p in names for p in places]) & ~few
        said = {
            Defect.FAILED: "have no rate that trains",
            Defect.EDGE: "have their best rate at an edge of their grid: a bound, no optimum",
        }[defect]
        if flags.any():
            findings.append(_sizes_finding(defect, flags, sizes, said))
    return findings


def _sizes_finding(defect: Defect, flags: Flags, sizes: Array, said: str) -> Finding:
    which = "; ".join(", ".join(f"{v:g}" for v in s) for s in sizes[flags][:SHOWN_ROWS])
    count = int(flags.sum())
    return Finding(
        defect=defect,
        count=count,
        sentence=f"{count} size{'s' if count > 1 else ''} ({which}) {said}. Not fitted.",
    )


def _notes(work: _Work, columns: Columns, cells: Cells) -> tuple[str, ...]:
    notes = []
    if columns.seed and not cells.shared and cells.seeds == 1:
        notes.append("Seeds are not repeated over rates: every run counts as one of its own.")
    if not columns.seed and (like := [n for n in work.table.others if n.lower().endswith("seed")]):
        notes.append(
            f"The column {printable(repr(like[0]))} looks like a seed: name it with --seed."
        )
    if cells.seeds == 1:
        notes.append(
            "One run for each rate: intervals are from the scatter of sizes and of points about "
            "their curves, and cannot see a shift that all runs share."
        )
    return tuple(notes)


def _runs(count: int) -> str:
    return f"{count:,} run{'s' if count != 1 else ''}"


def _of(name: str) -> str:
    return f" in the group {printable(name)}" if name else ""
