"""Figure 1 of the paper as data and as a picture: its grids of pairs, and the regions on them."""

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING

from depthmup.rules import regime
from reproduction.claims.panels import framed
from reproduction.evidence import Picture

if TYPE_CHECKING:
    from reproduction.pages.regime_map import MapPoint

Pair = tuple[Fraction, Fraction]
"""(alpha, gamma)."""

ALPHAS = tuple(Fraction(k, 8) for k in range(13))
GAMMAS = tuple(Fraction(k, 8) for k in range(-4, 9))
"""Of the computed map, in eighths: from SP (0, 0) to beyond the faithful line alpha = 1."""

TRAINED: tuple[Pair, ...] = tuple(
    (Fraction(a, 4), Fraction(g, 4)) for a, g in product(range(1, 6), range(-1, 4))
)
"""Of the trained map: alpha from 1/4 to 5/4 and gamma from -1/4 to 3/4, in quarters.

These lie around the line alpha + gamma = 1, with every region on both sides of it.
"""


def map_points(
    regions: Mapping[Pair, str], decided: Mapping[Pair, bool] | None = None
) -> "list[MapPoint]":
    """Pairs with the region they were found in, beside the one that Claims 7.1 to 7.6 give them.

    ``decided`` is False for pairs whose measurement leaves their region open.

    Example:
        >>> half = Fraction(1, 2)
        >>> (point,) = map_points({(half, half): "trivial"})
        >>> point.region, point.expected, point.decided
        ('trivial', 'Depth-muP', True)
    """
    from reproduction.pages.regime_map import MapPoint

    return [
        MapPoint(
            alpha=alpha,
            gamma=gamma,
            region=region,
            expected=regime(alpha, gamma).name,
            decided=decided is None or decided[alpha, gamma],
        )
        for (alpha, gamma), region in regions.items()
    ]


def map_picture(
    regions: Mapping[Pair, str],
    decided: Mapping[Pair, bool] | None = None,
    *,
    name: str,
    caption: str,
) -> Picture:
    """The map of the regions that pairs were found in, whether computed or measured."""
    from reproduction.pages.regime_map import regime_map

    points = map_points(regions, decided)
    caption = f"{caption}; a cross marks a pair that the paper puts elsewhere"
    if not all(point.decided for point in points):
        caption += ", a hollow square one whose region networks left open"
    return framed(regime_map(points, title=""), name=name, caption=f"{caption}.")
