"""Charts that several claims draw: lines with intervals, and heat maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from reproduction.evidence import Picture

Row = dict[str, Any]

# Okabe and Ito's palette for things without an order; plasma from pale to dark for sizes.
_CATEGORIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


References: TypeAlias = Sequence[tuple[str, Sequence[tuple[float, float]]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis of a chart: the field of its rows, its title, and whether it is logarithmic."""

    field: str
    title: str
    log: bool = False


def lines(
    rows: Sequence[Row],
    *,
    name: str,
    caption: str,
    x: Axis,
    y: Axis,
    by: str = "",
    by_title: str | None = None,
    ordered: bool = False,
    references: References = (),
    frames: Sequence[str] = (),
) -> Picture:
    """Lines of y against x, one for each value of ``by``, with intervals where rows have them.

    A row is a point: ``low`` and ``high`` are its interval, ``window`` is the index of its frame.
    ``references`` are labels with the points of dashed lines; with ``ordered``, colours show that
    the values of ``by`` have an order. On a logarithmic axis values that are not positive are left
    out, and an interval that reaches below zero is drawn down to the lowest value of the axis.
    """
    shown = _drawable(rows, x, y, references)
    # Sizes are powers of two: a logarithmic axis is labelled where there are points.
    across = _across(x, sorted({row[x.field] for row in shown}) if x.log else None)
    base: dict[str, Any] = {"x": across}
    if by:
        values = list(dict.fromkeys(row[by] for row in shown))
        title = by if by_title is None else by_title
        base["color"] = _colour(by, title, values, ordered=ordered)
    first = shown[0] if shown else {}  # nothing is left where every network diverged
    tips = [_number(k) if isinstance(v, (int, float)) else _name(k) for k, v in first.items()]
    vertical, order = _vertical(y), {"order": _number(x.field)}
    layers: list[Row] = []
    if any("low" in row for row in shown):
        # Below the lines, so that intervals do not cross out the points.
        ends = {"y": _number("low"), "y2": {"field": "high"}}
        layers.append(_layer("rule", {**base, **ends}, strokeWidth=1.4))
    layers += [
        _layer("line", {**base, "y": vertical, **order}, strokeWidth=2),
        _layer("point", {**base, "y": vertical, "tooltip": tips}, size=46, filled=True, opacity=1),
    ]
    if frames:
        shown_alone = [{"filter": "datum.window === window_index"}]
        layers = [{**layer, "transform": shown_alone} for layer in layers]
    for label, points in references:
        layers += _dashed(label, points)
    window = [{"name": "window_index", "value": len(frames) - 1}]
    spec = {**_rows(shown), "layer": layers, **({"params": window} if frames else {})}
    return Picture(name=name, caption=caption, spec=_wide(spec), frames=tuple(frames))


def _wide(spec: Row) -> dict[str, Any]:
    """A specification as wide as its page."""
    from depthmup.reports import configured, page_spec

    return page_spec(configured({**spec, "width": "container", "height": 280}))


def _layer(mark: str, encoding: Row, **look: Any) -> Row:
    return {"mark": {"type": mark, **look}, "encoding": encoding}


def _rows(rows: Sequence[Row]) -> Row:
    from depthmup.reports import strict

    return {"data": {"values": strict(list(rows))}}


def _number(column: str) -> Row:
    return {"field": column, "type": "quantitative"}


def _name(column: str) -> Row:
    return {"field": column, "type": "nominal"}


def _drawable(rows: Sequence[Row], x: Axis, y: Axis, references: References) -> list[Row]:
    """The rows that the axes can show, with intervals cut off at the floor of a logarithmic one."""
    shown = [
        dict(row)
        for row in rows
        if all(_positive(row.get(axis.field)) for axis in (x, y) if axis.log)
    ]
    if y.log:
        floor = _floor(shown, y.field, references)
        for row in shown:
            if "low" in row and not _positive(row["low"]):
                row["low"] = floor
    return shown


def _across(axis: Axis, ticks: Sequence[Any] | None) -> Row:
    """The horizontal axis, which has no grid."""
    found = _vertical(axis)
    own = {"grid": False, **({} if ticks is None else {"values": ticks})}
    return {**found, "axis": {**found["axis"], **own}}


def _vertical(axis: Axis) -> Row:
    """An axis as a channel."""
    return {
        **_number(axis.field),
        "title": axis.title,
        "scale": {"type": "log", "nice": False} if axis.log else {"zero": False},
        # On a linear axis "g" would be given as few digits as tell its ticks apart: 2e+2, not 200.
        "axis": {"format": "~g" if axis.log else "~f"},
    }


def _colour(by: str, title: str, values: Sequence[Any], *, ordered: bool) -> Row:
    colours = [_CATEGORIES[i % len(_CATEGORIES)] for i in range(len(values))]
    ramp = {"scheme": "plasma", "reverse": True}
    return {
        "field": by,
        "type": "ordinal" if ordered else "nominal",
        "title": title or None,
        "scale": {"domain": values, **(ramp if ordered else {"range": colours})},
        "legend": {"orient": "top", "columns": 4, "symbolOpacity": 1},
    }


_AT = {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}}


def _labelled(label: str, points: Sequence[tuple[float, float]]) -> Row:
    return _rows([{"x": px, "y": py, "label": label} for px, py in points])


def _dashed(label: str, points: Sequence[tuple[float, float]]) -> list[Row]:
    """A dashed line with its label at the right end."""
    rows, muted = _labelled(label, points), "#5b6472"
    rank = {
        "window": [{"op": "rank", "field": "", "as": "rank"}],
        "sort": [{"field": "x", "order": "descending"}],
    }
    line = {**_AT, "order": _number("x")}
    return [
        {**rows, **_layer("line", line, strokeDash=[5, 4], color=muted, strokeWidth=1.4)},
        {
            **rows,
            # The point farthest right alone carries the label.
            "transform": [rank, {"filter": "datum.rank === 1"}],
            **_layer("text", {**_AT, "text": _name("label")}, align="right", dy=-8, color=muted),
        },
    ]


def heat_map(
    rows: Sequence[Row],
    *,
    name: str,
    caption: str,
    x: Axis,
    y: Axis,
    value: Axis,
    lines_over: Mapping[str, Sequence[tuple[float, float]]],
    marked: str,
) -> Picture:
    """A grid of cells coloured by ``value`` (dark is low); None is drawn grey.

    ``lines_over`` are labels with the points of lines; ``marked`` is the field of cells with a dot.
    """
    dots = {"x": _number(x.field), "y": _number(y.field)}
    white = {"size": 24, "filled": True, "color": "white", "opacity": 1}
    layers = [
        _cells(rows, x, y, value),
        {"transform": [{"filter": f"datum['{marked}']"}], **_layer("point", dots, **white)},
    ]
    for label, points in lines_over.items():
        line = {**_AT, "order": _number("x"), "tooltip": _name("label")}
        over = _layer("line", line, color="white", strokeWidth=2, clip=True)
        layers.append({**_labelled(label, points), **over})
    return Picture(name=name, caption=caption, spec=_wide({**_rows(rows), "layer": layers}))


def _cells(rows: Sequence[Row], x: Axis, y: Axis, value: Axis) -> Row:
    """One rectangle per row, as wide and high as neighbouring rows are apart."""
    scale = {"zero": False, "nice": False}
    halves = {a.field: _step(sorted({row[a.field] for row in rows})) / 2 for a in (x, y)}
    ends = [
        {"calculate": f"datum['{a.field}'] {sign} {halves[a.field]}", "as": f"{of}{end}"}
        for of, a in (("x", x), ("y", y))
        for end, sign in enumerate("-+")
    ]
    colour = {
        **_number(value.field),
        "title": value.title,
        "scale": {"scheme": "viridis"},
        "legend": {"orient": "top", "gradientLength": 160},
    }
    return {
        "transform": ends,
        **_layer(
            "rect",
            {
                "x": {**_number("x0"), "title": x.title, "scale": scale},
                "x2": {"field": "x1"},
                "y": {**_number("y0"), "title": y.title, "scale": scale},
                "y2": {"field": "y1"},
                # An encoded datum that is no number has no place on a scale: it gets the grey.
                "color": {
                    "condition": {"test": f"isValid(datum['{value.field}'])", **colour},
                    "value": "#d5d9e0",
                },
                "tooltip": [_number(a.field) for a in (x, y, value)],
            },
        ),
    }


def framed(chart: Any, *, name: str, caption: str) -> Picture:
    """A chart that is drawn elsewhere as a picture as wide as the page gives."""
    from depthmup.reports import page_spec

    spec = {**page_spec(chart), "width": "container"}
    return Picture(name=name, caption=caption, spec=spec)


def _floor(rows: Sequence[Row], y: str, references: References) -> float:
    """The lowest positive value of an axis."""
    values = [row.get(key) for row in rows for key in (y, "low")]
    values += [height for _, points in references for _, height in points]
    # A logarithmic axis has no zero: 1 stands in where nothing positive is drawn.
    return min((v for v in values if v is not None and _positive(v)), default=1.0)


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and value > 0


def _step(values: Sequence[float]) -> float:
    gaps = [b - a for a, b in pairwise(values)]
    return min(gaps) if gaps else 1.0
