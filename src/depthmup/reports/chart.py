"""A chart is layers over two axes; a layer is rows that are drawn alike.

One function draws all charts in the style of a page, a paper or a slide. A chart may hold several
windows of training: it shows the one that its parameter ``window_index`` names, the last unless a
slider says otherwise. Series in ``hidden_series`` are not drawn. Titles stand on the page or the
picture that shows a chart.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from depthmup.records import Estimate, Place
from depthmup.records.certificate import BandPoint
from depthmup.records.codec import strict
from depthmup.records.text import MUTED
from depthmup.reports.axes import PERCENT, RATE, SIZE, Axis
from depthmup.reports.picture import Picture, configured
from depthmup.reports.study_rows import Row
from depthmup.reports.theme import BAND, INK, SCREEN, Style

WINDOW, HIDDEN = "window_index", "hidden_series"
CROSS = "M-1,-1L1,1M-1,1L1,-1"  # an x; Vega's own "cross" is a plus
DASHED = {"color": MUTED, "strokeDash": [5, 4], "strokeWidth": 1.3}
GREY = {"color": BAND, "opacity": 0.75}
FAINT = {"opacity": 0.12}

Mark = Literal["line", "area", "point", "rule", "rect", "text"]
Tip = tuple[str, str, str]
"""A line of a tooltip: the column, its title, and the format of numbers."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Rows drawn alike: names of columns for their places, series, colours, shapes and words."""

    mark: Mark
    rows: Sequence[Row]  # with ``window`` if they belong to one
    x: str = ""
    y: str = ""
    x2: str = ""  # where areas, rules and rectangles end
    y2: str = ""
    by: str = ""  # the series, whose colour a row has
    tone: str = ""  # a row's own colour
    shape: str = ""
    text: str = ""
    beside: bool = False  # whether words stand beside the ends of lines, if there is room
    tips: Sequence[Tip] = ()
    where: str = ""  # a test of Vega's that a row must pass
    hollow: str = ""  # one for points that are white inside
    filled: bool = False  # whether outlined points have the colour of their series inside
    order: str = ""
    look: Mapping[str, Any] = field(default_factory=dict)  # widths and areas of a page


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Layers over two axes, from the lowest to the topmost."""

    layers: Sequence[Layer]
    x: Axis
    y: Axis
    colours: Mapping[Any, str] = field(default_factory=dict)  # by series
    shapes: Mapping[str, str] = field(default_factory=dict)  # by values of the shapes' columns
    legend: str = ""  # the title of a legend, where the style has room for one
    description: str = ""  # for readers who do not see it
    height: int = 320  # unless the style has one
    window: int = 0  # of training, shown first


def draw(chart: Chart, style: Style = SCREEN) -> Picture:
    """The chart as a picture in a style."""
    panel, rows = panel_of(chart, style)
    return configured({**panel, "params": parameters(chart), "datasets": rows}, style)


def specification(chart: Chart, style: Style) -> dict[str, Any]:
    """The chart's Vega-Lite specification."""
    return draw(chart, style).to_dict()


def panel_of(chart: Chart, style: Style) -> tuple[dict[str, Any], dict[str, list[Row]]]:
    """The layers of a chart, and their rows by the names under which layers share them."""
    layers, datasets = [], {}
    for layer in chart.layers:
        rows = strict(list(layer.rows))
        name = _dataset(rows)
        datasets[name] = rows
        layers.append({"data": {"name": name}, **_layer(chart, layer, style)})
    panel = {
        "width": style.width,
        "height": chart.height if style.height is None else style.height,
        "description": chart.description,
        "layer": layers,
    }
    return panel, datasets


def parameters(chart: Chart) -> list[dict[str, Any]]:
    """What a page may set: the window of training, and the series that its legend hides."""
    return [{"name": WINDOW, "value": chart.window}, {"name": HIDDEN, "value": []}]


def _dataset(rows: Sequence[Row]) -> str:
    """The name of rows, by which layers of the same ones share them."""
    text = json.dumps(rows, sort_keys=True, default=str)
    return f"data-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _layer(chart: Chart, layer: Layer, style: Style) -> dict[str, Any]:
    """A layer's specification, without its rows."""
    tests = []
    if any("window" in row for row in layer.rows):
        tests.append(f"datum.window === {WINDOW}")
    if layer.by:
        tests.append(f"indexof({HIDDEN}, datum['{layer.by}']) < 0")
    if layer.where:
        tests.append(layer.where)
    return {
        "mark": {"type": layer.mark, **_look(layer, style)},
        "encoding": {**_places(chart, layer, style), **_series(chart, layer, style)},
        **({"transform": [{"filter": test} for test in tests]} if tests else {}),
    }


def _look(layer: Layer, style: Style) -> dict[str, Any]:
    look = dict(layer.look)
    for name, factor in (("strokeWidth", style.stroke), ("size", style.area)):
        if name in look:
            look[name] *= factor
    if layer.mark == "point":
        look = {"opacity": 1, **look}
    if layer.mark == "text":
        look = {"lineBreak": "\n", **look}
    return look


def _places(chart: Chart, layer: Layer, style: Style) -> dict[str, Any]:
    """The channels of where a row is drawn."""
    channels: dict[str, Any] = {}
    for name, axis, column, end in (
        ("x", chart.x, layer.x, layer.x2),
        ("y", chart.y, layer.y, layer.y2),
    ):
        if column:
            channels[name] = _channel(axis, column, style)
        if end:
            channels[f"{name}2"] = {"field": end}
    if layer.order:
        channels["order"] = _number(layer.order)
    return channels


def _number(column: str) -> dict[str, Any]:
    return {"field": column, "type": "quantitative"}


def _name(column: str) -> dict[str, Any]:
    return {"field": column, "type": "nominal"}


def _channel(axis: Axis, column: str, style: Style) -> dict[str, Any]:
    if axis.names:
        # Sorted by number: a sort by name would put names into an expression of Vega's.
        return {
            **_name(column),
            "title": None,
            "sort": {"field": "order", "op": "min"},
            "axis": {
                "labelExpr": "split(datum.label, '\\n')",
                "ticks": False,
                "labelOverlap": False,
                "labelLimit": 200,
            },
        }
    return {
        **_number(column),
        "title": tip_title(axis.title) or None,
        "scale": _scale(axis, style),
        "axis": {
            "grid": axis.grid,
            "labelOverlap": "greedy",
            "labelSeparation": 4,
            **({"values": list(axis.ticks)} if axis.ticks else {"tickCount": 6}),
            **_labels(axis),
        },
    }


def _labels(axis: Axis) -> dict[str, Any]:
    if axis.format == RATE:
        small_or_large = "datum.value < 0.0099 || datum.value >= 9999"
        return {"labelExpr": f"format(datum.value, {small_or_large} ? '~e' : '.3~g')"}
    if axis.format == PERCENT:
        return {"labelExpr": "datum.value == 1 ? '0%' : format(datum.value - 1, '+.0%')"}
    if axis.format == SIZE:  # as ``records.sizes`` writes them
        many = "replace(format(datum.value, '.4~s'), 'G', 'B')"
        few = "format(datum.value, datum.value < 1e4 ? '.4~g' : '.6~g')"
        return {"labelExpr": f"datum.value < 1e6 ? {few} : {many}"}
    return {"format": axis.format}


def _scale(axis: Axis, style: Style) -> dict[str, Any]:
    """The axis as a scale, fixed whatever is drawn on it."""
    low = axis.low if axis.bottom is None else axis.bottom
    high: Any = axis.high if axis.top is None else axis.top
    if axis.room:
        roomy = axis.at(1 + style.room)
        high = {"expr": f"width < {style.labels_from} ? {high!r} : {roomy!r}"}
    if axis.log:
        return {"type": "log", "base": axis.base, "domain": [low, high], "nice": False}
    return {"domain": [low, high], "nice": False, "zero": False}


def _series(chart: Chart, layer: Layer, style: Style) -> dict[str, Any]:
    """The channels of colour, shape, words and tooltips."""
    channels: dict[str, Any] = {}
    if layer.by:
        names = list(chart.colours)
        legend = None
        if chart.legend and style.titled | style.fit and not layer.filled:
            legend = {"symbolType": "stroke", "symbolOpacity": 1, "symbolStrokeWidth": 3}
        # Names are not sorted: a sort would put them into an expression of Vega's.
        colour: dict[str, Any] = {
            **_name(layer.by),
            "scale": {"domain": names, "range": [chart.colours[name] for name in names]},
            "legend": legend,
            "title": tip_title(chart.legend) or None,
        }
        channels["fill" if layer.filled else "color"] = colour
        if layer.hollow:
            white = {"test": layer.hollow, "value": "white"}
            channels["fill"] = {**colour, "legend": None, "condition": white}
        if layer.mark in ("line", "area"):
            channels["detail"] = _name(layer.by)
    if layer.tone:
        channels["color"] = {**_name(layer.tone), "scale": None, "legend": None}
    if layer.shape:
        scale = {"domain": list(chart.shapes), "range": list(chart.shapes.values())}
        channels["shape"] = {**_name(layer.shape), "scale": scale, "legend": None}
    if layer.text:
        # Without text there is nothing that the layout would keep room for.
        narrow = {"test": f"width < {style.labels_from}", "value": ""}
        channels["text"] = {
            **_name(layer.text),
            **({"condition": narrow} if layer.beside else {}),
        }
    if layer.tips:
        channels["tooltip"] = [
            {
                **(_number(column) if form else _name(column)),
                "title": tip_title(title),
                **({"format": form} if form else {}),
            }
            for column, title, form in layer.tips
        ]
    return channels


EDGE_SHAPES = {Place.LOW_EDGE.value: "triangle-down", Place.HIGH_EDGE.value: "triangle-up"}
"""Of points whose optimum lies at an edge of its grid, by their ``mark``."""


def against_size(
    points: Sequence[Row],
    *,
    by: str,
    tips: Sequence[Tip] = (),
    lines: Sequence[Row] | None = None,
    bands: Sequence[Row] = (),
    aims: Sequence[Row] = (),
    failed: Sequence[Row] = (),
) -> list[Layer]:
    """Points with intervals, a line for each series, over a band around what is expected.

    Bands that belong to a series have its name in ``by``.

    A row has its place ``x``, ``value``, and the ends of its interval, ``band_low`` and
    ``band_high``, clipped to the axis; points have a ``mark``, which has a shape, and where a line
    is to be labelled, the ``words`` with their places ``label_x`` and ``label``.
    """
    place: dict[str, Any] = {"x": "x", "y": "value", "by": by}
    spans: dict[str, Any] = {"x": "x", "y": "band_low", "y2": "band_high"}
    layers = [
        Layer(mark="area", rows=[row for row in bands if by not in row], **spans, look=GREY),
        Layer(mark="area", rows=[row for row in bands if by in row], **spans, by=by, look=FAINT),
        Layer(mark="line", rows=[row for row in bands if by not in row], x="x", y="value",
              order="x", look=DASHED),
        Layer(mark="line", rows=points if lines is None else lines, **place, order="x",
              look={"strokeWidth": 2}),
        Layer(mark="rule", rows=points, **spans, by=by, look={"strokeWidth": 1.6}),
        Layer(mark="point", rows=points, **place, shape="mark", tips=tips,
              look={"size": 70, "filled": True}),
        Layer(mark="point", rows=failed, **place, tips=tips,
              look={"shape": CROSS, "size": 46, "strokeWidth": 2.2}),
        Layer(mark="rule", rows=aims, **spans, look={"color": INK, "strokeWidth": 2}),
        Layer(mark="point", rows=aims, x="x", y="value",
              look={"shape": "diamond", "size": 130, "fill": "white", "stroke": INK,
                    "strokeWidth": 2}),
        Layer(mark="text", rows=[row for row in points if "label" in row], x="label_x", y="label",
              by=by, text="words", beside=True,
              look={"align": "left", "dx": 11, "fontWeight": "bold"}),
    ]  # fmt: skip
    return [layer for layer in layers if layer.rows]


def band_of(row: Row, low: str, high: str, axis: Axis) -> Row:
    """The interval clipped to the axis; nulls if there is none."""
    ends = [row[low], row[high]]
    if not all(isinstance(end, (int, float)) and not math.isnan(end) for end in ends):
        return {"band_low": None, "band_high": None}
    return {"band_low": axis.clamp(ends[0]), "band_high": axis.clamp(ends[1])}


def powers(log2: Estimate | BandPoint, *, unit: float = 1.0, moved: float = 0.0) -> Row:
    """A value and its interval in plain numbers; an end that is open stands at the value."""
    ends = (end if math.isfinite(end) else log2.value for end in (log2.low, log2.high))
    value, low, high = (unit * 2.0 ** (at + moved) for at in (log2.value, *ends))
    return {"value": value, "band_low": low, "band_high": high}


def known(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


# Vega-Lite writes titles into the expressions of tooltips and of descriptions, with quotes escaped
# and nothing else.
_ENDING_EXPRESSIONS = str.maketrans(
    {"\\": "\N{SET MINUS}", **dict.fromkeys("\n\r\u2028\u2029", " ")}
)


def tip_title(text: str) -> str:
    """A person's words as the title of an axis or of a line in a tooltip."""
    return text.translate(_ENDING_EXPRESSIONS)
