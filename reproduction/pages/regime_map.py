"""Figure 1 of Tensor Programs VI: where every pair (alpha, gamma) lies."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from depthmup.reports import INK, Page, Picture, Plot, Section, Table, configured
from depthmup.rules import CATALOGUE, REGIONS

Row = dict[str, Any]
Pair = tuple[Fraction, Fraction]

# From what must not be used to what should be: reds and greys, then blues, one green.
COLOURS = ("#b2182b", "#ef8a62", "#c9ced6", "#c2a5cf", "#92c5de", "#1b7837")


@dataclass(frozen=True, kw_only=True, slots=True)
class MapPoint:
    """One pair of exponents: the ``region``, computed or measured, and the theory's.

    ``decided`` is False if a measurement cannot decide between regions.

    Attributes:
        alpha, gamma: the exponents.
        expected: the region that theory computes.
    """

    alpha: Fraction
    gamma: Fraction
    region: str
    expected: str
    decided: bool = True


def regime_map(points: Sequence[MapPoint], *, title: str) -> Picture:
    """A map of the computed or measured regions; crosses mark points where the theory differs.

    Points that are not decided are hollow.

    Example:
        >>> from fractions import Fraction
        >>> half = Fraction(1, 2)
        >>> point = MapPoint(alpha=half, gamma=half, region="Depth-muP", expected="Depth-muP")
        >>> regime_map([point], title="One pair").spec["title"]
        'One pair'

    *Source:* TP6 (arXiv 2310.02244) Figure 1.
    """
    return configured(_map(points, title=title))


def regime_maps(maps: Mapping[str, Sequence[MapPoint]]) -> Picture:
    """Maps beside each other, by their titles.

    Example:
        >>> from fractions import Fraction
        >>> half = Fraction(1, 2)
        >>> point = MapPoint(alpha=half, gamma=half, region="Depth-muP", expected="Depth-muP")
        >>> len(regime_maps({"computed": [point], "measured": [point]}).spec["hconcat"])
        2
    """
    return configured({"hconcat": [_map(points, title=title) for title, points in maps.items()]})


def _map(points: Sequence[MapPoint], *, title: str, page: bool = False) -> dict[str, Any]:
    """The map of one measurement; on a page as wide as that, with its legend below."""
    rows: list[Row] = [
        {
            "alpha": float(point.alpha),
            "gamma": float(point.gamma),
            "pair": f"({point.alpha}, {point.gamma})",
            "region": point.region,
            "theory": point.expected,
            "decided": "yes" if point.decided else "no",
        }
        for point in points
    ]
    wrong = [row for row in rows if row["region"] != row["theory"]]
    place = {
        "x": _channel("alpha", "branch multiplier L^-alpha", [point.alpha for point in points]),
        "y": _channel("gamma", "updates inside branches L^-gamma", [p.gamma for p in points]),
    }
    colour = {
        **_name("region"),
        "title": "region",
        "scale": {"domain": list(REGIONS), "range": list(COLOURS)},
        "legend": {"orient": "bottom", "columns": _COLUMNS if page else 3},
    }
    # Hollow squares are drawn within the same outline: their stroke lies half outside.
    styles: dict[str, dict[str, Any]] = {
        "yes": {"filled": True, "size": _sized(480, page=page)},
        "no": {"filled": False, "size": _sized(320, page=page), "strokeWidth": 4},
    }
    tips = [_name(column) for column in ("pair", "region", "theory", "decided")]
    squares = [
        {
            **_rows([row for row in rows if row["decided"] == decided]),
            "mark": {"type": "point", "shape": "square", "opacity": 1, **style},
            "encoding": {**place, "color": colour, "tooltip": tips},
        }
        for decided, style in styles.items()
    ]
    cross = {"shape": "cross", "angle": 45, "filled": True, "color": "black", "size": 120}
    crosses = {**_rows(wrong), "mark": {"type": "point", **cross}, "encoding": _AT}
    layers = [_line(points), *squares, crosses, *_schemes(points, page=page)]
    width = "container" if page else 560
    return {"title": title, "width": width, "height": 520, "layer": layers}


def _rows(values: Sequence[Row]) -> dict[str, Any]:
    return {"data": {"values": list(values)}}


def _name(column: str) -> dict[str, Any]:
    return {"field": column, "type": "nominal"}


def _number(column: str) -> dict[str, Any]:
    return {"field": column, "type": "quantitative"}


_AT = {"x": _number("alpha"), "y": _number("gamma")}
"""Where a point of the map lies."""


def _channel(exponent: str, means: str, values: Sequence[Fraction]) -> dict[str, Any]:
    """An exponent as an axis, with room for the squares at its ends.

    Ticks stand at the multiples of 1/4, where the theory's named points lie.
    """
    low, high = float(min(values)), float(max(values))
    pad = 0.06 * max(high - low, 0.1)
    quarters = range(math.ceil(4 * min(values)), math.floor(4 * max(values)) + 1)
    return {
        **_number(exponent),
        "title": f"{exponent}: {means}",
        "scale": {"domain": [low - pad, high + pad], "nice": False, "zero": False},
        "axis": {"grid": False, "values": [k / 4 for k in quarters], "format": ".2~f"},
    }


def _sized(area: int, *, page: bool) -> Any:
    """Squares that do not touch where the chart of a page is narrow, as on a telephone.

    A picture has its own width; of several maps side by side there is no one ``width`` in Vega.
    """
    return {"expr": f"{area} * pow(min(width, 560) / 560, 2)"} if page else area


_COLUMNS = {"expr": "width < 400 ? 1 : 3"}


def _shown(*, page: bool) -> Any:
    """Opacity of words on the map: where it is narrow, the colours' legend names regions alone."""
    return {"expr": "width < 400 ? 0 : 1"} if page else 1


def _line(points: Sequence[MapPoint]) -> dict[str, Any]:
    """alpha + gamma = 1: below it training diverges with depth, above it nothing is learned."""
    low, high = (float(end([p.gamma for p in points])) for end in (min, max))
    left, right = (float(end([p.alpha for p in points])) for end in (min, max))
    ends = [max(left, 1 - high), min(right, 1 - low)]
    look = {"color": INK, "strokeWidth": 14, "opacity": 0.18, "strokeCap": "round"}
    rows = [{"alpha": alpha, "gamma": 1 - alpha} for alpha in ends]
    return {**_rows(rows), "mark": {"type": "line", **look}, "encoding": _AT}


def _schemes(points: Sequence[MapPoint], *, page: bool) -> list[dict[str, Any]]:
    """The published schemes where they lie on the map."""
    middle = sum(float(end([p.alpha for p in points])) for end in (min, max)) / 2
    rows: list[dict[str, Any]] = [
        {
            "alpha": float(alpha),
            "gamma": float(gamma),
            "schemes": ", ".join(names),
            # Left ones above their points and right ones below, where neighbours' words would meet.
            "beside": float(gamma) + (-0.055 if alpha > middle else 0.055),
        }
        for (alpha, gamma), names in sorted(_named(points).items())
    ]
    tip = {"tooltip": _name("schemes")}
    dot = {"filled": True, "size": 60, "color": INK, "stroke": "white", "opacity": 1}
    layers = [{**_rows(rows), "mark": {"type": "point", **dot}, "encoding": {**_AT, **tip}}]
    place = {"x": _number("alpha"), "y": _number("beside"), "text": _name("schemes"), **tip}
    for align, right in (("left", False), ("right", True)):
        # To the left of its point where the map ends soon; a halo keeps it legible on any colour.
        side = _rows([row for row in rows if (row["alpha"] > middle) is right])
        font = {"fontSize": 11, "align": align, "dx": 6 if right else -6}
        font["opacity"] = _shown(page=page)
        halo = {"stroke": "white", "strokeWidth": 3, "strokeJoin": "round", "color": "white"}
        layers += [
            {**side, "mark": {"type": "text", **look, **font}, "encoding": place}
            for look in (halo, {"color": INK})
        ]
    return layers


def _named(points: Sequence[MapPoint]) -> dict[Pair, list[str]]:
    """The published schemes within the map, by their exponents."""
    alphas, gammas = ([getattr(p, name) for p in points] for name in ("alpha", "gamma"))
    named: dict[Pair, list[str]] = {}
    for scheme in CATALOGUE:
        on_map = min(alphas) <= scheme.alpha <= max(alphas)
        if on_map and min(gammas) <= scheme.gamma <= max(gammas):
            named.setdefault((scheme.alpha, scheme.gamma), []).append(_short(scheme.title))
    return {pair: [*dict.fromkeys(names)] for pair, names in named.items()}


def _short(title: str) -> str:
    """A title for a label; ``(1/2, 0)`` is what the axes say already."""
    return "branches alone" if title.startswith("(") else title


def regimes_page(
    maps: Mapping[str, Sequence[MapPoint]], *, headline: str, command: Sequence[str] = ()
) -> str:
    """The maps as one page, with what the regions mean.

    Example:
        >>> from fractions import Fraction
        >>> half = Fraction(1, 2)
        >>> point = MapPoint(alpha=half, gamma=half, region="Depth-muP", expected="Depth-muP")
        >>> text = regimes_page({"computed": [point]}, headline="Depth-muP learns features.")
        >>> "learns features." in text
        True
    """
    sections = [
        Section(title=title, plots=[Plot(chart=configured(_map(points, title="", page=True)))])
        for title, points in maps.items()
    ]
    points = [point for of_map in maps.values() for point in of_map]
    regions = {(p.alpha, p.gamma): p.region for p in points}
    placed = {pair: names for pair, names in _named(points).items() if pair in regions}
    rows = []
    for name, means in zip(REGIONS, _MEANINGS, strict=True):
        # A telephone's map has no room for the names of schemes.
        inside = [s for pair, names in placed.items() if regions[pair] == name for s in names]
        schemes = ", ".join(inside)
        rows.append({"region": f"{name}\n{schemes}".rstrip(), "in very deep networks": means})
    table = Table(rows=rows, wrapped=("in very deep networks",), name="Regions")
    return Page(
        title="Regimes of depth",
        headline=headline,
        lead=[" ".join(_legend(points))],
        sections=[*sections, Section(title="The regions", table=table)],
        command=command,
    ).html()


def _legend(points: Sequence[MapPoint]) -> Iterator[str]:
    """What the map shows; marks are explained where it has them."""
    # No line breaks behind a minus sign, as one may behind a hyphen.
    yield (
        "L is the depth: a branch is multiplied by L^\N{MINUS SIGN}alpha, and an update inside it "
        "has size L^\N{MINUS SIGN}gamma. The grey band is alpha + gamma = 1. Dots are published "
        "schemes."
    )
    if any(p.decided and p.region != p.expected for p in points):
        yield "A cross marks a pair outside the region of Claims 7.1 to 7.6."
    if not all(p.decided for p in points):
        yield "A hollow square is a pair that networks cannot decide."


_MEANINGS = (
    "The output explodes before training.",
    "Updates add up and explode.",
    "Updates vanish: the network does not learn.",
    "Pre-activations grow without bound, so nonlinearities no longer see inputs of order one.",
    "Training is stable and features are learned, but neighbouring layers learn the same.",
    "Training is stable and layers learn different features.",
)
