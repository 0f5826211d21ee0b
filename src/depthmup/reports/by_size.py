"""The charts against size, depth or width: one line per scheme, with intervals and labels."""

import math
from typing import Any

from depthmup.records import Place, Study
from depthmup.reports.chart_layers import (
    CROSS,
    Width,
    band_of,
    data,
    known,
    optimum_tips,
    same,
    scale_of,
    shown,
    tip_title,
    window_param,
)
from depthmup.reports.sentences import folded, is_larger_better, number
from depthmup.reports.study_rows import Row, base_size, optimum_rows, sizes, transfers
from depthmup.reports.style import (
    Axis,
    best_loss_axis,
    optimum_axis,
    scheme_colours,
    scheme_shapes,
    spread,
)
from depthmup.reports.theme import BAND, MUTED, configured

_LABEL_FROM = 400  # pixels: narrower charts have no room for labels beside the lines


def optimum_against_size(
    study: Study, *, window: int | None = None, width: Width = 560, height: int = 320
) -> Any:
    """The best log2 value of what is tuned against size, a line per scheme, beside the base's.

    Args:
        study: to draw.
        window: index of the window of training shown first, by default the last.
        width: in pixels, or "container".
        height: in pixels.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study
        >>> optimum_against_size(example_study(), height=240).height
        240
    """
    import altair as alt

    axis, rates, base = study.axis, optimum_axis(study), base_size(study)
    rows, places = _against_size(study, study.tuned.column, "low", "high", rates)
    # Under every scheme the base is the same network, so one reference serves all; where noise
    # made them differ, their mean.
    wedge: list[Row] = []
    for index in range(len(study.windows)):
        at_base = [r for r in rows if r["window"] == index and r[axis] == base]
        values = [r["value"] for r in at_base if known(r["value"])]
        if values:
            centre = sum(values) / len(values)
            for size in sizes(study):
                octaves = study.tolerance * abs(math.log2(size / base))
                wedge.append(
                    {
                        "window": index,
                        "x": size,
                        "centre": centre,
                        "least": rates.clamp(centre - octaves),
                        "most": rates.clamp(centre + octaves),
                    }
                )
    y = alt.Y(
        "value:Q",
        title=tip_title(f"best log2 {study.tuned.name}"),
        scale=scale_of(rates, low=rates.at(-0.09)),
        axis=alt.Axis(values=list(rates.ticks), format=".4~g"),
    )
    x = _size_x(study, width)
    band = alt.Chart(data(wedge)).transform_filter(shown())
    under = [
        band.mark_area(color=BAND, opacity=0.75).encode(
            x=x, y=alt.Y("least:Q", **same(y)), y2="most:Q"
        ),
        band.mark_line(color=MUTED, strokeDash=[5, 4], strokeWidth=1.2).encode(
            x=x, y=alt.Y("centre:Q", **same(y))
        ),
    ]
    return _by_scheme(study, rows, places, x, y, under, window).properties(
        width=width,
        height=height,
        description=f"Best {study.tuned.name} against {axis}, one line per scheme",
        title=alt.TitleParams(
            text="Flat lines transfer, slopes drift",
            subtitle=[
                f"Best {study.tuned.name} against {axis}. Grey: up to {number(study.tolerance)} "
                f"octaves per doubling away from {axis} {base}.",
                "Triangles: on the edge of the grid. Crosses: nothing trains.",
            ],
        ),
    )  # fmt: skip


def loss_against_size(
    study: Study, *, window: int | None = None, width: Width = 560, height: int = 320
) -> Any:
    """The loss at each size's own best learning rate, one line per scheme.

    Args:
        study: to draw.
        window: index of the window of training shown first, by default the last.
        width: in pixels, or "container".
        height: in pixels.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study
        >>> loss_against_size(example_study()).description
        'Best loss against depth, one line per scheme'
    """
    import altair as alt

    axis = best_loss_axis(study)
    rows, places = _against_size(study, "loss", "loss_low", "loss_high", axis)
    y = alt.Y(
        "value:Q",
        title="best training loss",
        scale=scale_of(axis, high=axis.at(1.09)),
        axis=alt.Axis(values=list(axis.ticks), format=".3~g"),
    )
    x = _size_x(study, width)
    return _by_scheme(study, rows, places, x, y, [], window).properties(
        width=width,
        height=height,
        description=f"Best loss against {study.axis}, one line per scheme",
        title=alt.TitleParams(
            text=is_larger_better(study.axis),
            subtitle=[
                f"Loss at each {study.axis}'s own best {study.tuned.name}. Crosses: nothing trains."
            ],
        ),
    )


def _by_scheme(
    study: Study, rows: list[Row], failed: list[Row], x: Any, y: Any, under: list[Any], window: Any
) -> Any:
    """Lines, intervals, marks and labels of a chart with one line per scheme."""
    import altair as alt

    colours, shapes = scheme_colours(study), scheme_shapes(study)
    colour = alt.Color(
        "scheme:N",
        scale=alt.Scale(domain=list(colours), range=list(colours.values())),
        legend=None,
    )
    shape = alt.Shape(
        "mark:N",
        scale=alt.Scale(
            domain=[*shapes, *_PLACE_SHAPES],
            range=[*shapes.values(), *_PLACE_SHAPES.values()],
        ),
        legend=None,
    )
    every = alt.Chart(data(rows)).transform_filter(shown()).encode(x=x, color=colour)
    labels = [row for row in rows if "label" in row]
    return configured(
        alt.layer(
            *under,
            every.mark_line(strokeWidth=2).encode(y=y, detail="scheme:N", order=f"{study.axis}:Q"),
            every.mark_rule(strokeWidth=1.4).encode(
                y=alt.Y("band_low:Q", **same(y)), y2="band_high:Q"
            ),
            every.mark_point(size=70, filled=True, opacity=1)
            .encode(y=y, shape=shape, tooltip=optimum_tips(alt, study)),
            alt.Chart(data(failed))
            .transform_filter(shown())
            .mark_point(size=46, strokeWidth=2.2, opacity=1, shape=CROSS)
            .encode(
                x=x,
                y=alt.Y("value:Q", **same(y)),
                color=colour,
                tooltip=optimum_tips(alt, study),
            ),
            alt.Chart(data(labels))
            .transform_filter(shown())
            .mark_text(align="left", dx=11, fontSize=12, fontWeight="bold", lineBreak="\n")
            .encode(
                x=alt.X("label_x:Q", **same(x)),
                y=alt.Y("label:Q", **same(y)),
                # Without text there is nothing that the layout would keep room for.
                text=alt.condition(f"width < {_LABEL_FROM}", alt.value(""), "words:N"),
                color=colour,
            ),
        ).add_params(window_param(study, window))
    )  # fmt: skip


_PLACE_SHAPES = {Place.LOW_EDGE.value: "triangle-down", Place.HIGH_EDGE.value: "triangle-up"}


def _against_size(
    study: Study, value: str, low: str, high: str, axis: Axis
) -> tuple[list[Row], list[Row]]:
    """The rows of a chart against size: optima, and sizes at which nothing trains.

    Schemes stand a little apart along the axis, so that equal values all stay visible.
    """
    names = [t.scheme for t in transfers(study)]
    shift = {s: 2 ** (0.07 * (i - (len(names) - 1) / 2)) for i, s in enumerate(names)}
    rows: list[Row] = []
    failed: list[Row] = []
    for row in optimum_rows(study):
        scheme, size, location = str(row["scheme"]), row[study.axis], row["place"]
        words = folded(str(row["title"]), 14)
        drawn: Row = {**row, "x": size * shift.get(scheme, 1.0), "mark": scheme, "words": words}
        if location == Place.FAILED.value:
            # Where nothing trains there is no value to draw: the mark stands in the margin, below
            # the learning rates (all are too large), above the losses.
            failed.append({**drawn, "value": axis.at(1.05 if value == "loss" else -0.05)})
            drawn["value"] = None
        else:
            drawn["value"] = row[value]
            drawn.update(band_of(row, low, high, axis))
        if location in _PLACE_SHAPES:
            drawn["mark"] = location
        rows.append(drawn)
    for index in range(len(study.windows)):
        last: dict[object, Row] = {}
        for row in rows:
            if row["window"] == index and known(row["value"]):
                before = last.get(row["scheme"])
                if before is None or row[study.axis] > before[study.axis]:
                    last[row["scheme"]] = row
        # Labels at different sizes do not touch, so each size is spread on its own.
        for size in {row[study.axis] for row in last.values()}:
            ends = [row for row in last.values() if row[study.axis] == size]
            wished = [axis.where(axis.clamp(row["value"])) for row in ends]
            lines = 1 + max(row["words"].count("\n") for row in ends)
            for row, place_ in zip(ends, spread(wished, 0.055 * lines), strict=True):
                row["label"] = axis.at(place_)
                row["label_x"] = size * max(shift.values())
    return rows, failed


def _size_x(study: Study, width: Width) -> Any:
    """The size axis: logarithmic, ticks at the measured sizes, room for labels on the right."""
    import altair as alt

    measured = sizes(study) or (1,)
    octaves = max(math.log2(measured[-1] / measured[0]), 1.0)
    low, high = measured[0] * 2 ** (-0.05 * octaves), measured[-1] * 2 ** (0.06 * octaves)
    labelled = measured[-1] * 2 ** (0.28 * octaves)
    return alt.X(
        "x:Q",
        title=study.axis,
        scale=alt.Scale(
            type="log",
            base=2,
            domain=[low, alt.ExprRef(f"width < {_LABEL_FROM} ? {high!r} : {labelled!r}")],
            nice=False,
        ),
        axis=alt.Axis(values=list(measured), format="d", grid=False),
    )
