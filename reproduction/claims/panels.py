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
    import altair as alt

    from depthmup.reports import configured, page_spec

    shown = _drawable(rows, x, y, references)
    base = alt.Chart(_inline(shown)).encode(
        # Sizes are powers of two: a logarithmic axis is labelled where there are points.
        x=_encoded(alt.X, x, ticks=sorted({row[x.field] for row in shown}) if x.log else None)
    )
    if frames:
        base = base.transform_filter("datum.window === window_index")
    if by:
        values = list(dict.fromkeys(row[by] for row in shown))
        title = by if by_title is None else by_title
        base = base.encode(color=_colour(by, title, values, ordered=ordered))
    first = shown[0] if shown else {}  # nothing is left where every network diverged
    tips = [
        f"{key}:{'Q' if isinstance(value, (int, float)) else 'N'}" for key, value in first.items()
    ]
    layers = []
    if any("low" in row for row in shown):
        # Below the lines, so that intervals do not cross out the points.
        layers.append(base.mark_rule(strokeWidth=1.4).encode(y=alt.Y("low:Q"), y2="high:Q"))
    vertical = _encoded(alt.Y, y)
    layers += [
        base.mark_line(strokeWidth=2).encode(y=vertical, order=f"{x.field}:Q"),
        base.mark_point(size=46, filled=True, opacity=1).encode(y=vertical, tooltip=tips),
    ]
    for label, points in references:
        layers += _dashed(label, points)
    chart = alt.layer(*layers).properties(width="container", height=280)
    if frames:
        chart = chart.add_params(alt.param(name="window_index", value=len(frames) - 1))
    return Picture(
        name=name, caption=caption, spec=page_spec(configured(chart)), frames=tuple(frames)
    )


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


def _encoded(channel: Any, axis: Axis, *, ticks: Sequence[Any] | None = None) -> Any:
    """An axis as a channel of Altair; horizontal ones (with ticks or not) have no grid."""
    import altair as alt

    # On a linear axis "g" would be given as few digits as tell its ticks apart: 2e+2, not 200.
    style: dict[str, Any] = {"format": "~g" if axis.log else "~f"}
    if channel is alt.X:
        style |= {"grid": False, "values": alt.Undefined if ticks is None else ticks}
    scale = alt.Scale(type="log", nice=False) if axis.log else alt.Scale(zero=False)
    return channel(f"{axis.field}:Q", title=axis.title, scale=scale, axis=alt.Axis(**style))


def _colour(by: str, title: str, values: Sequence[Any], *, ordered: bool) -> Any:
    import altair as alt

    scale = (
        alt.Scale(domain=values, scheme="plasma", reverse=True)
        if ordered
        else alt.Scale(
            domain=values,
            range=[_CATEGORIES[i % len(_CATEGORIES)] for i in range(len(values))],
        )
    )
    return alt.Color(
        f"{by}:{'O' if ordered else 'N'}",
        title=title or None,
        scale=scale,
        legend=alt.Legend(orient="top", columns=4, symbolOpacity=1),
    )


def _dashed(label: str, points: Sequence[tuple[float, float]]) -> list[Any]:
    """A dashed line with its label at the right end."""
    import altair as alt

    line = alt.Chart(
        alt.InlineData(values=[{"x": px, "y": py, "label": label} for px, py in points])
    )
    return [
        line.mark_line(strokeDash=[5, 4], color="#5b6472", strokeWidth=1.4).encode(
            x=alt.X("x:Q"), y=alt.Y("y:Q"), order="x:Q"
        ),
        line.transform_window(rank="rank()", sort=[alt.SortField("x", "descending")])
        # The point farthest right alone carries the label.
        .transform_filter("datum.rank === 1")
        .mark_text(align="right", dy=-8, color="#5b6472")
        .encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), text="label:N"),
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
    import altair as alt

    from depthmup.reports import configured, page_spec

    base = alt.Chart(_inline(rows))
    layers = [
        _cells(base, rows, x, y, value),
        base.transform_filter(f"datum['{marked}']")
        .mark_point(size=24, filled=True, color="white", opacity=1)
        .encode(x=alt.X(f"{x.field}:Q"), y=alt.Y(f"{y.field}:Q")),
    ]
    for label, points in lines_over.items():
        over = alt.Chart(
            alt.InlineData(values=[{"x": a, "y": b, "label": label} for a, b in points])
        )
        layers.append(
            over.mark_line(color="white", strokeWidth=2, clip=True).encode(
                x=alt.X("x:Q"), y=alt.Y("y:Q"), order="x:Q", tooltip="label:N"
            )
        )
    chart = alt.layer(*layers).properties(width="container", height=280)
    return Picture(name=name, caption=caption, spec=page_spec(configured(chart)))


def _cells(base: Any, rows: Sequence[Row], x: Axis, y: Axis, value: Axis) -> Any:
    """One rectangle per row, as wide and high as neighbouring rows are apart."""
    import altair as alt

    half_x, half_y = (_step(sorted({row[a.field] for row in rows})) / 2 for a in (x, y))
    scale = alt.Scale(zero=False, nice=False)
    # An encoded datum that is no number has no place on a scale: it gets the grey of the condition.
    colour = alt.condition(
        f"isValid(datum['{value.field}'])",
        alt.Color(
            f"{value.field}:Q",
            title=value.title,
            scale=alt.Scale(scheme="viridis"),
            legend=alt.Legend(orient="top", gradientLength=160),
        ),
        alt.value("#d5d9e0"),
    )
    return (
        base.transform_calculate(
            x0=f"datum['{x.field}'] - {half_x}",
            x1=f"datum['{x.field}'] + {half_x}",
            y0=f"datum['{y.field}'] - {half_y}",
            y1=f"datum['{y.field}'] + {half_y}",
        )
        .mark_rect()
        .encode(
            x=alt.X("x0:Q", title=x.title, scale=scale),
            x2="x1:Q",
            y=alt.Y("y0:Q", title=y.title, scale=scale),
            y2="y1:Q",
            color=colour,
            tooltip=[f"{a.field}:Q" for a in (x, y, value)],
        )
    )


def framed(chart: Any, *, name: str, caption: str) -> Picture:
    """A chart that is drawn elsewhere as a picture as wide as the page gives."""
    from depthmup.reports import page_spec

    return Picture(name=name, caption=caption, spec=page_spec(chart.properties(width="container")))


def _inline(rows: Sequence[Row]) -> Any:
    import altair as alt

    from depthmup.reports import strict

    values: Any = strict(list(rows))
    return alt.InlineData(values=values)


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
