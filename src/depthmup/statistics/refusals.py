"""Why nothing is certified: each reason, and what would lift it."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from depthmup.posterior.intervals import student
from depthmup.posterior.law import Size
from depthmup.records import LEARNING_RATE, Optimum, Place, Tuned
from depthmup.records.certificate import Lack, Refusal, TargetProbe
from depthmup.records.finding import change
from depthmup.records.sizes import size_name, size_names, size_number
from depthmup.records.study import RUN_AXES, sizes_along
from depthmup.records.text import begin
from depthmup.statistics.directions import Directions, volume
from depthmup.statistics.drift import TOLERANCE
from depthmup.statistics.forecast import FARTHEST
from depthmup.statistics.minimum import Minima
from depthmup.statistics.runs import Runs

# A sound sweep is refused by chance in one of twenty cases, shared by all axes tested.
SIGNIFICANCE = 0.05

WORSE = 0.05
"""How much higher the log of the best loss may be at the largest size than at a smaller one."""

INITIAL, FIRST_STEPS = 1.2, 1.15
"""Losses at the target over those at a measured size above which training breaks down there.

Before training, over the base's: of 91 certificates that held none was above 1.16, of 12 that
missed seven were above 1.34. After twenty steps, over the largest measured size's: nine misses of a
scheme that breaks down had 1.16 or more, 61 that held 1.06 or less (docs/studies/calibration.md).
"""


def refuse_measurements(
    measured: Sequence[Optimum], *, tuned: Tuned = LEARNING_RATE
) -> Iterator[Refusal]:
    """Sizes at which nothing trains, and tables in which no optimum lies inside its grid."""

    def named(which: Sequence[Optimum]) -> str:
        return size_names([o.size for o in which], [o.size for o in measured])

    if failed := [o for o in measured if o.place is Place.FAILED]:
        yield Refusal(
            lack=Lack.FAILED,
            reason=f"No {tuned.name} trains at {named(failed)}.",
            advice="Extend the grid downwards, or use a scheme under which these sizes train.",
        )
    if any(o.place is Place.INTERIOR for o in measured):
        return
    for edge, way in ((Place.LOW_EDGE, "downwards"), (Place.HIGH_EDGE, "upwards")):
        if edges := [o for o in measured if o.place is edge]:
            yield Refusal(
                lack=Lack.EDGE,
                reason=f"The best {tuned.name} is at the edge of the grid at {named(edges)}.",
                advice=f"Extend the grid of {tuned.plural} {way}.",
            )


def refuse_design(
    where: Directions,
    sizes: Sequence[Size],
    target: Size,
    *,
    known: bool,
    tuned: Tuned = LEARNING_RATE,
) -> list[Refusal]:
    """Too few sizes, or a target too far away or beside the sizes measured.

    ``known`` is whether all sizes have an optimum.
    """
    refusals = [
        *_too_few(sizes),
        *_too_far(sizes, where.base, target),
        *_no_corner(sizes, where.base, target),
    ]
    # Where sizes are lacking that is the reason, and not what their law cannot reach.
    if known and not refusals and not where.reaches(target):
        refusals.append(
            Refusal(
                lack=Lack.DIRECTION,
                reason=(
                    f"{begin(' and '.join(where.axes))} grew together, and the target does not "
                    "lie on their line."
                ),
                advice=(
                    f"Vary {' and '.join(where.axes)} apart from each other, or aim at their line."
                ),
            )
        )
    return refusals


def _too_far(sizes: Sequence[Size], base: Size, target: Size) -> Iterator[Refusal]:
    for axis in base:
        values = {size[axis] for size in sizes}
        if len(values) == 1 and target[axis] not in values:
            yield Refusal(
                lack=Lack.DIRECTION,
                reason=(
                    f"The target has {axis} {size_number(target[axis])}, and every size measured "
                    f"has {axis} {size_number(next(iter(values)))}."
                ),
                advice=f"Measure at two {sizes_along(axis)} or more.",
            )
        elif target[axis] > FARTHEST * max(values):
            yield Refusal(
                lack=Lack.FAR,
                reason=(
                    f"{begin(axis)} {size_number(target[axis])} is more than {FARTHEST} "
                    f"times the largest that was measured, {size_number(max(values))}."
                ),
                advice=f"Measure at {axis} {math.ceil(target[axis] / FARTHEST)} or above.",
            )


def _too_few(sizes: Sequence[Size]) -> Iterator[Refusal]:
    """One size has no law; of two it is as wide as what is believed of slopes."""
    if len(sizes) < 2:
        yield Refusal(
            lack=Lack.SIZES,
            reason="A law needs two sizes or more that train; there is one.",
            advice="Measure at two sizes or more along each axis that is to grow.",
        )


def _no_corner(sizes: Sequence[Size], base: Size, target: Size) -> Iterator[Refusal]:
    """Axes along which the target grows together, and no measured size does.

    How the optimum moves along one axis depends on the other: by -0.04 to -0.10 octaves per
    doubling of both was measured for width and depth, which arms that meet at the base cannot see.
    """
    for one, other in combinations(base, 2):
        if target[one] == base[one] or target[other] == base[other]:
            continue
        if any(size[one] != base[one] and size[other] != base[other] for size in sizes):
            continue
        if len({size[one] for size in sizes}) < 2 or len({size[other] for size in sizes}) < 2:
            continue  # the direction itself was not measured: said elsewhere
        yield Refusal(
            lack=Lack.CORNER,
            reason=(
                f"The target grows in {one} and {other}, and no size measured grows in both: "
                "how the optimum moves along one depends on the other."
            ),
            advice=(
                f"Measure one size that is larger than the base in {one} and in {other}, as "
                "large as you can afford."
            ),
        )


def refuse_windows(late: Minima, before: Runs, where: Directions) -> Iterator[Refusal]:
    """A law that depends on the window of training: it is still moving."""
    if len(before.trains) < len(before.sizes):
        return
    rows = np.linalg.pinv(where.straight, rcond=1e-10)
    for i, axis in enumerate(where.axes):
        now, then = (
            found.posterior.estimate(rows[1 + i], 1 - SIGNIFICANCE / len(where.axes))
            for found in (late, before.minima)
        )
        gap = now.value - then.value
        half = math.hypot(now.high - now.low, then.high - then.low) / 2
        if abs(gap) - half > TOLERANCE:
            yield Refusal(
                lack=Lack.WINDOWS,
                reason=(
                    f"From the early to the late window the slope against {axis} changes by "
                    f"{change(gap)} per doubling: the law is still moving."
                ),
                advice="Train longer, until the law stays; judge at the end.",
            )


def refuse_breakdown(
    found: Minima, where: Directions, tuned: Tuned = LEARNING_RATE
) -> Iterator[Refusal]:
    """The largest size trains worse than a smaller one: the scheme breaks down on the way up.

    Beyond there no law of smaller sizes holds; under standard parametrization nothing may train at
    the target at all. Judged beyond a margin: at little training a little worse is normal.
    """
    # A larger batch or a shorter run may well train worse, and no scheme has broken down: networks
    # are compared by the run of the base.
    alike = [
        i for i, size in enumerate(where.sizes)
        if all(size[axis] == where.base[axis] for axis in RUN_AXES if axis in size)
    ]  # fmt: skip
    if not alike:
        return
    levels, covariance = found.log_loss, found.posterior.level_covariance
    largest = max(alike, key=lambda i: volume(where.sizes[i]))
    best = min(alike, key=lambda i: float(levels[i]))
    rise = float(levels[largest] - levels[best])
    row = np.zeros(len(levels))
    row[largest] += 1
    row[best] -= 1
    error = math.sqrt(float(row @ covariance @ row))
    if rise - float(student(math.inf, 1 - SIGNIFICANCE)) * error <= WORSE:
        return
    yield Refusal(
        lack=Lack.WORSE,
        reason=(
            f"At its own best {tuned.name} {size_name(where.sizes[largest])} ends "
            f"{math.expm1(rise):.0%} above {size_name(where.sizes[best])}: the scheme breaks "
            "down as the model grows."
        ),
        advice="Use a scheme under which larger sizes train better, or train longer.",
    )


def refuse_probe(probe: TargetProbe, target: Size) -> Iterator[Refusal]:
    """A scheme that breaks down between the sizes measured and the target, seen at the target.

    Nothing that smaller sizes show tells such certificates from those that hold.
    """
    where = size_name(probe.size)
    if not probe.initial <= INITIAL:
        reason = f"Before training the loss at {where} is {probe.initial:.3g} times the base's."
    elif probe.first_steps > FIRST_STEPS:
        reason = (
            f"After {probe.steps} steps the loss at {where} is {probe.first_steps:.3g} times that "
            "of the largest size measured."
        )
    else:
        return
    yield Refusal(
        lack=Lack.BREAKS,
        reason=f"{reason} The scheme breaks down on the way to {size_name(target)}.",
        advice="Use a scheme under which the target starts as the base does.",
    )
