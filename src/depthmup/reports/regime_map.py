"""Figure 1 of Tensor Programs VI: where every pair (alpha, gamma) lies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from depthmup.reports.style import configured
from depthmup.rules import REGIONS

if TYPE_CHECKING:
    import altair as alt

# From what must not be used to what should be: reds and greys, then blues, one green.
COLOURS = ("#b2182b", "#ef8a62", "#c9ced6", "#c2a5cf", "#92c5de", "#1b7837")


@dataclass(frozen=True, kw_only=True, slots=True)
class MapPoint:
    """One pair of exponents: the region it was found in, and the one that theory gives it."""

    alpha: Fraction
    gamma: Fraction
    found: str
    expected: str


def regime_map(points: Sequence[MapPoint], *, title: str) -> "alt.Chart":
    """A map of the found regions; a cross marks a point where theory says otherwise.

    *Source:* TP6 (arXiv 2310.02244) Figure 1.
    """
    import altair as alt

    rows = [
        {
            "alpha": float(point.alpha),
            "gamma": float(point.gamma),
            "pair": f"({point.alpha}, {point.gamma})",
            "region": point.found,
            "theory": point.expected,
        }
        for point in points
    ]
    wrong = [row for row in rows if row["region"] != row["theory"]]
    x = alt.X(
        "alpha:Q",
        title="alpha: branch multiplier L^-alpha",
        scale=_padded([point.alpha for point in points]),
        axis=alt.Axis(grid=False, values=_quarters([point.alpha for point in points])),
    )
    y = alt.Y(
        "gamma:Q",
        title="gamma: updates inside branches L^-gamma",
        scale=_padded([point.gamma for point in points]),
        axis=alt.Axis(grid=False, values=_quarters([point.gamma for point in points])),
    )
    squares = (
        alt.Chart(alt.Data(values=rows))
        .mark_point(shape="square", filled=True, size=320, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "region:N",
                title="region",
                scale=alt.Scale(domain=list(REGIONS), range=list(COLOURS)),
            ),
            tooltip=["pair:N", "region:N", "theory:N"],
        )
    )
    crosses = (
        alt.Chart(alt.Data(values=wrong))
        .mark_point(shape="cross", angle=45, filled=True, color="black", size=120)
        .encode(x="alpha:Q", y="gamma:Q")
    )
    return configured((squares + crosses).properties(title=title, width=420, height=420))


def _padded(values: Sequence[Fraction]) -> "alt.Scale":
    """A scale that leaves room for the squares at its ends."""
    import altair as alt

    low, high = float(min(values)), float(max(values))
    pad = 0.06 * max(high - low, 0.1)
    return alt.Scale(domain=[low - pad, high + pad], nice=False, zero=False)


def _quarters(values: Sequence[Fraction]) -> list[float]:
    """The multiples of 1/4 within the values: where the named points of the theory lie."""
    return [k / 4 for k in range(math.ceil(4 * min(values)), math.floor(4 * max(values)) + 1)]
