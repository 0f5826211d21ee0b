"""The laws that a certificate rests on: of the optimum, the curvature and the best loss."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from depthmup.records import Place
from depthmup.statistics.intervals import Array, Index
from depthmup.statistics.law import Law, Size
from depthmup.statistics.minimum import Minima

CURVATURE_SCALE = 3.0
"""Scale of the residuals of log2 curvature, over that of the optimum's: a curvature is a second
difference, and far less sharp."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificateLaws:
    """The laws of the minimum, of log2 curvature and of the log of the best loss.

    Attributes:
        found: the minima.
        clear: indices of the sizes whose optima lie inside their grids; the others, at an edge,
            have a minimum by the valley of all, and no part in the other two laws.
    """

    optimum: Law
    curvature: Law
    loss: Law
    found: Minima
    clear: Index


def volume(size: Size) -> float:
    """The product of a size's values: what is larger than what."""
    return math.prod(size.values())


def laws_of(found: Minima, sizes: Sequence[Size], base: Size) -> CertificateLaws:
    """The laws of the minimum, of log2 curvature and of the log of the best loss."""
    fitted, valley = found.fitted, found.valley
    alone = fitted.curves.fewest_seeds < 2
    everywhere = np.arange(len(sizes))
    clear = np.flatnonzero([place is Place.INTERIOR for place in fitted.places()])

    def law(
        values: Array,
        without: Array,
        known: Array,
        stream: int,
        scale: float = 1.0,
        at: Index = clear,
    ) -> Law:
        """One law of the sizes; of different streams, laws err independently."""
        return Law(
            base=base,
            sizes=tuple(sizes[i] for i in at),
            values=values[at],
            without=np.zeros((0, len(at))) if alone else np.moveaxis(without[at], -1, 0),
            groups=[] if alone else fitted.curves.groups,
            known=known[np.ix_(at, at)],
            scale=scale,
            stream=stream,
        )

    nothing = np.zeros((len(sizes), len(sizes)))
    with np.errstate(invalid="ignore", divide="ignore"):
        # Of log2 c the standard error is that of c over c ln 2.
        blurred = fitted.curvature_scatter / fitted.curvature / math.log(2)
        bends = np.log2(fitted.curvature), np.log2(fitted.curvature_without)
    level = np.eye(len(sizes)) * fitted.point_variance if alone else nothing
    bend = np.diag(blurred**2) if alone else nothing
    return CertificateLaws(
        # Several seeds show what is noise.
        optimum=law(
            valley.minimum, valley.without, valley.left + alone * valley.noise, 0, at=everywhere
        ),
        curvature=law(*bends, bend, 1, CURVATURE_SCALE),
        loss=law(found.log_loss, found.log_loss_without, level, 2),
        found=found,
        clear=clear,
    )
