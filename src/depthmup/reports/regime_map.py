"""Figure 1 of Tensor Programs VI: where every pair (alpha, gamma) lies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from depthmup.reports.style import configured
from depthmup.rules import REGIONS

if TYPE_CHECKING:
    import altair as alt

# From what must not be used to what should be: reds and greys, then blues, one green.
COLOURS = ("#b2182b", "#ef8a62", "#c9ced6", "#c2a5cf", "#92c5de", "#1b7837")


@dataclass(frozen=True, kw_only=True, slots=True)
class MapPoint:
    """One pair of exponents: the region ``found``, computed or measured, and the theory's.

    ``decided`` is False if a measurement cannot decide between regions.
    """

    alpha: Fraction
    gamma: Fraction
    found: str
    expected: str
    decided: bool = True


def regime_map(points: Sequence[MapPoint], *, title: str) -> "alt.Chart":
    """A map of the computed or measured regions; crosses mark points where the theory differs.

    Points that are not decided are hollow.

    *Source:* TP6 (arXiv 2310.02244) Figure 1.
    """
    result: alt.Chart = configured(_map(points, title=title))
    return result


def regime_maps(maps: Mapping[str, Sequence[MapPoint]]) -> "alt.HConcatChart":
    """Maps beside each other, by their titles."""
    import altair as alt

    result: alt.HConcatChart = configured(
        alt.hconcat(*(_map(points, title=title) for title, points in maps.items()))
    )
    return result


def _map(points: Sequence[MapPoint], *, title: str) -> Any:
    import altair as alt

    rows = [
        {
            "alpha": float(point.alpha),
            "gamma": float(point.gamma),
            "pair": f"({point.alpha}, {point.gamma})",
            "region": point.found,
            "theory": point.expected,
            "decided": "yes" if point.decided else "no",
        }
        for point in points
    ]
    wrong = [row for row in rows if row["region"] != row["theory"]]
    x = alt.X(
        "alpha:Q",
        title="alpha: branch multiplier L^-alpha",
        scale=_padded([point.alpha for point in points]),
        axis=_axis([point.alpha for point in points]),
    )
    y = alt.Y(
        "gamma:Q",
        title="gamma: updates inside branches L^-gamma",
        scale=_padded([point.gamma for point in points]),
        axis=_axis([point.gamma for point in points]),
    )
    colour = alt.Color(
        "region:N", title="region", scale=alt.Scale(domain=list(REGIONS), range=list(COLOURS))
    )
    # Hollow squares are drawn within the same outline: their stroke lies half outside.
    styles: dict[str, dict[str, Any]] = {
        "yes": {"filled": True, "size": 320},
        "no": {"filled": False, "size": 200, "strokeWidth": 4},
    }
    squares = [
        alt.Chart(alt.Data(values=[row for row in rows if row["decided"] == decided]))
        .mark_point(shape="square", opacity=1, **style)
        .encode(x=x, y=y, color=colour, tooltip=["pair:N", "region:N", "theory:N", "decided:N"])
        for decided, style in styles.items()
    ]
    crosses = (
        alt.Chart(alt.Data(values=wrong))
        .mark_point(shape="cross", angle=45, filled=True, color="black", size=120)
        .encode(x="alpha:Q", y="gamma:Q")
    )
    return alt.layer(*squares, crosses).properties(title=title, width=420, height=420)


def _padded(values: Sequence[Fraction]) -> "alt.Scale":
    """A scale that leaves room for the squares at its ends."""
    import altair as alt

    low, high = float(min(values)), float(max(values))
    pad = 0.06 * max(high - low, 0.1)
    return alt.Scale(domain=[low - pad, high + pad], nice=False, zero=False)


def _axis(values: Sequence[Fraction]) -> "alt.Axis":
    """Ticks at the multiples of 1/4 within the values: where the theory's named points lie."""
    import altair as alt

    quarters = range(math.ceil(4 * min(values)), math.floor(4 * max(values)) + 1)
    return alt.Axis(grid=False, values=[k / 4 for k in quarters], format=".2~f")
