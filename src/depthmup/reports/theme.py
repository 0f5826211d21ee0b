"""How everything looks: the palette, the tones of verdicts, the sizes of charts, Vega-Lite's theme.

Colour means a verdict and nothing else. Sizes are ordered, so they take one hue from light to dark.
Schemes are not: they take blues and greys, and a shape and a label say the same a second time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from depthmup.records.text import BAD, MUTED, TONES

VEGA_LITE = "6.4"
"""The version of specifications, which vl-convert draws and pages bring with them."""

INK, GRID, BAND = "#1f2430", "#e6e8ec", "#d5d9e0"
BLUE = "#0072b2"
FONT = '"Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif'

PAPER_COLOURS = {
    "light": {
        "ink": INK, "muted": MUTED, "line": "#e1e4e9", "soft": "#f6f7f9", "paper": "#ffffff",
        "link": BLUE, "bad": BAD,
    },
    "dark": {
        "ink": "#e8eaee", "muted": "#a3acba", "line": "#333a44", "soft": "#1d2127",
        "paper": "#15181d", "link": "#6cb8ea", "bad": "#ff9a66", "tip": "#262b33",
        "edge": "#444c58",
    },
}  # fmt: skip
"""The colours of a page, on white paper and on a dark screen."""

_BLUES = ("#8bb8e0", "#5a9bd5", "#2f7dbf", "#145c9e", "#0b4079", "#062550")
# Of things without an order.
SERIES = ("#145c9e", "#5b6472", "#3f8fd2", "#1f2430", "#7b8594", "#0b3c6f", "#5a86ad")
SHAPES = {
    "circle": "●",
    "square": "■",
    "diamond": "◆",
    "triangle-right": "▶",
    "triangle-left": "◀",
    "cross": "✚",
    "M0,-1L.95,-.31L.59,.81L-.59,.81L-.95,-.31Z": "⬟",
}


def tone(verdict: str) -> str:
    """The colour of a verdict; that of muted words for any other.

    Args:
        verdict: a word, such as "transfers", "fail" or "undecided".

    Returns:
        The colour, as six digits.

    Example:
        >>> tone("transfers") == tone("pass"), tone("no verdict") == MUTED
        (True, True)
    """
    return TONES.get(verdict, MUTED)


def ramp(count: int) -> list[str]:
    """Colours of ordered things, from light to dark."""
    if count == 1:
        return [_BLUES[-3]]
    step = (len(_BLUES) - 1) / max(count - 1, 1)
    return [_blend(_BLUES, i * step) for i in range(count)]


def sign(shape: str) -> str:
    """A shape as a letter, for a legend of words; that of a line for anything else."""
    return SHAPES.get(shape, "━")


def _blend(ramp: Sequence[str], index: float) -> str:
    """The colour at a fractional index of a ramp."""
    lower = min(int(index), len(ramp) - 2)
    part = index - lower
    pair = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in ramp[lower : lower + 2]]
    mixed = [round(a + (b - a) * part) for a, b in zip(*pair, strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


Width = int | Literal["container"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Style:
    """How large a chart is, and everything on it.

    Attributes:
        width: in pixels, those of a figure being points, or "container": as wide as its place.
        height: in pixels; a chart has its own unless given.
        type: the size of letters.
        stroke, area: widths of lines and areas of marks, as multiples of a page's.
        fit: whether the whole chart, axes included, keeps within the width.
        titled: whether the chart has its title.
        labels_from: in charts narrower than this, in pixels, lines have no labels beside them.
        room: what labels beside lines take of the axis, as a fraction of its length.
    """

    width: Width = 560
    height: int | None = None
    type: float = 12
    stroke: float = 1.0
    area: float = 1.0
    fit: bool = False
    titled: bool = True
    labels_from: int = 400
    room: float = 0.2


SCREEN = Style()
"""A picture of its own."""

PAGE = Style(width="container", titled=False)
"""As wide as its place on a page, under the page's own heading, which wraps."""


# Units are points, as PDF and SVG take them: 72 for an inch.
_FIGURE = Style(stroke=0.55, area=0.3, fit=True, titled=False, labels_from=100)
FIGURES = {
    "paper": replace(_FIGURE, width=234, height=159, type=8, room=0.36),
    "slide": replace(_FIGURE, width=396, height=238, type=9, room=0.26),
}
"""A column of a two-column paper, and half of a slide or the width of a one-column paper."""


def theme(style: Style = SCREEN) -> dict[str, Any]:
    """Vega-Lite's configuration: the colours, fonts and axes that all charts share."""
    compact = style.fit
    letters = {"labelFontSize": style.type, "titleFontSize": style.type}
    return {
        "font": FONT,
        "background": "white",
        # On the right, room for half of the last tick's label in fonts wider than the one measured.
        "padding": (
            {"left": 5, "top": 1, "right": 9, "bottom": 1}
            if compact
            else {"left": 6, "top": 6, "right": 14, "bottom": 6}
        ),
        "view": {"stroke": None},
        "axis": {
            "gridColor": GRID,
            "domainColor": MUTED,
            "tickColor": MUTED,
            "labelColor": INK,
            "titleColor": INK,
            "titleFontWeight": "normal",
            "titlePadding": 4 if compact else 8,
            "labelOverlap": True,
            **letters,
        },
        "legend": {
            "labelColor": INK,
            "titleColor": INK,
            "symbolSize": 40 if compact else 90,
            **letters,
        },
        "title": {
            "color": INK,
            "subtitleColor": MUTED,
            "fontSize": style.type if compact else 15,
            "subtitleFontSize": style.type,
            "anchor": "start",
            "offset": 3 if compact else 12,
        },
        "text": {"fontSize": style.type},
    }
