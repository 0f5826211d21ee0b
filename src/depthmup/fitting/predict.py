"""The best value at a target in all axes, with its interval, or a refusal with its reasons."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from depthmup.fitting.group import Group
from depthmup.fitting.measure import usable
from depthmup.records import Certificate
from depthmup.records.printable import printable
from depthmup.statistics import calibrate, noisy_sizes, optima
from depthmup.statistics.intervals import Index

MOST_SIZES = 48
"""Sizes that a prediction rests on, the largest ones: the time grows with their cube."""


FEWEST = 4
"""Sizes that are kept however much they scatter; the certificate then says so."""


def predict(
    group: Group,
    target: Mapping[str, float],
    *,
    tolerance: float,
    chance: float,
    about: Mapping[str, Any],
) -> Certificate | None:
    """A certificate of the best value at a target; a refused one says why.

    Sizes whose optimum is at an edge, or beside a divergence, are left out, as their curves know no
    optimum; None where no size is left.

    Args:
        group: the cleaned runs.
        target: a size in all axes.
        tolerance: octaves per doubling within which a value counts as staying.
        chance: the loss of guessing.
        about: further fields of the certificate, such as its title.
    """
    sizes = chosen(group)
    if not len(sizes):
        return None
    curves = group.cells.curves
    grids, losses = [], []
    for size in sizes:
        there = ~np.isnan(curves.log2_lrs[size])
        grids.append(curves.log2_lrs[size, there].tolist())
        losses.append(curves.losses[size, there])
    named = [dict(zip(group.axes, map(float, group.sizes[s]), strict=True)) for s in sizes]
    return calibrate(
        sizes=named,
        log2_lrs=grids,
        losses=losses,
        target=dict(target),
        chance=chance,
        one_seed=True,
        tolerance=tolerance,
        about=dict(about),
    )


def chosen(group: Group) -> Index:
    """The sizes that a prediction rests on."""
    good = np.flatnonzero(usable(group) & ~group.fitted.wall & (group.fitted.curvature > 0))
    # What a size with too much scatter says of its curvature would spoil the others' law.
    while len(good) > FEWEST and (bad := noisy_sizes(optima(group.cells.curves[good]))):
        if len(good) - len(bad) < FEWEST:
            break
        good = np.delete(good, bad)
    volume = np.log2(group.sizes[good]).sum(-1)
    return np.asarray(np.sort(good[np.argsort(-volume, kind="stable")[:MOST_SIZES]]))


def checked_target(target: Mapping[str, float], axes: Mapping[str, str]) -> dict[str, float]:
    """A target that names every axis, each with a positive number.

    Raises:
        ValueError: it does not.
    """
    lacking = [a for a in axes if a not in target]
    extra = [a for a in target if a not in axes]
    if lacking or extra:
        said = f"it lacks {', '.join(lacking)}" if lacking else f"it has {', '.join(extra)} too"
        raise ValueError(
            f"Expected a target in all axes, {printable(', '.join(axes))}; {printable(said)}."
        )
    checked = {}
    for axis in axes:
        try:
            value = float(target[axis])
        except (TypeError, ValueError):
            value = float("nan")
        if not 0 < value < float("inf") or isinstance(target[axis], bool):
            raise ValueError(
                f"Expected a positive number for the target's {printable(axis)}; got "
                f"{printable(repr(target[axis]))}."
            )
        checked[axis] = value
    return checked
