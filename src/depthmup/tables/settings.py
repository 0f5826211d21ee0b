"""Columns that nobody named: is one a setting in which runs of one size differ?

A column's values decide, not its name: a constant, an identity of each run, a time, a place of the
network, what follows from the rate, and what follows from the loss are none. Names serve to say
which choice a person most likely means.
"""

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from depthmup.posterior.intervals import Array, Index
from depthmup.records.note import Note
from depthmup.records.printable import printable
from depthmup.records.reported import counts_steps
from depthmup.tables.columns import axis_named, propose
from depthmup.tables.names import is_metadata
from depthmup.tables.question import command_of
from depthmup.tables.read import distinct, first_of_each, present_in
from depthmup.tables.rows import GroupRows
from depthmup.tables.where import equalities, is_number

FEWEST = 3
"""Values of a column of numbers recur if each has this many rows on average; texts if two."""

FEWEST_TOLD = 30
"""Runs from which on the scatter that goes with a column is known."""

OUTCOME, SAME = 0.7, 0.9
"""Rank correlation with the loss, within sizes, of a column of numbers that was measured. A setting
may order the losses as well: then the rates say nothing of it, unless it is the loss again.

By ``studies.settings``: at 0.7 none of 400 outcomes is refused and none of 400 settings missed; at
0.8 and 0.9 1% and 15% of outcomes are. Of random searches of 30 runs 0.9 takes 6% of training
losses for noise, 0.95 a quarter. A setting that was paired with rates, all on one side of the best,
orders losses as an outcome does: no threshold tells them apart."""

DESIGNED = 0.2
"""Share of a column's variance that sizes, or rates within sizes, explain, from which it was not
drawn apart from them. By chance 4% of those that 30 runs drew have it, and none of 100 runs; 11%
have 0.1."""

MOST_GROUPS = 40
"""Groups of a table."""

FEWEST_AT_RANDOM = 60
"""Runs of a random design that show a valley, as in ``statistics.scattered``."""

ENOUGH = 20_000
"""Rows that are looked at for a proposal."""

USUAL = ("decay", "wd", "beta", "beta1", "beta2", "momentum", "eps", "epsilon", "warmup")
"""Words of settings that are said to be unchanged, or not, in a question."""

_PLACES = frozenset(
    {"host", "hostname", "node", "ip", "pid", "gpu", "device", "user", "worker", "machine"}
)
"""Last words of columns that most likely say where a run was made: --ignore is proposed."""

ADVICE = (
    "Say what that means: --by makes groups of it, --where picks a value, --ignore says that it "
    "does not matter, --axes makes it an axis."
)


class MixedSettings(ValueError):
    """Runs of one size differ in columns that nobody named.

    ``remedy`` is the command that a person most likely means.
    """

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def settings_of(rows: GroupRows, size: Index, *, advice: str = ADVICE) -> list[str]:
    """The columns of a group that are settings, one value at each size; refused where several."""
    settings, mixed = _scan(rows, size, rows.table.others)
    if mixed:
        raise MixedSettings(*_mixed(mixed, rows, size, advice))
    return settings


def _scan(rows: GroupRows, size: Index, names: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """Columns with one value at each size, and those with several, by how many."""
    settings: list[str] = []
    mixed: dict[str, int] = {}
    count = len(present_in(size))
    for name in names:
        if name in rows.question.ignore or is_seed(rows, name):
            continue
        code, values = distinct(_codes(rows, name))
        axis, usual = axis_named(name), is_usual(name)
        if distinct(size, code)[1] == count:
            # Of a few rows every number recurs or not by chance.
            if values <= max(2, len(code) // 8) or axis or usual:
                settings.append(name)
        elif _is_set(rows, name, size, code, values):
            mixed[name] = values
    return settings, mixed


def _codes(rows: GroupRows, name: str) -> Index:
    """A column's codes, with one for all that trackers write for None."""
    texts = rows.table.names[name]
    nothing = [i for i, text in enumerate(texts) if text.lower() in _NOTHING]
    merged = np.arange(len(texts))
    merged[nothing] = nothing[:1]
    return np.asarray(merged[rows.table.codes[name]])


def is_seed(rows: GroupRows, name: str) -> bool:
    """Whether a column is called a seed and holds whole numbers: that is told, not refused."""
    texts = rows.table.names[name]
    whole = len(texts) > 1 and all(t.isdecimal() or not t for t in texts)
    return whole and name.lower().endswith("seed")


def _is_set(rows: GroupRows, name: str, size: Index, code: Index, values: int) -> bool:
    """Whether a column of several values at one size was set, by its values alone."""
    names, codes = rows.table.names[name], rows.table.codes[name]
    texts = [names[c] for c in present_in(codes) if names[c].lower() not in _NOTHING]
    numbers = all(map(is_number, texts))
    if texts and is_metadata(texts):
        return False
    # A run's own identity, a measurement, or numbers at random.
    if not _recurs(rows, name):
        return False
    if _follows(rows, name) or _marks_losses(rows, name):
        return False
    if not numbers or values <= 4:
        return True
    amounts = _amounts(rows, name)
    told = np.isfinite(rows.loss) & np.isfinite(amounts)
    of_size = distinct(size[told])[0]
    column = _ranks(amounts[told], of_size)
    by_rate = _explained(_powers(_ranks(rows.rate[told], of_size)), column, of_size)
    return by_rate < DESIGNED or _order(amounts, rows.loss, size) < OUTCOME


def _recurs(rows: GroupRows, name: str) -> bool:
    """Whether the values of a column stand in several rows each."""
    code, values = distinct(_codes(rows, name))
    texts = rows.table.names[name]
    numbers = all(is_number(t) for t in texts if t.lower() not in _NOTHING)
    return values <= max(2, len(code) / (FEWEST if numbers else 2))


def _amounts(rows: GroupRows, name: str) -> Array:
    """A column of labels as numbers, NaN where one is none."""
    texts = rows.table.names[name]
    values = np.array([float(text) if is_number(text) else math.nan for text in texts])
    return np.asarray(values[rows.table.codes[name]])


def codes_of_sizes(rows: GroupRows, size: Index, settings: Sequence[str]) -> dict[str, Index]:
    """The value of each setting at every size, as a code."""
    first = first_of_each(size, int(size.max()) + 1)
    return {name: rows.table.codes[name][first] for name in settings}


def is_usual(column: str) -> bool:
    """Whether a column looks like a usual setting of training."""
    return any(word in USUAL for word in column.lower().replace(".", "_").split("_"))


def _follows(rows: GroupRows, name: str) -> bool:
    """Whether a column divides the tuned rates into intervals, as their logarithm or rank does.

    That each rate has one value does not suffice: rates drawn at random stand there once, and two
    grids that interleave may belong to two optimizers. Nor do intervals that are called by words:
    those are recipes, each with rates of its own.
    """
    names, codes = rows.table.names[name], rows.table.codes[name]
    present = present_in(codes)
    words = not all(_is_value(names[c]) for c in present)
    if words and len(present) < len(np.unique(rows.rate)):
        return False
    number, rates = distinct(rows.rate)
    pair, pairs = distinct(number, codes)
    if pairs != rates:
        return False
    of_rate = codes[first_of_each(pair, pairs)]
    return int((np.diff(of_rate) != 0).sum()) == len(present) - 1


def _marks_losses(rows: GroupRows, name: str) -> bool:
    """Whether a column flags the runs that diverged, or answers whether a loss is below a bound."""
    names, codes = rows.table.names[name], rows.table.codes[name]
    present = present_in(codes)
    if len(present) != 2:
        return False
    flag, loss = codes == present[1], rows.loss
    if (flag == ~np.isfinite(loss)).all() or (flag == np.isfinite(loss)).all():
        return True
    ends = [(loss[f].min(), loss[f].max()) for f in (flag, ~flag)]
    apart = ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]
    return apart and all(names[c].lower() in _ANSWERS for c in present)


_NOTHING = ("", "none", "null", "{}", "<na>", "nan")
_ANSWERS = ("", "true", "false", "yes", "no", "on", "off", "none", "null", "n/a", "na", "nan")


def _is_value(text: str) -> bool:
    """Whether a label is a number, an answer or nothing, and no recipe's name."""
    return is_number(text) or text.lower() in _ANSWERS


def _ranks(values: Array, size: Index) -> Array:
    """Ranks within each size, from -1/2 to 1/2."""
    order = np.lexsort((values, size))
    place = np.empty(len(values))
    place[order] = np.arange(len(values))
    count = np.bincount(size)
    first = np.append(0, np.cumsum(count)[:-1])
    tied = distinct(size, values)[0]
    place = np.bincount(tied, weights=place)[tied] / np.bincount(tied)[tied]  # ties share a rank
    return np.asarray((place - first[size] + 0.5) / count[size] - 0.5)


def _order(values: Array, loss: Array, size: Index) -> float:
    """The absolute rank correlation of a column with the loss within sizes."""
    told = np.isfinite(values) & np.isfinite(loss)
    if told.sum() < FEWEST:
        return 0.0
    of_size = distinct(size[told])[0]
    one, other = _ranks(values[told], of_size), _ranks(loss[told], of_size)
    scale = math.sqrt(float(one @ one) * float(other @ other))
    return abs(float(one @ other)) / scale if scale else 0.0


def random_settings(rows: GroupRows, size: Index) -> Note | None:
    """Columns of numbers that were drawn for each run apart from size and rate: they are noise.

    How much of the losses' scatter goes with them is judged beside a parabola in the rate.
    """
    told = np.isfinite(rows.loss)
    if told.sum() < FEWEST_TOLD:
        return None
    # Of few runs numbers at random have few values.
    few = (n for n in rows.table.others if not is_seed(rows, n) and not _recurs(rows, n))
    measures = {**rows.table.measures, **{name: _amounts(rows, name) for name in few}}
    if not measures:
        return None
    of_size = distinct(size[told])[0]
    x, y = _ranks(rows.rate[told], of_size), np.log(rows.loss[told])
    plan = _powers(x)
    found, terms = [], []
    for name, values in measures.items():
        if name in rows.question.ignore or not np.isfinite(values[told]).all():
            continue
        column = _ranks(values[told], of_size)
        several = distinct(of_size, column)[1] > 3 * (int(of_size.max()) + 1)
        if not several or _order(values, rows.loss, size) > SAME:
            continue
        in_order = abs(float(np.corrcoef(values[told], np.arange(len(x)))[0, 1])) > 0.9
        overall = _ranks(values[told], np.zeros(len(x), np.int64))
        by_size = _explained(np.zeros((len(x), 1)), overall, of_size)
        if in_order or max(by_size, _explained(plan, column, of_size)) > DESIGNED:
            continue
        found.append(name)
        terms += [column, column**2, column * x]
    if not found:
        return None
    before = 1 - _explained(plan, y, of_size)
    after = 1 - _explained(np.column_stack([plan, *terms]), y, of_size)
    share = max(0.0, 1 - after / before) if before > 0 else 0.0
    shown = ", ".join(printable(name) for name in found[:10])
    are, they = ("differs", "It is") if len(found) == 1 else ("differ", "They are")
    return Note(
        text=f"{shown} {are} from run to run and nobody named {'it' if len(found) == 1 else 'them'}"
        f". {they} noise in the answer: {share:.0%} of the scatter of losses at one size and rate.",
        scheme=rows.name,
    )


def _powers(x: Array) -> Array:
    """Terms of the fourth degree, which follow any valley."""
    return np.column_stack([x, x**2, x**3, x**4])


def _explained(terms: Array, y: Array, size: Index) -> float:
    """The share of a variance that a regression within sizes explains, less what chance does."""
    count = np.bincount(size)

    def within(column: Array) -> Array:
        return np.asarray(column - (np.bincount(size, weights=column) / count)[size])

    inner = np.column_stack([within(column) for column in terms.T])
    of_y = within(y)
    total = float(((y - y.mean()) ** 2).sum())
    rest = of_y - inner @ np.linalg.lstsq(inner, of_y, rcond=None)[0]
    freedom = len(y) - len(count) - terms.shape[1]
    if total == 0 or freedom < 1:
        return 0.0
    return float(1 - (rest @ rest) / freedom / (total / (len(y) - 1)))


def _mixed(mixed: dict[str, int], rows: GroupRows, size: Index, advice: str) -> tuple[str, str]:
    """What is said of mixed settings, and the command that is most likely meant."""
    name, values = next(iter(mixed.items()))
    if not rows.question.steps and propose([name]).get("steps"):
        advice += _of_steps(name, rows)
    options = _remedy(list(mixed), rows, size)
    by = options["by"]
    if len(by) == 1 < len(mixed) and not options["where"] and not options["ignore"]:
        others = "the other follows" if len(mixed) == 2 else f"the other {len(mixed) - 1} follow"
        use = f"Use --by {printable(shlex.quote(by[0]))}: {others} from it."
        advice = f"{use} Or {advice[0].lower()}{advice[1:]}"
    remedy = command_of(rows.question, **options)
    quoted = [printable(repr(n)) for n in list(mixed)[1:4]]
    more = f" and {len(mixed) - 4} more" if len(mixed) > 4 else ""
    others = f", and also in {', '.join(quoted)}{more}" if quoted else ""
    text = (
        f"Runs of one size differ in {printable(repr(name))}, which takes {values} "
        f"values{others}{rows.of_group}. {advice} Most likely: {printable(remedy)}"
    )
    return text, remedy


def _remedy(mixed: list[str], rows: GroupRows, size: Index) -> dict[str, list[str]]:
    """Options with which the same question is answered: one column's after the other.

    After each choice the columns are looked at anew, as most follow from a few. A choice that would
    leave less than half of the rows in groups with curves of their own is not taken.
    """
    some = np.arange(0, len(size), 1 + len(size) // ENOUGH)
    keep = np.zeros(len(size), bool)
    keep[some] = True
    parts = [(replace(rows, table=rows.table.where(keep)), size[some])]
    options: dict[str, list[str]] = {"by": [], "where": [], "ignore": []}
    while mixed:
        # Groups first, of most values, whose names say most.
        counts = {n: max(len(np.unique(part.table.codes[n])) for part, _ in parts) for n in mixed}
        for name in sorted(mixed, key=lambda n: -counts[n]):
            split = [] if _is_place(name) or counts_steps(name) else _split(parts, name)
            few = 1 < len(split) <= MOST_GROUPS
            if few and _answered(split) >= len(split) / 2 and _rows(split) >= _rows(parts) / 2:
                options["by"].append(name)
                parts = split
                break
        else:
            name = mixed[0]
            value, picked = ("", []) if _is_place(name) else _picked(parts, name)
            if value and _rows(picked) >= max(1, _rows(parts) / 2):
                options["where"].append(value)
                parts = picked
            else:
                options["ignore"].append(name)
        left = [n for n in mixed if not any(n in chosen for chosen in options.values())]
        mixed = [n for n in left if any(_scan(part, of_size, [n])[1] for part, of_size in parts)]
    return options


Parts = list[tuple[GroupRows, Index]]


def _split(parts: Parts, name: str) -> Parts:
    """Groups by the values of a column."""
    return [
        (replace(part, table=part.table.where(code == c)), size[code == c])
        for part, size in parts
        for code in [part.table.codes[name]]
        for c in np.unique(code)
    ]


def _picked(parts: Parts, name: str) -> tuple[str, Parts]:
    """A filter by the value that most rows have, or by the largest of a count of steps."""
    codes = np.concatenate([part.table.codes[name] for part, _ in parts])
    names = parts[0][0].table.names[name]
    if counts_steps(name):
        code = max(np.unique(codes), key=lambda c: float(names[c]) if is_number(names[c]) else -1.0)
    else:
        code = np.bincount(codes).argmax()
        if (codes == code).mean() <= 0.5:
            return "", []
    kept = [
        (replace(part, table=part.table.where(keep)), size[keep])
        for part, size in parts
        if (keep := part.table.codes[name] == code).any()
    ]
    return equalities([(name, names[code])]), kept


def _answered(parts: Parts) -> int:
    """Groups in which a question of size can be answered."""
    return sum(_has_answer(*part) for part in parts)


def _rows(parts: Parts) -> int:
    """Rows of these groups."""
    return sum(len(part[1]) for part in parts if _has_answer(*part))


def _has_answer(part: GroupRows, size: Index) -> bool:
    size = distinct(size)[0]
    if len(size) < FEWEST_AT_RANDOM and part.scattered(size):
        return False
    rates = np.bincount(size[first_of_each(*distinct(part.rate, size, ordered=False))])
    return part.has_curves(rates, size, part.rate)


def _is_place(name: str) -> bool:
    *_, word = filter(None, re.split(r"[\W_]+", name.lower())) or ("",)
    return word in _PLACES


def _of_steps(name: str, rows: GroupRows) -> str:
    """What a column of steps may be: points of a log, or lengths of runs."""
    values = (rows.table.names[name][code] for code in np.unique(rows.table.codes[name]))
    last = max(filter(is_number, values), key=float, default="")
    keep = equalities([(name, last)]) if last else ""
    ends = f"--where {printable(shlex.quote(keep))} keeps the ends of logs, " if keep else ""
    column = printable(shlex.quote(name))
    return f" If it counts steps, {ends}--steps {column} finds runs that were cut short."
