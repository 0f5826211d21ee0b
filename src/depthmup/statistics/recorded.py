"""The runs of a report that was read from its file: seed-averaged curves are all that is left."""

import math
from collections.abc import Sequence

from depthmup.posterior.curve import Curves as Arrays
from depthmup.records import Curve, Study
from depthmup.statistics.runs import Runs


def runs_in(studies: Sequence[Study]) -> tuple[Runs, ...]:
    """The curves of all studies, by variant, as if each point were one run."""
    found: dict[str, dict[tuple[tuple[str, float], ...], Curve]] = {}
    titles: dict[str, str] = {}
    for study in studies:
        titles |= {t.scheme: t.title for t in study.headline.transfers}
        for curve in study.headline.curves:
            found.setdefault(curve.scheme, {}).setdefault(tuple(curve.size.items()), curve)
    return tuple(
        Runs(
            name=scheme,
            title=titles.get(scheme, scheme),
            sizes=tuple(dict(curve.size) for curve in curves.values()),
            curves=Arrays.of(
                [[point.log2_lr for point in curve.points] for curve in curves.values()],
                [_losses(curve) for curve in curves.values()],
            ),
        )
        for scheme, curves in found.items()
    )


def _losses(curve: Curve) -> list[list[float]]:
    """One run for each point; those of which a seed diverged are none that one would choose."""
    return [
        [point.loss.value if point.loss.known and not point.diverged else math.inf]
        for point in curve.points
    ]
