"""Why nothing is certified: each reason, and what would lift it."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from depthmup.records import Estimate, Place
from depthmup.records.certificate import Lack, Refusal, SizeOptimum
from depthmup.sweep.law import AXES, Array, Law, Size
from depthmup.sweep.optimum import TOLERANCE
from depthmup.sweep.shape import Laws, averages, jackknife_error, lowest, students_t, valley

FARTHEST = 16
"""How many times the largest size measured a target may be, in each dimension."""

SIGNIFICANCE = 0.05

DEAREST = 1.0
"""The largest bound on the penalty, as a fraction of the best loss, that is worth having."""

WORSE = 0.05
"""How much higher the log of the best loss may be at the largest size than at a smaller one."""


def refuse_measurements(
    optima: Sequence[SizeOptimum], rates: Array, losses: Array
) -> list[Refusal]:
    """What is wrong with the measurements, size by size."""
    found = []

    def named(which: Sequence[SizeOptimum]) -> str:
        return ", ".join(f"width {o.width} depth {o.depth}" for o in which)

    if losses.shape[-1] < 2:
        found.append(
            Refusal(
                lack=Lack.SEEDS,
                reason="One seed says nothing about chance.",
                advice="Measure with two seeds or more; three give intervals three times shorter.",
            )
        )
    if failed := [o for o in optima if o.place is Place.FAILED]:
        found.append(
            Refusal(
                lack=Lack.FAILED,
                reason=f"No learning rate trains at {named(failed)}.",
                advice="Extend the grid downwards, or use a scheme under which these sizes train.",
            )
        )
    for place, way in ((Place.LOW_EDGE, "downwards"), (Place.HIGH_EDGE, "upwards")):
        if edges := [o for o in optima if o.place is place]:
            found.append(
                Refusal(
                    lack=Lack.EDGE,
                    reason=f"The best learning rate is at the edge of the grid at {named(edges)}.",
                    advice=f"Extend the grid of learning rates {way}.",
                )
            )
    shapeless = [
        (o, _beside_divergence(averages(of_size)))
        for o, of_size in zip(optima, losses, strict=True)
        if o.place is Place.INTERIOR and not o.curvature.known
    ]
    if flat := [o for o, wall in shapeless if not wall]:
        found.append(_noise(named(flat)))
    if walls := [o for o, wall in shapeless if wall]:
        found.append(
            Refusal(
                lack=Lack.WALL,
                reason=(
                    f"At {named(walls)} a learning rate next to the best one diverges, so that "
                    "the optimum is known to a step of the grid only."
                ),
                advice="Use a finer grid of learning rates.",
            )
        )
    if found:
        return found
    if noisy := _noisy(rates, losses):
        found.append(_noise(named([optima[i] for i in noisy])))
    return found


def _beside_divergence(curve: Array) -> bool:
    """Whether a neighbour of a curve's lowest point, which is inside, has diverged."""
    i = lowest(curve)
    return not bool(np.isfinite(curve[i - 1 : i + 2]).all())


def _noise(where: str) -> Refusal:
    return Refusal(
        lack=Lack.NOISE,
        reason=f"At {where} seeds scatter more than the learning rate matters around its optimum.",
        advice="Use more seeds, longer windows, or a wider spacing of learning rates.",
    )


def _noisy(rates: Array, losses: Array) -> list[int]:
    """Sizes at which the curvature around the optimum is not above zero beyond the seeds' scatter.

    The curvature is linear in the log losses of a seed, so this is a t test: of errors pooled over
    sizes, relative to each curvature, at Bonferroni's level.
    """
    seeds = losses.shape[-1]
    ratios = []
    for of_size in losses:
        found = valley(rates, averages(of_size))
        if found is None:
            continue
        of_seeds = found.linear @ np.log(of_size[list(found.points)])
        ratios.append((float(of_seeds.std(ddof=1)) / math.sqrt(seeds), found.curvature))
    pooled = math.sqrt(float(np.mean([(error / mean) ** 2 for error, mean in ratios])))
    bound = float(stdtrit(len(losses) * (seeds - 1), 1 - SIGNIFICANCE / len(losses)))
    return [
        i for i, (error, mean) in enumerate(ratios) if mean <= bound * max(error, pooled * mean)
    ]


def refuse_design(
    sizes: Sequence[Size], base: Size, target: Size, laws: Laws | None
) -> list[Refusal]:
    """Too few sizes, a target too far away or beside the sizes measured."""
    found = []
    varied = [i for i in (0, 1) if len({size[i] for size in sizes}) > 1]
    counts = {AXES[i]: len({size[i] for size in sizes}) for i in varied}
    short = {axis: n for axis, n in counts.items() if n < 3}
    if len(set(sizes)) < 3 or short or (laws is not None and laws.place.freedom < 1):
        told = ", ".join(f"{n} in {axis}" for axis, n in counts.items()) or "one"
        found.append(
            Refusal(
                lack=Lack.SIZES,
                reason=f"A law and its error need three sizes or more; there are {told}.",
                advice="Measure at three sizes or more in each dimension that is to grow.",
            )
        )
    for i, axis in enumerate(AXES):
        there = {size[i] for size in sizes}
        if i not in varied and target[i] not in there:
            found.append(
                Refusal(
                    lack=Lack.DIRECTION,
                    reason=(
                        f"The target has {axis} {target[i]}, and every size measured has {axis} "
                        f"{next(iter(there))}."
                    ),
                    advice=f"Measure at three {axis}s or more.",
                )
            )
        elif target[i] > FARTHEST * max(there):
            found.append(
                Refusal(
                    lack=Lack.FAR,
                    reason=(
                        f"{axis.capitalize()} {target[i]} is more than {FARTHEST} times the "
                        f"largest that was measured, {max(there)}."
                    ),
                    advice=f"Measure at {axis} {math.ceil(target[i] / FARTHEST)} or above.",
                )
            )
    if laws is not None and not found:
        if not laws.place.reaches(target):
            found.append(
                Refusal(
                    lack=Lack.DIRECTION,
                    reason=(
                        "Width and depth grew together, and the target does not lie on their line."
                    ),
                    advice="Vary width and depth apart from each other, or aim at their line.",
                )
            )
        elif not np.isfinite(laws.curvature.without).all():
            found.append(
                Refusal(
                    lack=Lack.NOISE,
                    reason="Leaving out one seed leaves no optimum inside the grid at some size.",
                    advice="Use more seeds, or a wider grid of learning rates.",
                )
            )
    return found


def refuse_law(laws: Laws, rates: Array, early: Array | None) -> list[Refusal]:
    """A law that is not one: it bends, or it depends on when one looks.

    Both tests allow for the tolerance within which an optimum counts as staying where it is: a
    difference must be beyond it, and significantly so.
    """
    found: list[Refusal] = []
    law = laws.place
    if not np.isfinite(law.without).all():
        return found
    for axis in law.axes:
        bend, error = _bend(law, axis)
        half = students_t(len(law.without) - 1, 1 - SIGNIFICANCE / len(law.axes)) * error
        if abs(bend) - half > TOLERANCE:
            found.append(
                Refusal(
                    lack=Lack.SMALL,
                    reason=(
                        f"The slope of the optimum against {axis} changes by {bend:+.2f} octaves "
                        "per doubling from the smallest to the largest sizes: there is no one law "
                        "yet."
                    ),
                    advice=f"Drop the smallest {axis}s and measure at larger ones.",
                )
            )
    if early is not None:
        before = Laws.of(rates, early, law.sizes, law.base).place
        if np.isfinite(before.without).all() and np.isfinite(before.values).all():
            for axis in law.axes:
                gap, error = _gap(law, before, axis)
                half = students_t(len(law.without) - 1, 1 - SIGNIFICANCE / len(law.axes)) * error
                if abs(gap) - half > TOLERANCE:
                    found.append(
                        Refusal(
                            lack=Lack.WINDOWS,
                            reason=(
                                f"From the early to the late window the slope against {axis} "
                                f"changes by {gap:+.2f} octaves per doubling: the law is still "
                                "moving."
                            ),
                            advice="Train longer, until the law stays; judge at the end.",
                        )
                    )
    return found


def refuse_breakdown(laws: Laws) -> list[Refusal]:
    """The largest size trains worse than a smaller one: the scheme breaks down on the way up.

    Beyond there no law of smaller sizes holds; under standard parametrization nothing may train at
    the target at all. By t test, beyond a margin: at little training a little worse is normal.
    """
    law = laws.loss
    if not np.isfinite(law.without).all():
        return []
    largest = max(range(len(law.sizes)), key=lambda i: (math.prod(law.sizes[i]), law.sizes[i]))
    best = int(np.argmin(law.values))
    rise = float(law.values[largest] - law.values[best])
    error = jackknife_error(law.without[:, largest] - law.without[:, best])
    if rise - students_t(len(law.without) - 1, 1 - SIGNIFICANCE) * error <= WORSE:
        return []
    (w, d), (bw, bd) = law.sizes[largest], law.sizes[best]
    return [
        Refusal(
            lack=Lack.WORSE,
            reason=(
                f"At its own best learning rate width {w} depth {d} ends {math.expm1(rise):.0%} "
                f"above width {bw} depth {bd}: the scheme breaks down as the model grows."
            ),
            advice="Use a scheme under which larger sizes train better, or train longer.",
        )
    ]


def refuse_price(penalty: Estimate) -> list[Refusal]:
    """A prediction that bounds nothing: the loss may more than double at the learning rate."""
    if penalty.high <= DEAREST:
        return []
    return [
        Refusal(
            lack=Lack.PRICE,
            reason=(
                "The target's best learning rate is so uncertain that the predicted one may cost "
                f"more than {DEAREST:.0%} of the loss."
            ),
            advice="Use more seeds, more sizes, or a nearer target.",
        )
    ]


def _bend(law: Law, axis: str) -> tuple[float, float]:
    """How much the slope along a dimension changes over the sizes measured, and its error.

    The coefficient of a square, times the range: with three sizes, the second slope minus the
    first.
    """
    x = law.distances(law.sizes)[:, law.axes.index(axis)]
    design = np.column_stack([law.design(law.sizes), (x - x.mean()) ** 2])
    weights = np.linalg.pinv(design)[-1] * np.ptp(x)
    return float(weights @ law.values), jackknife_error(law.without @ weights)


def _gap(law: Law, before: Law, axis: str) -> tuple[float, float]:
    """The late slope minus the early one, and its error."""
    weights = np.linalg.pinv(law.design(law.sizes))[1 + law.axes.index(axis)]
    return (
        float(weights @ (law.values - before.values)),
        jackknife_error((law.without - before.without) @ weights),
    )
