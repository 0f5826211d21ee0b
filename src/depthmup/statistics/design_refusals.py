"""Why sizes cannot certify a target: too few of them, or a target too far away or beside them."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from depthmup.records import LEARNING_RATE, Tuned
from depthmup.records.certificate import Lack, Refusal
from depthmup.records.sizes import size_number
from depthmup.records.study import sizes_along
from depthmup.records.text import begin
from depthmup.statistics.certificate_laws import CertificateLaws
from depthmup.statistics.law import Size

FARTHEST = 16
"""How many times the largest size measured a target may be, along each axis."""


def refuse_design(
    sizes: Sequence[Size],
    base: Size,
    target: Size,
    laws: CertificateLaws | None,
    *,
    tuned: Tuned = LEARNING_RATE,
) -> list[Refusal]:
    """Too few sizes, or a target too far away or beside the sizes measured."""
    varied = [axis for axis in base if len({size[axis] for size in sizes}) > 1]
    refusals = [
        *_too_few(sizes, varied, target, laws),
        *_too_far(sizes, base, target),
        *_no_corner(sizes, base, target),
    ]
    # Where sizes are lacking that is the reason, and not what their law cannot reach.
    if laws is not None and not refusals:
        refusals += _unreachable(laws, varied, target, tuned)
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
                advice=f"Measure at three {sizes_along(axis)} or more.",
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


def _too_few(
    sizes: Sequence[Size], varied: Sequence[str], target: Size, laws: CertificateLaws | None
) -> Iterator[Refusal]:
    def values(axis: str) -> set[float]:
        return {size[axis] for size in sizes}

    # Along an axis whose measured range holds the target no law is continued.
    grown = [a for a in varied if not min(values(a)) <= target[a] <= max(values(a))]
    counts = {axis: len(values(axis)) for axis in grown or varied}
    enough = len(sizes) >= 3 and (not grown or min(counts.values()) >= 3)
    if enough and (laws is None or laws.optimum.freedom >= 1):
        return
    numbers = ", ".join(f"{n} in {axis}" for axis, n in counts.items()) or "one"
    yield Refusal(
        lack=Lack.SIZES,
        reason=f"A law and its error need three sizes or more; there are {numbers}.",
        advice="Measure at three sizes or more along each axis that is to grow.",
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


def _unreachable(
    laws: CertificateLaws, varied: Sequence[str], target: Size, tuned: Tuned
) -> Iterator[Refusal]:
    if not laws.optimum.reaches(target):
        yield Refusal(
            lack=Lack.DIRECTION,
            reason=(
                f"{begin(' and '.join(varied))} grew together, and the target does not "
                "lie on their line."
            ),
            advice=f"Vary {' and '.join(varied)} apart from each other, or aim at their line.",
        )
    elif not all(np.isfinite(law.without).all() for law in (laws.optimum, laws.curvature)):
        yield Refusal(
            lack=Lack.NOISE,
            reason="Leaving out one seed leaves no valley at some size.",
            advice=f"Use more seeds, or a wider grid of {tuned.plural}.",
        )
