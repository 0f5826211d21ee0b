"""Several values that are tuned together: their names, where their search starts, and refusals."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from depthmup.records import COUNTS, RUN_AXES, Tuned, tuned, worded
from depthmup.records.grammar import either
from depthmup.records.printable import printable

MOST_VALUES = 4
"""Tuned together: people have general optimizers for more."""

_SIZES = ("width", "depth", *RUN_AXES)
_CATEGORIES = (
    *("scheme", "schemes", "optimizer", "optimizers", "run", "schedule", "activation", "own_init"),
    *("seed", "seeds", "device", "precision"),
)
_OWN = {"weight_decays": "weight_decay", "multipliers": "multiplier"}
"""Lists of a design whose values can be tuned."""


def names_of_tuned(tune: Any) -> tuple[Any, ...]:
    """One name or several: a sequence, or words with commas between them.

    Example:
        >>> names_of_tuned("lr, weight_decay"), names_of_tuned("lr")
        (('lr', 'weight_decay'), ('lr',))
    """
    if isinstance(tune, str):
        return tuple(name.strip() for name in tune.split(",") if name.strip()) or (tune,)
    return (tune,) if isinstance(tune, Tuned) else tuple(tune)


def separated(base: Any, names: Iterable[Any]) -> tuple[dict[str, Any], Any]:
    """A base's values of what is tuned, and the rest of it, the size.

    Example:
        >>> separated("width=64,lr=3e-3", ["lr"])
        ({'lr': 0.003}, 'width=64')
    """
    keys = {key_of(name) for name in names}
    if isinstance(base, Mapping):
        starts = {key_of(name): value for name, value in base.items() if key_of(name) in keys}
        return starts, {name: n for name, n in base.items() if key_of(name) not in keys}
    if not isinstance(base, str) and not (
        isinstance(base, Sequence) and all(isinstance(word, str) for word in base)
    ):
        return {}, base
    words = [base] if isinstance(base, str) else base
    parts = [part for said in words for part in said.replace(",", " ").split()]
    starts = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if equals and key_of(name) in keys:
            try:
                starts[key_of(name)] = float(value)
            except ValueError:
                raise ValueError(
                    f"Expected a number for {name} in the base, from which its search starts; got "
                    f"{value!r}."
                ) from None
    if not starts:
        return {}, base
    return starts, " ".join(part for part in parts if key_of(part.partition("=")[0]) not in keys)


def key_of(name: Any) -> str:
    """The key of what a name stands for; of a name that is not known here the name."""
    try:
        return tuned(name).key
    except ValueError:
        return str(name)


def together(names: Sequence[Any], starts: Mapping[str, Any]) -> tuple[Tuned, ...]:
    """What names stand for. A name that is not known here has a start: it is your script's own."""
    check_names_of(names)
    found = []
    for name in names:
        key = key_of(name)
        if key in COUNTS:
            found.append(COUNTS[key])
        elif key in starts and not isinstance(name, Tuned):
            if not key.isidentifier():
                raise ValueError(f"Expected names of what is tuned; got {printable(repr(name))}.")
            found.append(worded(key.replace("_", " ")) if key not in _SIZES else tuned(name))
        else:
            try:
                found.append(tuned(name))
            except ValueError as error:
                raise ValueError(
                    f"{error} A value of your own script has its start in the base: "
                    + either(f"base={{..., {str(name)!r}: 0.1}}.", f"--base ...,{name}=0.1.")
                ) from None
    if len({one.key for one in found}) < len(found):
        raise ValueError(
            f"Expected different values to tune; got {', '.join(one.key for one in found)}. Name "
            "each once."
        )
    for one in found:
        if one.key == "batch" and one.key not in starts:
            raise ValueError(
                f"Expected the {one.key} of the base, where its search starts: "
                + either(f"base={{..., {one.key!r}: 32}}.", f"--base ...,{one.key}=32.")
            )
        start = starts.get(one.key, one.start)
        if isinstance(start, bool) or not isinstance(start, int | float):
            raise ValueError(f"Expected a number for {one.key} in the base; got {start!r}.")
        if not 0 < start <= one.most or math.isinf(start):
            raise ValueError(
                f"Expected {one.the} at the base to be positive"
                + ("" if math.isinf(one.most) else f", at most {one.most:g}")
                + f"; got {start!r}. Values are compared as logarithms."
            )
        if one.is_whole and start != round(start):
            raise ValueError(f"Expected {one.the} at the base to be a whole number; got {start!r}.")
    return tuple(found)


def check_names_of(names: Sequence[Any]) -> None:
    """Refuse what is no positive number of a run."""
    if not names:
        raise ValueError("Expected a value to tune, such as lr; got none.")
    if len(names) > MOST_VALUES:
        raise ValueError(
            f"Expected at most {MOST_VALUES} values tuned together; got {len(names)}: "
            f"{printable(', '.join(map(str, names)))}. Tune those that matter most, and leave the "
            "others at values that are known good."
        )
    keys = [key_of(name) for name in names]
    if len(names) == 1:
        if keys[0] in COUNTS:
            (key,) = keys
            both = either(f"tune=('lr', {key!r})", f"--tune lr,{key}")
            raise ValueError(
                f"Expected the learning rate tuned together with the {key}, as each best one "
                f"depends on the other: {both}. To sweep the {key} as an axis of sizes: "
                f"{either(f'{key}=(...)', f'--along {key}=...')}."
            )
        return
    for name in keys:
        if name in _SIZES and name not in COUNTS:
            raise ValueError(
                f"Expected values that are tuned at every size; {name} is an axis of sizes here. "
                f"Vary it as an axis: {either(f'{name}=(...)', f'--along {name}=...')}."
            )
        if name in _CATEGORIES:
            raise ValueError(
                f"Expected values that are numbers; {name} has none between its choices. Measure "
                "each choice for itself, and compare their reports with `depthmup report A B`."
            )


def check_together(
    keys: Sequence[str], values: Any, *, ablate: bool, counts: Mapping[str, int]
) -> None:
    """Refuse what cannot be had for several values, by name; ``counts`` are of a design's lists."""
    several = f"while {' and '.join(keys)} are tuned together"
    alone = f"Leave it out, or tune {keys[0]} alone."
    if isinstance(values, tuple):
        raise ValueError(
            f"Expected no grid of values {several}: the search finds them, as a grid of several "
            f"values has too many runs. Leave out {either('values=', '--values')}, and give where "
            "the search starts: "
            + either(f"base={{..., {keys[0]!r}: 0.003}}.", f"--base ...,{keys[0]}=0.003.")
        )
    if values is not None and values.precision is not None:
        given = either("Auto(precision=...)", "--drift-precision")
        raise ValueError(f"Expected no {given} {several}: the search ends at a verdict. {alone}")
    if ablate:
        raise ValueError(
            f"Expected no {either('ablate=', '--ablate')} {several}: what a rule does is measured "
            f"for one value. {alone}"
        )
    for name, count in counts.items():
        if count > 1 and _OWN.get(name) not in keys:
            also = f"tune {_OWN[name]}, too, or m" if name in _OWN else "M"
            also = also[:1].upper() + also[1:]
            raise ValueError(
                f"Expected one of the {name} {several}; got {count}. {also}easure each in a folder "
                "of its own."
            )
