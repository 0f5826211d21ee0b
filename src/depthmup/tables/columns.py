"""Which column of a table stands for what: the person says it; likely ones are only proposed."""

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from depthmup.records import TUNED
from depthmup.records.grammar import either
from depthmup.records.printable import printable
from depthmup.records.reported import Wanted, last_part
from depthmup.rules import canonical
from depthmup.rules.run_rule import CALLED

LIKELY: Mapping[str, tuple[str, ...]] = {
    "lr": ("lr", "learning_rate", "base_lr", "max_lr", "peak_lr", "params_lr", "log2_lr"),
    "loss": (
        "final_loss", "loss", "val_loss", "valid_loss", "eval_loss", "train_loss", "test_loss",
        "final_val_loss", "validation_loss", "metrics.loss", "value", "objective",
    ),
    "seed": ("seed", "random_seed", "rng_seed"),
    **{
        axis: (axis, *(name for name in CALLED[axis] if len(name) > 1))
        for axis in ("depth", "width", "batch", "tokens", "parameters", "steps")
    },
}  # fmt: skip
"""Names under which trainers and trackers write a column, most usual first."""

_OPTIONS = ("lr", "loss", "seed")

_BETTER_HIGHER = {"acc", "accuracy", "auc", "bleu", "f1", "reward", "top1", "top5"}
_BETTER_LOWER = {"err", "error", "loss", "neg", "negative"}
"""Words of columns that tell which way is better."""

SHOWN = 20
"""Column names of a table that a message lists."""


SCHEME, TITLE, RATES, CHANCE, BASE = "scheme", "title", "rates", "chance", "base_"
"""Columns that a table of this package's runs has, beside those of the runs themselves."""


def own_columns(names: Sequence[str]) -> dict[str, Any]:
    """What the columns of ``report.to_pandas("runs")`` stand for; nothing of another table."""
    tuned = next((what for what in TUNED if what.column in names and what.key in names), None)
    axes = [n.removeprefix(BASE) for n in names if n.startswith(BASE)]
    if tuned is None or not axes or not {SCHEME, TITLE, RATES, CHANCE, *axes} <= set(names):
        return {}
    return {
        "axes": {axis: axis for axis in axes},
        "lr": tuned.key,
        "loss": "loss",
        "seed": "seed",
        "by": (SCHEME,),
        "base": {axis: f"{BASE}{axis}" for axis in axes},
    }


def check_columns(
    names: Sequence[str], axes: Mapping[str, str], by: Sequence[str], named: Mapping[str, str]
) -> None:
    """Refuse columns that were not named, that the table lacks, or that have two meanings."""
    checked_once(names)
    _refuse_wide(names, axes, named)
    meanings = {
        **named,
        **{f"the axis {name}": column for name, column in axes.items()},
        **{f"by {column}": column for column in by},
    }
    # Whoever names nothing yet is best helped by all that can be named. Width and depth make the
    # parameters: three such axes would always change together.
    shape = {"depth", "width"} & propose(names).keys()
    sizes = () if axes else (*(("depth", "width") if shape else ("parameters",)), "batch", "tokens")
    wanted = (*sizes, *(what for what in _OPTIONS if not named[what]))
    for what, column in meanings.items():
        if column and column not in names:
            raise ValueError(_absent(what, column, names, wanted))
    _all_named(names, axes, named, wanted)
    for axis, column in axes.items():
        if not column:
            raise ValueError(
                f"Expected the name of a column for the axis {printable(axis)}; got an empty one. "
                f"{_proposed(names, (axis,))}"
            )
    _distinct(meanings)
    _independent(axes)
    words = {*re.split(r"[\W_]+", named["loss"].lower())}
    is_error = Wanted.of(named["loss"]).less_than is not None
    if words & _BETTER_HIGHER and not words & _BETTER_LOWER and not is_error:
        error = printable(shlex.quote(f"1-{named['loss']}"))
        raise ValueError(
            f"Expected a loss, lower where runs are better; {printable(repr(named['loss']))} reads "
            f"like one that is higher. --loss {error} reads its error, 100- that of percent, "
            "and others need a number above the best."
        )


_NEEDED = {
    "axes": ("the sizes", "axes={'depth': 'n_layers'}", "--axes depth=n_layers"),
    **{
        what: (text, f"{what}={LIKELY[what][0]!r}", f"--{what} {LIKELY[what][0]}")
        for what, text in (("lr", "the learning rate"), ("loss", "the loss"))
    },
}
"""What no table can be read without, and how it is named in Python and on the command line."""


class UnnamedColumns(ValueError):
    """Columns that nobody named, though nothing can be asked without them.

    ``lacking`` says which; ``axes`` and ``named`` are all columns, as given or by their names.
    """

    def __init__(
        self, lacking: str, proposed: str, axes: Mapping[str, str], named: Mapping[str, str]
    ) -> None:
        super().__init__(f"{lacking} {proposed}")
        self.lacking, self.axes, self.named = lacking, axes, named


def _all_named(
    names: Sequence[str],
    axes: Mapping[str, str],
    named: Mapping[str, str],
    wanted: Sequence[str],
) -> None:
    """Refuse a table without axes, rate or loss: all that is unnamed in one message."""
    lacking = [what for what in _NEEDED if not named.get(what, axes)]
    if not lacking:
        return
    what, python, words = zip(*(_NEEDED[name] for name in lacking), strict=True)
    likely = {name: column for name, column in propose(names).items() if name in wanted}
    columns = "column" if lacking in (["lr"], ["loss"]) else "columns"
    raise UnnamedColumns(
        f"Expected the {columns} of {' and '.join(what)}, "
        f"such as {either(', '.join(python), ' '.join(words))}; got none.",
        _proposed(names, wanted),
        axes or {name: column for name, column in likely.items() if name not in _OPTIONS},
        {name: column or likely.get(name, "") for name, column in named.items()},
    )


def wide_columns(names: Sequence[str]) -> dict[str, str]:
    """Columns whose names differ in one number, by these numbers: one for each size, as it looks.

    Example:
        >>> wide_columns(["lr", "w128", "w256"])
        {'w128': '128', 'w256': '256'}
    """
    alike: dict[tuple[str, str], dict[str, str]] = {}
    for name in names:
        match = re.fullmatch(r"(\D*?)[_= -]?(\d+(?:\.\d+)?(?:[kKmMbBtT](?![a-zA-Z]))?)(\D*)", name)
        if match and _is_of_size(match[1] + match[3]):
            alike.setdefault((match[1], match[3]), {})[name] = match[2]
    return next((columns for columns in alike.values() if len(columns) > 1), {})


def _is_of_size(text: str) -> bool:
    """Whether the text beside a number is none, an axis or its letter, or speaks of a loss."""
    word = text.lower().strip("_= -")
    return word in ("", "w", "d", "l", "h", "bs", "width", "depth") or bool(
        axis_named(word) or word in CALLED or "loss" in word
    )


def _refuse_wide(names: Sequence[str], axes: Mapping[str, str], named: Mapping[str, str]) -> None:
    """Refuse a table with a column of losses for each size, and name the option that reads it."""
    columns = wide_columns(names)
    rates_in_rows = columns and len(columns) < len(names)
    if not rates_in_rows or named["loss"] in names or "loss" in propose(names):
        return
    axis = next(iter(axes), "width")
    lr = named["lr"] or propose(names).get("lr", "lr")
    raise ValueError(
        "Expected one row for each run; this looks like a wide table, with a column of losses for "
        f"each size: {_listed(list(columns))}. Read it by "
        + either(
            printable(f"reading=Reading(wide={axis!r}), lr={lr!r}."),
            f"--wide {printable(shlex.quote(axis))} --lr {printable(shlex.quote(lr))}.",
        )
    )


def checked_once(names: Sequence[str]) -> None:
    """Refuse names of columns that stand twice."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(
            f"Expected each column once; {_listed(twice)} stands twice. Rename one of them."
        )


def _distinct(meanings: Mapping[str, str]) -> None:
    by_column: dict[str, str] = {}
    for what, column in meanings.items():
        if column and column in by_column:
            raise ValueError(
                f"Expected each column to stand for one thing; {printable(column)!r} was named as "
                f"{printable(by_column[column])} and as {printable(what)}."
            )
        if column:
            by_column[column] = what


def _independent(axes: Mapping[str, str]) -> None:
    names = {canonical(name) for name in axes}
    if len(names) < len(axes):
        raise ValueError(
            f"Expected axes of different names; {_listed(list(axes))} hold two for one thing."
        )
    if {"batch", "tokens", "steps"} <= names:
        raise ValueError(
            "Expected two of batch, tokens and steps as axes, as the third follows from them; got "
            "all three. Leave out steps to ask about batch at fixed tokens, or tokens to ask about "
            "batch at fixed steps."
        )


def _absent(what: str, column: str, names: Sequence[str], wanted: Sequence[str]) -> str:
    near = difflib.get_close_matches(column, names, n=1, cutoff=0.6)
    key = what.removeprefix("the axis ").removeprefix("by ")
    hint = f"Did you mean {printable(near[0])!r}?" if near else ""
    hint = hint or _likely(names, (key, *wanted))
    return (
        f"Expected a column named {printable(column)!r} ({printable(what)}); the table has "
        f"{_listed(names)}. {hint}"
    ).rstrip()


def propose(names: Sequence[str]) -> dict[str, str]:
    """What columns look like, by their names alone; nothing is assumed from it."""
    proposals: dict[str, str] = {}
    for what, likely in LIKELY.items():
        for name in likely:
            # A column is proposed once: what stands first in the list has the better claim to it.
            match = next((n for n in names if last_part(n) == last_part(name)), None)
            if match is not None and match not in proposals.values():
                proposals[what] = match
                break
    return proposals


def axis_named(column: str) -> str:
    """The axis that a column's name is one of; empty for any other column."""
    name = last_part(column)
    return axis if len(name) > 1 and (axis := canonical(name)) in CALLED else ""


def _proposed(names: Sequence[str], wanted: Sequence[str]) -> str:
    """Which columns to name, or all of them."""
    return _likely(names, wanted) or f"The table has {_listed(names)}."


def _likely(names: Sequence[str], wanted: Sequence[str]) -> str:
    proposals = propose(names)
    like = {what: proposals[what] for what in wanted if what in proposals}
    axes = {what: column for what, column in like.items() if what not in _OPTIONS}
    options = {what: column for what, column in like.items() if what in _OPTIONS}
    words = [f"--{what} {shlex.quote(column)}" for what, column in options.items()]
    arguments = [f"{what}={column!r}" for what, column in options.items()]
    if axes:
        pairs = " ".join(shlex.quote(f"{axis}={column}") for axis, column in axes.items())
        words.insert(0, f"--axes {pairs}")
        arguments.insert(0, f"axes={axes}")
    if words:
        shown = either(", ".join(arguments), " ".join(words))
        return f"By their names these look like it: {printable(shown)}."
    return ""


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(printable(repr(str(name)[:60])) for name in list(names)[:SHOWN])
    more = len(names) - SHOWN
    return shown + (f" and {more} more" if more > 0 else "")


def listed(value: str | Sequence[str]) -> tuple[str, ...]:
    """One text or several."""
    return (value,) if isinstance(value, str) and value else tuple(value)


def one_column(lr: Any) -> str:
    """The column of the tuned value; ``depthmup.fit`` alone reads several."""
    if not isinstance(lr, str):
        raise ValueError(
            f"Expected one column of the tuned value; got {printable(repr(lr))}. Name one: fit "
            "alone takes several that were tuned together."
        )
    return lr


def texts(named: Mapping[Any, Any]) -> dict[str, str]:
    """Names of axes with their columns, all of them texts."""
    for name, column in named.items():
        if not (isinstance(name, str) and isinstance(column, str) and name and column):
            raise ValueError(
                "Expected axes as names of axes with their columns, such as "
                f"{{'depth': 'n_layers'}}; got {printable(repr(name))}: {printable(repr(column))}."
            )
    return dict(named)
