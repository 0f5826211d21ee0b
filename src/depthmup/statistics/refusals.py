"""Why nothing is certified: each reason, and what would lift it."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from depthmup.records import LEARNING_RATE, Estimate, Optimum, Place, Tuned
from depthmup.records.certificate import Lack, Refusal, TargetProbe
from depthmup.records.finding import change
from depthmup.records.sizes import size_name, size_names
from depthmup.records.study import RUN_AXES, sizes_along
from depthmup.statistics.certificate_laws import CertificateLaws, volume
from depthmup.statistics.drift import TOLERANCE
from depthmup.statistics.intervals import Array, jackknife_error, student
from depthmup.statistics.law import SCATTER, Law, Size
from depthmup.statistics.optimum import FEWEST_INSIDE, Optima
from depthmup.statistics.regression import PRIOR_FREEDOM

# A sound sweep is refused by chance in one of twenty cases, shared by all sizes or axes tested.
SIGNIFICANCE = 0.05

LARGEST_EXCESS = 1.0
"""The largest bound on the excess loss, as a fraction of the best loss, that is worth having."""

WORSE = 0.05
"""How much higher the log of the best loss may be at the largest size than at a smaller one."""

INITIAL, FIRST_STEPS = 1.2, 1.15
"""Losses at the target over those at a measured size above which training breaks down there.

Before training, over the base's: of 91 certificates that held none was above 1.16, of 12 that
missed seven were above 1.34. After twenty steps, over the largest measured size's: nine misses of a
scheme that breaks down had 1.16 or more, 61 that held 1.06 or less (docs/studies/calibration.md).
"""


def refuse_measurements(
    measured: Sequence[Optimum],
    fitted: Optima,
    *,
    given: bool = False,
    tuned: Tuned = LEARNING_RATE,
) -> Iterator[Refusal]:
    """What is wrong with the measurements, size by size, and could be measured better."""

    def named(which: Sequence[Optimum]) -> str:
        return size_names([o.size for o in which], [o.size for o in measured])

    lonely = fitted.curves.fewest_seeds < 2 and not given
    if lonely:
        yield Refusal(
            lack=Lack.SEEDS,
            reason="One seed says nothing about the scatter of runs.",
            advice="Measure with two seeds or more; three give intervals three times shorter.",
        )
    if failed := [o for o in measured if o.place is Place.FAILED]:
        yield Refusal(
            lack=Lack.FAILED,
            reason=f"No {tuned.name} trains at {named(failed)}.",
            advice="Extend the grid downwards, or use a scheme under which these sizes train.",
        )
    interior = [i for i, o in enumerate(measured) if o.place is Place.INTERIOR]
    # Then the valley that these show leads on beyond the edges of others.
    shown = given and len(interior) >= FEWEST_INSIDE
    for edge, way in ((Place.LOW_EDGE, "downwards"), (Place.HIGH_EDGE, "upwards")):
        if not shown and (edges := [o for o in measured if o.place is edge]):
            yield Refusal(
                lack=Lack.EDGE,
                reason=f"The best {tuned.name} is at the edge of the grid at {named(edges)}.",
                advice=f"Extend the grid of {tuned.plural} {way}.",
            )
    walls = [measured[i] for i in interior if fitted.wall[i]]
    if walls:
        yield Refusal(
            lack=Lack.WALL,
            reason=(
                f"At {named(walls)} {tuned.one} next to the best one diverges, so that "
                "the optimum is known to a step of the grid only."
            ),
            advice=f"Use a finer grid of {tuned.plural}.",
        )
    # A t test over sizes needs a curvature at each: it is made where nothing else is wrong.
    noisy = [i for i in interior if not fitted.wall[i] and math.isnan(fitted.curvature[i])]
    if not (noisy or lonely or walls or len(interior) < len(measured)):
        noisy = noisy_sizes(fitted)
    if alone := [i for i in noisy if np.isnan(fitted.curvature_without[i]).any()]:
        yield Refusal(
            lack=Lack.NOISE,
            reason=(
                f"At {named([measured[i] for i in alone])} most {tuned.plural} around the optimum "
                "were trained with one seed alone."
            ),
            advice=f"Train each of these {tuned.plural} with a second seed.",
        )
    if noisy := [i for i in noisy if i not in alone]:
        where = named([measured[i] for i in noisy])
        yield Refusal(
            lack=Lack.NOISE,
            reason=f"At {where} seeds scatter more than {tuned.the} matters around the optimum.",
            advice=f"Use more seeds, longer windows, or a wider spacing of {tuned.plural}.",
        )


def noisy_sizes(fitted: Optima) -> list[int]:
    """Sizes at which the curvature around the optimum is not above zero beyond the seeds' scatter.

    The curvature is linear in the log losses of a seed, so this is a t test: of errors pooled over
    sizes, relative to each curvature, at Bonferroni's level. One seed shows no such scatter: how
    its points miss a parabola is mostly the valley's shape, and widens the law (``laws_of``).

    *Source:* Dunn (1961), Journal of the American Statistical Association 56:52-64, for the
    level.
    """
    count = len(fitted.curvature)
    if fitted.curves.fewest_seeds < 2:
        return []
    errors, freedoms = fitted.seed_error(fitted.curvature_without)
    relative = errors / fitted.curvature
    # An error that one seed alone leaves unknown says nothing of the other sizes.
    known = relative[np.isfinite(relative)]
    pooled = math.sqrt(float(np.mean(known**2))) if len(known) else math.inf
    bound = float(student(float(np.sum(freedoms)), 1 - 2 * SIGNIFICANCE / count))
    return [int(i) for i in np.flatnonzero(bound * np.maximum(relative, pooled) >= 1)]


def refuse_law(laws: CertificateLaws, before: CertificateLaws | None) -> Iterator[Refusal]:
    """A law that is not one: it moves ever faster, or it depends on the window of training.

    A law that slows down is none to refuse: predictions forget slopes, too.

    Both tests allow for the tolerance within which an optimum counts as staying where it is: a
    difference must be beyond it, and significantly so.
    """
    law = laws.optimum
    if not np.isfinite(law.without).all():
        return
    for i, axis in enumerate(law.axes):
        slope = float(law.inverse[1 + i] @ law.values)
        bend, weights = _bend(law, axis)
        # Sizes that scatter about one law look like a bend, too.
        scatter = SCATTER * float(np.linalg.norm(weights))
        half = _half(law, weights, law.without @ weights, scatter)
        # Few seeds may agree by chance: their scatter is no less than that of points.
        valley = laws.found.valley
        noise = math.sqrt(float(weights @ valley.noise @ weights))
        half = max(half, float(student(valley.freedom, 1 - SIGNIFICANCE / len(law.axes))) * noise)
        if abs(bend) - half > TOLERANCE and slope * bend > 0:
            yield Refusal(
                lack=Lack.SMALL,
                reason=(
                    f"The optimum moves ever faster along {axis}: its change per doubling differs "
                    f"by {change(bend)} between the smallest and the largest sizes."
                ),
                advice=f"Drop the smallest {sizes_along(axis)} and measure at larger ones.",
            )
    early = None if before is None else before.optimum
    if early is None or not (np.isfinite(early.without).all() and np.isfinite(early.values).all()):
        return
    for i, axis in enumerate(law.axes):
        weights = law.inverse[1 + i]
        gap = float(weights @ (law.values - early.values))
        if abs(gap) - _half(law, weights, (law.without - early.without) @ weights) > TOLERANCE:
            yield Refusal(
                lack=Lack.WINDOWS,
                reason=(
                    f"From the early to the late window the slope against {axis} changes by "
                    f"{change(gap)} per doubling: the law is still moving."
                ),
                advice="Train longer, until the law stays; judge at the end.",
            )


def _bend(law: Law, axis: str) -> tuple[float, Array]:
    """How much the slope along an axis changes over the sizes measured, and the values' weights.

    The coefficient of a square, times the range: with three sizes, the second slope minus the
    first. None with two values of the axis.
    """
    x = law.distances(law.sizes)[:, law.axes.index(axis)]
    square = (x - x.mean()) ** 2
    # Where all grew together, squares and products are one and the same.
    terms = law.terms if _independent(square, law.terms) else law.straight
    if not _independent(square, terms):
        return 0.0, np.zeros(len(x))
    weights = np.linalg.pinv(np.column_stack([terms, square]))[-1] * np.ptp(x)
    return float(weights @ law.values), weights


def _independent(column: Array, columns: Array) -> bool:
    rank = np.linalg.matrix_rank
    return bool(rank(np.column_stack([columns, column])) > rank(columns))


def _half(law: Law, weights: Array, without: Array, scatter: float = 0.0) -> float:
    """Half-width of a combination of optima, seeds and fit, at Bonferroni's level over axes."""
    confidence = 1 - SIGNIFICANCE / len(law.axes)
    misfit = math.hypot(scatter, math.sqrt(float(weights @ law.known @ weights)))
    if not len(law.without):  # one seed: what is known of its scatter stands in the misfit
        return float(student(PRIOR_FREEDOM, confidence)) * misfit
    error, freedom = jackknife_error(without, law.groups)
    return math.hypot(
        float(student(freedom, confidence) * error),
        float(student(math.inf, confidence)) * misfit,
    )


def refuse_breakdown(laws: CertificateLaws, tuned: Tuned = LEARNING_RATE) -> Iterator[Refusal]:
    """The largest size trains worse than a smaller one: the scheme breaks down on the way up.

    Beyond there no law of smaller sizes holds; under standard parametrization nothing may train at
    the target at all. By t test, beyond a margin: at little training a little worse is normal.
    """
    law = laws.loss
    if not np.isfinite(law.without).all():
        return
    # A larger batch or a shorter run may well train worse, and no scheme has broken down: networks
    # are compared by the run of the base.
    alike = [
        i for i, size in enumerate(law.sizes)
        if all(size[axis] == law.base[axis] for axis in RUN_AXES if axis in size)
    ]  # fmt: skip
    if not alike:  # the base's optimum lies at an edge, and the others have other batches or runs
        return
    largest = max(alike, key=lambda i: volume(law.sizes[i]))
    best = min(alike, key=lambda i: float(law.values[i]))
    rise = float(law.values[largest] - law.values[best])
    error, freedom = jackknife_error(law.without[:, largest] - law.without[:, best], law.groups)
    if rise - float(student(freedom, 1 - SIGNIFICANCE) * error) <= WORSE:
        return
    yield Refusal(
        lack=Lack.WORSE,
        reason=(
            f"At its own best {tuned.name} {size_name(law.sizes[largest])} ends "
            f"{math.expm1(rise):.0%} above {size_name(law.sizes[best])}: the scheme breaks "
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


def refuse_excess_loss(excess: Estimate, tuned: Tuned = LEARNING_RATE) -> Iterator[Refusal]:
    """A prediction that bounds nothing: the loss may more than double at the predicted value."""
    if excess.high <= LARGEST_EXCESS:
        return
    yield Refusal(
        lack=Lack.UNCERTAIN,
        reason=(
            f"The target's best {tuned.name} is so uncertain that the predicted one may cost "
            f"more than {LARGEST_EXCESS:.0%} of the loss."
        ),
        advice="Use more seeds, more sizes, or a nearer target.",
    )
