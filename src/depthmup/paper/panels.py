"""Charts that several claims draw: lines with intervals, and heat maps."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from depthmup.records import Picture

Row = dict[str, Any]

# Okabe and Ito's palette for things without an order; plasma from pale to dark for sizes.
_CATEGORIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def lines(
    rows: Sequence[Row],
    *,
    name: str,
    caption: str,
    x: str,
    y: str,
    x_title: str,
    y_title: str,
    by: str = "",
    by_title: str | None = None,
    ordered: bool = False,
    log_x: bool = False,
    log_y: bool = False,
    references: Sequence[tuple[str, Sequence[tuple[float, float]]]] = (),
    frames: Sequence[str] = (),
    height: int = 280,
) -> Picture:
    """Lines of y against x, one for each value of ``by``; ``low`` and ``high``: a row's interval.

    On a logarithmic axis, values that are not
    positive are left out, and an interval that reaches below zero is drawn down to the axis' floor.

    Args:
        rows: one for each point; ``low`` and ``high`` are its interval, ``window`` the index of its
            frame.
        name: of the picture.
        caption: below it.
        x: the field along the horizontal axis.
        y: the field along the vertical axis.
        x_title: of the horizontal axis.
        y_title: of the vertical axis.
        by: the field with one line for each value.
        by_title: of the legend; ``by`` unless given.
        ordered: whether those values have an order, and colours say so.
        log_x: whether the horizontal axis is logarithmic.
        log_y: whether the vertical one is.
        references: labels and points of dashed lines, such as a predicted slope.
        frames: titles of frames, one of which is shown at a time.
        height: in pixels.
    """
    import altair as alt

    from depthmup.reports import configured, page_spec

    shown = [
        dict(row)
        for row in rows
        if not (log_y and not _positive(row.get(y))) and not (log_x and not _positive(row.get(x)))
    ]
    if log_y:
        floor = _floor(shown, y, references)
        for row in shown:
            if "low" in row and not _positive(row["low"]):
                row["low"] = floor
    data = _inline(shown)
    values = list(dict.fromkeys(row[by] for row in shown)) if by else []

    def axis(title: str, log: bool) -> dict[str, Any]:
        scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False)
        return {"title": title, "scale": scale}

    # Sizes are powers of two: a logarithmic axis is labelled where there are points.
    ticks: Any = sorted({row[x] for row in shown}) if log_x else alt.Undefined
    # On a linear axis "g" would be given as few digits as tell its ticks apart: 2e+2, not 200.
    styles = ["~g" if log else "~f" for log in (log_x, log_y)]
    chosen_x = alt.X(
        f"{x}:Q", **axis(x_title, log_x), axis=alt.Axis(format=styles[0], grid=False, values=ticks)
    )
    chosen_y = alt.Y(f"{y}:Q", **axis(y_title, log_y), axis=alt.Axis(format=styles[1]))
    base = alt.Chart(data).encode(x=chosen_x)
    if frames:
        base = base.transform_filter("datum.window === window_index")
    if by:
        scale = (
            alt.Scale(domain=values, scheme="plasma", reverse=True)
            if ordered
            else alt.Scale(
                domain=values,
                range=[_CATEGORIES[i % len(_CATEGORIES)] for i in range(len(values))],
            )
        )
        kind = "O" if ordered else "N"
        legend = alt.Legend(orient="top", columns=4, symbolOpacity=1)
        base = base.encode(
            color=alt.Color(
                f"{by}:{kind}",
                title=(by if by_title is None else by_title) or None,
                scale=scale,
                legend=legend,
            )
        )
    first = shown[0] if shown else {}  # nothing is left where every network diverged
    tips = [
        f"{key}:{'Q' if isinstance(value, (int, float)) else 'N'}" for key, value in first.items()
    ]
    layers = []
    if any("low" in row for row in shown):
        layers.append(base.mark_rule(strokeWidth=1.4).encode(y=alt.Y("low:Q"), y2="high:Q"))
    layers += [
        base.mark_line(strokeWidth=2).encode(y=chosen_y, order=f"{x}:Q"),
        base.mark_point(size=46, filled=True, opacity=1).encode(y=chosen_y, tooltip=tips),
    ]
    for label, points in references:
        dashed = alt.Chart(
            alt.InlineData(values=[{"x": px, "y": py, "label": label} for px, py in points])
        )
        layers += [
            dashed.mark_line(strokeDash=[5, 4], color="#5b6472", strokeWidth=1.4).encode(
                x=alt.X("x:Q"), y=alt.Y("y:Q"), order="x:Q"
            ),
            dashed.transform_window(rank="rank()", sort=[alt.SortField("x", "descending")])
            .transform_filter("datum.rank === 1")
            .mark_text(align="right", dy=-8, color="#5b6472")
            .encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), text="label:N"),
        ]
    chart = alt.layer(*layers).properties(width="container", height=height)
    if frames:
        chart = chart.add_params(alt.param(name="window_index", value=len(frames) - 1))
    return Picture(
        name=name, caption=caption, spec=page_spec(configured(chart)), frames=tuple(frames)
    )


def heat_map(
    rows: Sequence[Row],
    *,
    name: str,
    caption: str,
    x: str,
    y: str,
    value: str,
    x_title: str,
    y_title: str,
    value_title: str,
    lines_over: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    marked: str = "",
    height: int = 300,
) -> Picture:
    """A grid of cells coloured by ``value`` (dark is low); None is drawn grey.

    Args:
        rows: one for each cell.
        name: of the picture.
        caption: below it.
        x: the field along the horizontal axis.
        y: the field along the vertical axis.
        value: the field that colours show.
        x_title: of the horizontal axis.
        y_title: of the vertical axis.
        value_title: of the legend.
        lines_over: labels and points of lines over the grid.
        marked: the field whose true cells get a dot.
        height: in pixels.
    """
    import altair as alt

    from depthmup.reports import configured, page_spec

    base = alt.Chart(_inline(rows))
    step_x, step_y = (_step(sorted({row[key] for row in rows})) for key in (x, y))
    tips = [f"{x}:Q", f"{y}:Q", f"{value}:Q"]
    cells = (
        base.transform_calculate(
            x0=f"datum['{x}'] - {step_x / 2}",
            x1=f"datum['{x}'] + {step_x / 2}",
            y0=f"datum['{y}'] - {step_y / 2}",
            y1=f"datum['{y}'] + {step_y / 2}",
        )
        .mark_rect()
        .encode(
            x=alt.X("x0:Q", title=x_title, scale=alt.Scale(zero=False, nice=False)),
            x2="x1:Q",
            y=alt.Y("y0:Q", title=y_title, scale=alt.Scale(zero=False, nice=False)),
            y2="y1:Q",
            color=alt.condition(
                f"isValid(datum['{value}'])",
                alt.Color(
                    f"{value}:Q",
                    title=value_title,
                    scale=alt.Scale(scheme="viridis"),
                    legend=alt.Legend(orient="top", gradientLength=160),
                ),
                alt.value("#d5d9e0"),
            ),
            tooltip=tips,
        )
    )
    layers = [cells]
    if marked:
        layers.append(
            base.transform_filter(f"datum['{marked}']")
            .mark_point(size=24, filled=True, color="white", opacity=1)
            .encode(x=alt.X(f"{x}:Q"), y=alt.Y(f"{y}:Q"))
        )
    for label, points in (lines_over or {}).items():
        over = alt.Chart(
            alt.InlineData(values=[{"x": a, "y": b, "label": label} for a, b in points])
        )
        layers.append(
            over.mark_line(color="white", strokeWidth=2, clip=True).encode(
                x=alt.X("x:Q"), y=alt.Y("y:Q"), order="x:Q", tooltip="label:N"
            )
        )
    chart = alt.layer(*layers).properties(width="container", height=height)
    return Picture(name=name, caption=caption, spec=page_spec(configured(chart)))


def framed(chart: Any, *, name: str, caption: str) -> Picture:
    """A chart that is drawn elsewhere as a picture as wide as the page gives.

    Args:
        chart: of Altair.
        name: of the picture.
        caption: below it.
    """
    from depthmup.reports import page_spec

    return Picture(name=name, caption=caption, spec=page_spec(chart.properties(width="container")))


def _inline(rows: Sequence[Row]) -> Any:
    import altair as alt

    from depthmup.reports import strict

    values: Any = strict(list(rows))
    return alt.InlineData(values=values)


def _floor(
    rows: Sequence[Row], y: str, references: Sequence[tuple[str, Sequence[tuple[float, float]]]]
) -> float:
    """The lowest positive value of an axis."""
    values = [row.get(key) for row in rows for key in (y, "low")]
    values += [height for _, points in references for _, height in points]
    return min((v for v in values if v is not None and _positive(v)), default=1.0)


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and value > 0


def _step(values: Sequence[float]) -> float:
    gaps = [b - a for a, b in pairwise(values)]
    return min(gaps) if gaps else 1.0
