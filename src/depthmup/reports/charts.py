"""The charts of a study, one definition for the page and for files.

Every chart holds all windows of training and shows the one that its parameter ``window_index``
names: the last, unless a slider says otherwise. Altair is imported inside the functions, so that
importing this module costs nothing.
"""

from collections.abc import Callable
from typing import Any

from depthmup.records import Place, Study
from depthmup.reports.by_size import loss_against_size, optimum_against_size
from depthmup.reports.chart_layers import (
    CROSS,
    Width,
    band_of,
    data,
    hollow,
    known,
    optimum_tips,
    same,
    scale_of,
    shown,
    tip_title,
    window_param,
)
from depthmup.reports.sentences import folded, number
from depthmup.reports.study_rows import (
    Row,
    base_size,
    optimum_rows,
    point_rows,
    sizes,
    title_of,
    transfer_rows,
    transfers,
)
from depthmup.reports.style import Axis, rate_axis, size_colours, study_loss_axis
from depthmup.reports.theme import BAND, INK, MUTED, configured, tone


def loss_against_rate(study: Study, *, window: int | None = None) -> Any:
    """Loss against log2 of what is tuned: one panel per scheme, one line per size.

    Args:
        study: to be drawn.
        window: index of the window of training; by default a parameter of the chart selects it.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study
        >>> loss_against_rate(example_study()).save("rates.html")  # doctest: +SKIP
        >>> len(loss_against_rate(example_study()).concat)  # a panel for each scheme
        2
    """
    import altair as alt

    schemes = transfers(study)
    panels = [
        rate_panel(study, t.scheme, legend=True).properties(
            title=alt.TitleParams(text=t.title, subtitle=t.verdict.value, fontSize=13, offset=6)
        )
        for t in schemes
    ]
    return configured(
        alt.concat(*panels, columns=2 if len(schemes) > 1 else 1, spacing=26)
        .add_params(window_param(study, window))
        .properties(
            title=alt.TitleParams(
                text=f"Where the minima line up, {study.tuned.the} transfers",
                subtitle=[
                    f"Training loss against {study.tuned.name}. "
                    "Diamonds: the optimum, with its interval.",
                    f"Dashed: the optimum at {study.axis} {base_size(study)}. "
                    "Crosses on top: every seed diverged.",
                ],
            )
        )
    )


def rate_panel(
    study: Study, scheme: str, *, width: Width = 330, height: int = 270, legend: bool = False
) -> Any:
    """One scheme's panel of ``loss_against_rate``, without the parameter that selects the window.

    Args:
        study: to draw.
        scheme: name of the variant.
        width: in pixels, or "container".
        height: in pixels.
        legend: whether to show the colours of the sizes.

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study
        >>> type(rate_panel(example_study(), "depth-mup")).__name__
        'LayerChart'
    """
    import altair as alt

    name, losses = study.tuned.name, study_loss_axis(study)
    points, best, top = _panel_rows(study, scheme, losses)
    x, y, colour = _panel_encodings(study, losses, top, legend=legend)
    axis = study.axis
    tips = [
        alt.Tooltip(f"{axis}:O"),
        alt.Tooltip(f"{study.tuned.column}:Q", title=tip_title(f"log2 {name}"), format="~g"),
        alt.Tooltip("loss:Q", format=".4~g"),
        alt.Tooltip("low:Q", title="from", format=".4~g"),
        alt.Tooltip("high:Q", title="to", format=".4~g"),
        alt.Tooltip("seeds:Q"),
        alt.Tooltip("diverged:Q"),
    ]
    every = alt.Chart(data(points)).transform_filter(shown()).encode(x=x, color=colour)
    lost = f"!isValid(datum.loss) || datum.loss > {losses.high!r}"
    optimum = alt.Chart(data(best)).transform_filter(shown())
    reference = optimum.transform_filter(f"datum.{axis} === {base_size(study)}")

    layers = [
        reference.mark_rule(strokeDash=[5, 4], color=MUTED, strokeWidth=1.2).encode(x=x),
        every.mark_area(opacity=0.12, clip=True).encode(
            y=alt.Y("band_low:Q", **same(y)), y2="band_high:Q", detail=f"{axis}:O"
        ),
        every.mark_line(strokeWidth=2, clip=True).encode(y=y, detail=f"{axis}:O"),
        every.transform_filter(f"!({lost})")
        .mark_point(size=26, strokeWidth=1.4, opacity=1, clip=True)
        .encode(y=y, tooltip=tips, fill=hollow("datum.diverged > 0", colour)),
        every.transform_filter(lost)
        .mark_point(size=24, strokeWidth=1.6, opacity=1)
        .encode(
            y=alt.Y("mark:Q", **same(y)),
            tooltip=tips,
            shape=alt.condition(
                "isValid(datum.loss)", alt.value("triangle-up"), alt.value(CROSS)
            ),
        ),
        optimum.mark_line(color=INK, strokeWidth=1.1, opacity=0.75).encode(
            x=x, y=y, order=f"{axis}:Q"
        ),
        optimum.mark_rule(strokeWidth=1.6, color=INK, opacity=0.7).encode(
            x=alt.X("band_low:Q", **same(x)), x2="band_high:Q", y=y
        ),
        optimum.mark_point(
            shape="diamond", size=95, stroke=INK, strokeWidth=1.2, filled=True, opacity=1
        ).encode(
            x=x, y=y, fill=colour, tooltip=optimum_tips(alt, study)
        ),
    ]  # fmt: skip
    return alt.layer(*layers).properties(
        width=width,
        height=height,
        description=f"Training loss against {name} by {axis}: {title_of(study, scheme)}",
    )


def _panel_rows(study: Study, scheme: str, losses: Axis) -> tuple[list[Row], list[Row], float]:
    """Points and optima of one scheme, and the upper end of the axis of losses.

    Above the losses is one row of marks per size: values at which no run survived.
    """
    axis, measured, rates = study.axis, sizes(study), rate_axis(study)
    column = study.tuned.column
    row = min(0.035, 0.3 / max(len(measured), 1))
    rows = {size: losses.at(1 + row * (i + 1)) for i, size in enumerate(measured)}
    points = [
        {
            **{key: p[key] for key in (axis, column, *_DRAWN)},
            "mark": rows[p[axis]],
            **band_of(p, "low", "high", losses),
        }
        for p in point_rows(study)
        if p["scheme"] == scheme and rates.low <= p[column] <= rates.high
    ]
    best = [
        {**o, **band_of(o, "low", "high", rates)}
        for o in optimum_rows(study)
        if o["scheme"] == scheme and o["place"] != Place.FAILED.value and known(o["loss"])
    ]
    return points, best, losses.at(1 + row * (len(measured) + 1))


def _panel_encodings(study: Study, losses: Axis, top: float, *, legend: bool) -> tuple[Any, ...]:
    """What is across, what is up, and the colours of the sizes."""
    import altair as alt

    measured, rates, colours = sizes(study), rate_axis(study), size_colours(study)
    x = alt.X(
        f"{study.tuned.column}:Q",
        title=tip_title(f"log2 {study.tuned.name}"),
        scale=scale_of(rates),
        axis=alt.Axis(
            values=list(rates.ticks),
            grid=False,
            format=".4~g",
            labelOverlap="greedy",
            labelSeparation=6,
        ),
    )
    y = alt.Y(
        "loss:Q",
        title="training loss",
        scale=scale_of(losses, high=top),
        axis=alt.Axis(values=list(losses.ticks), format=".3~g"),
    )
    colour = alt.Color(
        f"{study.axis}:O",
        title=study.axis,
        sort=list(measured),
        scale=alt.Scale(domain=list(measured), range=[colours[size] for size in measured]),
        legend=alt.Legend(symbolType="stroke", symbolOpacity=1, symbolStrokeWidth=3)
        if legend
        else None,
    )
    return x, y, colour


def drift(study: Study, *, window: int | None = None, width: Width = 560) -> Any:
    """Drift per scheme with its interval, beside the band inside which it counts as transfer.

    Args:
        study: to draw.
        window: index of the window of training shown first, by default the last.
        width: in pixels, or "container".

    Returns:
        The chart.

    Example:
        >>> from depthmup.reports import example_study
        >>> drift(example_study(), width=400).width
        400
    """
    import altair as alt

    rows, names, axis = _drift_rows(study)
    x = alt.X(
        "drift:Q",
        title=f"drift, octaves per doubling of {study.axis}",
        scale=scale_of(axis),
        axis=alt.Axis(tickCount=7, format="~g", grid=True),
    )
    y = alt.Y(
        "name:N",
        title=None,
        sort=alt.EncodingSortField("order", op="min"),
        axis=alt.Axis(labelExpr="split(datum.label, '\\n')", ticks=False),
    )
    band = alt.Chart(data([{"least": -study.tolerance, "most": study.tolerance}]))
    every = alt.Chart(data(rows)).transform_filter(shown()).encode(y=y)
    tone = alt.Color("tone:N", scale=None, legend=None)
    tips = [
        alt.Tooltip("title:N", title="scheme"),
        alt.Tooltip("drift:Q", format="+.3f"),
        alt.Tooltip("drift_low:Q", title="from", format="+.3f"),
        alt.Tooltip("drift_high:Q", title="to", format="+.3f"),
        alt.Tooltip("verdict:N"),
    ]
    return configured(
        alt.layer(
            band.mark_rect(color=BAND, opacity=0.75).encode(
                x=alt.X("least:Q", **same(x)), x2="most:Q"
            ),
            alt.Chart(data([{"zero": 0}]))
            .mark_rule(color=MUTED, strokeDash=[5, 4])
            .encode(x=alt.X("zero:Q", **same(x))),
            every.mark_rule(strokeWidth=9, opacity=0.4).encode(
                x=alt.X("band_low:Q", **same(x)), x2="band_high:Q", color=tone
            ),
            every.mark_point(filled=True, size=40, opacity=1).encode(x=x, color=tone, tooltip=tips),
            every.mark_text(dy=-14, fontSize=12, fontWeight="bold").encode(
                x=alt.X("text_at:Q", **same(x)), text="text:N", color=tone
            ),
        )
        .add_params(window_param(study, window))
        .properties(
            width=width,
            height=sum(max(52, 15 * n.count("\n") + 45) for n in names.values()) + 8,
            description="Drift per scheme with its 95% interval",
            title=alt.TitleParams(
                text="Does the interval stay inside the band?",
                subtitle=f"95% intervals. Grey: the tolerance, ±{number(study.tolerance)}.",
            ),
        )
    )


def _drift_rows(study: Study) -> tuple[list[Row], dict[str, str], Axis]:
    """The rows of the chart of drifts, the schemes' labels, and the axis."""
    rows = [dict(r) for r in transfer_rows(study)]
    ends = [r["drift"] for r in rows if known(r["drift"])]
    ends += [-2 * study.tolerance, 2 * study.tolerance]
    # Intervals too, unless they are so wide that they would squash the estimates.
    reach = 1.5 * max(map(abs, ends))
    between = [row[end] for row in rows for end in ("drift_low", "drift_high")]
    ends += [min(max(v, -reach), reach) for v in between if known(v)]
    air = 0.12 * (max(ends) - min(ends)) or 1.0
    axis = Axis(low=min(ends) - air, high=max(ends) + air, ticks=())
    titles = [t.title for t in transfers(study)]
    names = {
        t.scheme: folded(t.title if titles.count(t.title) == 1 else f"{t.title} [{t.scheme}]")
        for t in transfers(study)
    }
    for row in rows:
        # Sorted by number: a sort by name would put names into an expression of Vega's.
        row["order"] = list(names).index(row["scheme"]) if row["scheme"] in names else len(names)
        row["name"] = names.get(row["scheme"], row["title"])
        row.update(band_of(row, "drift_low", "drift_high", axis))
        row["text"] = row["verdict"] if known(row["drift"]) else f"{row['verdict']}: no estimate"
        row["text_at"] = row["drift"] if known(row["drift"]) else 0.0
        row["tone"] = tone(str(row["verdict"]))
    return rows, names, axis


_DRAWN = ("window", "loss", "low", "high", "seeds", "diverged")

CHARTS: dict[str, Callable[..., Any]] = {
    "drift": drift,
    "loss-against-learning-rate": loss_against_rate,
    "optimum-against-size": optimum_against_size,
    "loss-against-size": loss_against_size,
}
"""Every chart by the name of its file."""
