"""How the optimum moves with size, and the verdict.

The drift is the least-squares slope of the best log2 learning rate against log2 size: 0 means
transfer. Its interval is that of the posterior of all minima.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from depthmup.posterior import Curves, posterior, slope_row
from depthmup.posterior.intervals import Array, Numbers
from depthmup.records import (
    LEARNING_RATE,
    UNKNOWN,
    Axis,
    Estimate,
    Optimum,
    Place,
    Tuned,
    Verdict,
)
from depthmup.records.finding import change, change_span, verdict_of
from depthmup.records.sizes import size_number
from depthmup.records.study import sizes_along

TOLERANCE = 0.15
"""Octaves per doubling of size within which an optimum counts as staying where it is."""

LARGEST_TOLERANCE = 100.0
"""Octaves per doubling, which no optimum moves; as a factor it must be a number."""


def check_tolerance(tolerance: float) -> None:
    """Refuse a tolerance that no drift can be compared with."""
    if not (isinstance(tolerance, int | float) and 0 < tolerance <= LARGEST_TOLERANCE):
        raise ValueError(
            "Expected a positive tolerance in octaves per doubling, at most "
            f"{LARGEST_TOLERANCE:g}; got {tolerance}."
        )


def drift_unit(axis: Axis, tuned: Tuned = LEARNING_RATE) -> str:
    """The unit of a drift.

    Example:
        >>> drift_unit("depth")
        'octaves of learning rate per doubling of depth'
    """
    return f"{tuned.octaves} per doubling of {axis}"


def drift(
    sizes: Sequence[float],
    log2_lrs: Sequence[Any] | Numbers,
    losses: Sequence[Array] | Array,
    *,
    axis: Axis = "depth",
) -> Estimate:
    """How the optimum moves along an axis, in octaves per doubling: 0 means transfer."""
    unit = drift_unit(axis)
    if len(sizes) < 2:
        return replace(UNKNOWN, unit=unit)
    x = np.log2(np.asarray(sizes, float))
    found = posterior(Curves.of(log2_lrs, losses), (x - x.min())[:, None])
    return found.estimate(slope_row(x), unit=unit)


def judge(
    optima: Sequence[Optimum],
    drift: Estimate,
    *,
    seeds: int,
    tolerance: float = TOLERANCE,
    axis: Axis = "depth",
    tuned: Tuned = LEARNING_RATE,
) -> tuple[Verdict, str]:
    """Whether the optimum transfers along an axis, in one word and a sentence or two.

    Transfers: the whole interval of the drift is inside +-tolerance, and every size trains.
    Drifts: it is all outside. Undecided: anything else. An optimum at an edge of its grid is a
    bound, which the interval of the drift allows for.

    *Source:* an interval inside a margin shows equivalence: Schuirmann (1987), Journal of
    Pharmacokinetics and Biopharmaceutics 15:657-680.
    """

    def at(*places: Place) -> str:
        return _listed(o.size[axis] for o in optima if o.place in places)

    failed = at(Place.FAILED)
    span = change_span(drift.low, drift.high)
    allowed = change_span(-tolerance, tolerance)
    fails = f" At {axis} {failed} no {tuned.name} trains." if failed else ""
    source = "" if seeds > 1 else " Only one seed: how seeds differ is assumed, not measured."
    low, high = at(Place.LOW_EDGE), at(Place.HIGH_EDGE)
    sides = [f"downwards ({axis} {low})"] * bool(low)
    sides += [f"upwards ({axis} {high})"] * bool(high)
    if not drift.known:
        return (
            Verdict.UNDECIDED,
            f"Fewer than two {sizes_along(axis)} have an optimum to compare." + fails,
        )
    verdict = verdict_of(drift, -tolerance, tolerance)
    if sides:
        edges = at(Place.LOW_EDGE, Place.HIGH_EDGE)
        source += f" At {axis} {edges} the optimum lies at an edge of the grid, or beyond."
    if verdict is Verdict.DRIFTS:
        return verdict, (
            f"The optimum moves by {change(drift.value)} per doubling of {axis}, "
            f"95% interval {span}, outside {allowed}.{source}{fails}"
        )
    if verdict is Verdict.TRANSFERS and not failed:
        # A bound shows less than an optimum: what transfers is what was measured.
        known = [o.size[axis] for o in optima if o.place is Place.INTERIOR]
        the = f"Up to {axis} {size_number(max(known))} the" if known else "The"
        return verdict, (
            f"{the} optimum moves by {change(drift.value)} per doubling of {axis}, "
            f"95% interval {span}, inside {allowed}.{source}"
        )
    if sides:
        return Verdict.UNDECIDED, (
            f"The best {tuned.name} is at the edge of the grid: extend it {' and '.join(sides)}. "
            f"Until then the interval is {span} per doubling of {axis}.{fails}"
        )
    if failed:
        return Verdict.UNDECIDED, (
            f"Where it trains, the optimum moves by {change(drift.value)} per doubling of "
            f"{axis}, 95% interval {span}.{source}{fails}"
        )
    return Verdict.UNDECIDED, (
        f"The interval {span} per doubling of {axis} is neither inside nor outside {allowed}."
        f"{source}"
    )


def _listed(values: Iterable[float]) -> str:
    """Different values of an axis, increasing."""
    return ", ".join(size_number(value) for value in sorted(set(values)))


def change_of_shape(
    turn: Estimate, drift: Estimate, middle: float, *, tolerance: float, axis: Axis
) -> str:
    """A sentence where the middle of the valley drifts otherwise than its minimum, else nothing.

    Said where valleys certainly grow more or less lopsided with size (``turn``, that of
    the posterior), and the drift ``middle`` of their centres is another by enough to
    matter: a third of the tolerance per doubling.
    """
    certain = turn.known and turn.outside(0.0, 0.0)
    if not certain or not drift.known or abs(drift.value - middle) < tolerance / 3:
        return ""
    return (
        f" The valley changes its shape with {axis}. The drift is that of its lowest point; its "
        f"middle moves by {change(middle)} per doubling."
    )
