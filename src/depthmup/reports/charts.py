"""Losses against what is tuned, and the best values and losses against size: three sections.

Other charts of a study have files of their own; ``study_charts`` has all of them in its table.
"""

import math
from dataclasses import replace
from itertools import cycle, product
from typing import Any

from depthmup.records import Place, Study, Window
from depthmup.records.finding import exp2
from depthmup.records.sizes import size_number
from depthmup.reports import theme
from depthmup.reports.axes import (
    Axis,
    best_loss_axis,
    optimum_axis,
    rate_axis,
    size_axis,
    spread,
    study_loss_axis,
)
from depthmup.reports.chart import (
    CROSS,
    DASHED,
    EDGE_SHAPES,
    FAINT,
    Chart,
    Layer,
    Tip,
    against_size,
    band_of,
    known,
)
from depthmup.reports.drift_chart import band_words
from depthmup.reports.page import Plot, Section
from depthmup.reports.sentences import folded, is_larger_better, share
from depthmup.reports.slices import by_slice
from depthmup.reports.study_rows import (
    Row,
    base_size,
    optimum_rows,
    point_rows,
    sizes,
    title_of,
    transfers,
    verdicts_of,
)
from depthmup.reports.theme import INK


def size_colours(study: Study) -> dict[float, str]:
    """A colour per depth (or width), small light to large dark."""
    measured = sizes(study)
    return dict(zip(measured, theme.ramp(len(measured)), strict=True))


def scheme_colours(study: Study) -> dict[str, str]:
    """A colour per scheme, by its name; colours repeat after seven."""
    return dict(zip((t.scheme for t in transfers(study)), cycle(theme.SERIES)))


def scheme_shapes(study: Study) -> dict[str, str]:
    """A shape per scheme, by its name; shapes repeat after seven."""
    return dict(zip((t.scheme for t in transfers(study)), cycle(theme.SHAPES)))


def size_signs(study: Study) -> list[tuple[str, str, str]]:
    """The legend of a panel of rates: what each colour and each mark stands for."""
    return [
        *((size_number(size), "━", colour) for size, colour in size_colours(study).items()),
        ("some seeds diverged", "○", ""),
        ("all diverged", "×", ""),
        ("loss beyond the axis", "△", ""),
    ]


def scheme_signs(study: Study) -> list[tuple[str, str, str]]:
    """The legend of schemes: title, sign, colour."""
    colours, shapes = scheme_colours(study), scheme_shapes(study)
    return [(t.title, theme.sign(shapes[t.scheme]), colours[t.scheme]) for t in transfers(study)]


def rates_section(study: Study) -> Section:
    """Loss against what is tuned, a panel for each scheme."""
    study = by_slice(study)
    axis, name = study.axis, study.tuned.name
    drawn = {curve.scheme for window in study.windows for curve in window.curves}
    schemes = [t.scheme for t in transfers(study) if t.scheme in drawn]
    return Section(
        title=f"Where the minima line up, {study.tuned.the} transfers",
        lead=(
            f"Loss against {name}, one panel per scheme. Diamonds: the best {name} of "
            f"each size, with its interval. Dashed: the optimum of {axis} "
            f"{size_number(base_size(study))}. Shaded: the interval over seeds. Crosses on top: "
            "every seed diverged."
        ),
        legend=size_signs(study),
        legend_of=axis,
        plots=[scheme_plot(study, scheme, rate_chart(study, scheme)) for scheme in schemes],
        layout="panels",
    )


def _alone(study: Study, scheme: str) -> Study:
    """The study of one of its schemes."""

    def of(window: Window) -> Window:
        curves = tuple(c for c in window.curves if c.scheme == scheme)
        transfers = tuple(t for t in window.transfers if t.scheme == scheme)
        return replace(window, curves=curves, transfers=transfers)

    return replace(
        study,
        windows=tuple(map(of, study.windows)),
        training=tuple(map(of, study.training)),
    )


def rate_chart(study: Study, scheme: str) -> Chart:
    """Losses of one scheme. The axes are those of all schemes and windows, but of many groups."""
    axis, measured = study.axis, sizes(study)
    # Groups of a table may be other models on other data: each has its own losses.
    own = _alone(study, scheme)
    whose = study if study.together is None else own
    rates, losses = rate_axis(study), study_loss_axis(whose)
    # Above the losses is one row of marks per size: values at which no run survived.
    row = min(0.035, 0.3 / max(len(measured), 1))
    margin = {size: losses.at(1 + row * (i + 1)) for i, size in enumerate(measured)}
    points = [
        {
            **{key: p[key] for key in (axis, study.tuned.column, *_DRAWN)},
            "size": p[axis],
            "rate": 2.0 ** p[study.tuned.column],
            "mark": margin[p[axis]],
            **_band(p, losses),
        }
        for p in all_points(own)
        if rates.low <= 2.0 ** p[study.tuned.column] <= rates.high
    ]
    best = [
        {**_plain(o, study), **band_of(_plain(o, study), "rate_low", "rate_high", rates)}
        for o in optimum_rows(own)
        if o["place"] != Place.FAILED.value
        if known(o["loss"]) and o["loss"] <= losses.high
    ]
    tips = [
        ("size", axis, ""),
        ("rate", study.tuned.name, ".3~g"),
        (study.tuned.column, f"log2 {study.tuned.name}", ".3~f"),
        ("loss", "loss", ".4~g"),
        ("low", "from", ".4~g"),
        ("high", "to", ".4~g"),
        ("seeds", "seeds", ""),
        ("diverged", "diverged", ""),
    ]
    lost = f"!isValid(datum.loss) || datum.loss > {losses.high!r}"
    clip: dict[str, Any] = {"clip": True}
    curve: dict[str, Any] = {"rows": points, "x": "rate", "by": "size"}
    optima: dict[str, Any] = {"rows": best, "x": "rate"}
    small: dict[str, Any] = {"size": 24, "strokeWidth": 1.6}
    return Chart(
        layers=[
            Layer(mark="rule", **optima, look=DASHED,
                  where=f"datum.size === {base_size(study)!r}"),
            Layer(mark="area", **curve, y="band_low", y2="band_high",
                  look={**FAINT, **clip}),
            Layer(mark="line", **curve, y="loss", look={"strokeWidth": 2, **clip}),
            Layer(mark="point", **curve, y="loss", where=f"!({lost})", tips=tips,
                  hollow="datum.diverged > 0", look={"size": 26, "strokeWidth": 1.4, **clip}),
            Layer(mark="point", **curve, y="mark", tips=tips,
                  where=f"({lost}) && isValid(datum.loss)", look={"shape": "triangle-up", **small}),
            Layer(mark="point", **curve, y="mark", tips=tips, where="!isValid(datum.loss)",
                  look={"shape": CROSS, **small}),
            Layer(mark="line", **optima, y="loss", order="size",
                  look={"color": INK, "strokeWidth": 1.1, "opacity": 0.75}),
            Layer(mark="rule", rows=best, x="band_low", x2="band_high", y="loss",
                  look={"strokeWidth": 1.6, "color": INK, "opacity": 0.7}),
            Layer(mark="point", **optima, y="loss", by="size", filled=True,
                  tips=_optimum_tips(study),
                  look={"shape": "diamond", "size": 95, "stroke": INK, "strokeWidth": 1.2}),
        ],
        x=rates,
        y=replace(losses, top=losses.at(1 + row * (len(measured) + 1))),
        colours=size_colours(study),
        legend=axis,
        description=(
            f"Loss against {study.tuned.name} by {axis}: {title_of(study, scheme)}"
        ),
        height=270,
    )  # fmt: skip


def scheme_plot(study: Study, scheme: str, chart: Chart) -> Plot:
    """A panel of one scheme, with its verdict in each window of training."""
    title, verdicts = title_of(study, scheme), verdicts_of(study, scheme)
    return Plot(title=title, verdicts=verdicts, chart=chart)


_DRAWN = ("window", "start", "stop", "loss", "low", "high", "seeds", "diverged")


def all_points(study: Study) -> list[Row]:
    """Points of all windows; those of ``training``, numbered below 0, are not drawn.

    A page shows a point's losses in all of them as its learning curve.
    """
    before = len(study.training)
    rows = point_rows(replace(study, windows=(*study.training, *study.windows)))
    return [
        {
            **row,
            "window": row["window"] - before,
            **{end: share(study, row[end]) for end in ("start", "stop")},
        }
        for row in rows
    ]


def _band(point: Row, losses: Axis) -> Row:
    """The interval over seeds; one seed has none, whatever its neighbours lend it."""
    if point["seeds"] - point["diverged"] < 2:
        return {"band_low": None, "band_high": None}
    return band_of(point, "low", "high", losses)


def _plain(row: Row, study: Study) -> Row:
    """The row of an optimum with its size, and with the values whose log2 it has.

    An axis of a table has any name: a column that a chart reads has one of ours.
    """
    ends = {"rate": study.tuned.column, "rate_low": "low", "rate_high": "high"}
    values = {name: exp2(row[column]) for name, column in ends.items()}
    return {**row, **values, "size": row[study.axis]}


def _optimum_tips(study: Study) -> list[Tip]:
    name = study.tuned.name
    return [
        ("title", "scheme", ""),
        ("size", study.axis, ""),
        ("rate", f"best {name}", ".3~g"),
        ("rate_low", "from", ".3~g"),
        ("rate_high", "to", ".3~g"),
        (study.tuned.column, "its log2", ".3f"),
        ("loss", "loss there", ".4~g"),
        ("place", "place", ""),
    ]


def transfer_section(study: Study) -> Section:
    """The best values against size."""
    study = by_slice(study)
    axis, name = study.axis, study.tuned.name
    own = ", from each one's own" if _apart(study) else ""
    return Section(
        title="Flat lines transfer, slopes drift",
        lead=(
            f"The best {name} of each size, with its interval over seeds. Shaded: the tolerance, "
            f"{band_words(study)} per doubling away from {axis} {size_number(base_size(study))}"
            f"{own}. Triangles: on the edge of the grid. Crosses: nothing trains."
        ),
        legend=scheme_signs(study),
        plots=[Plot(chart=optimum_chart(study, optimum_axis(study)))],
        layout="pair",
    )


def _apart(study: Study) -> bool:
    """Whether the groups of a table start from optima of their own."""
    return "table" in study.config and len(transfers(study)) > 1


def optimum_chart(study: Study, rates: Axis) -> Chart:
    """The best value of what is tuned against size, over an axis that charts may share."""
    axis, base = study.axis, base_size(study)
    points, failed = _by_scheme(study, "rate", "rate_low", "rate_high", rates)
    wedge: list[Row] = []
    for index in range(len(study.windows)):
        at_base = {
            r["scheme"]: math.log2(r["value"])
            for r in points
            if r["window"] == index and r["size"] == base and known(r["value"])
        }
        if _apart(study):
            starts = [({"scheme": scheme}, start) for scheme, start in at_base.items()]
        else:
            # Under every scheme the base is the same network, so one reference serves all; where
            # noise made them differ, their mean.
            starts = [({}, sum(at_base.values()) / len(at_base))] if at_base else []
        for (of, centre), size in product(starts, sizes(study)):
            octaves = study.tolerance * abs(math.log2(size / base))
            wedge.append(
                {
                    **of,
                    "window": index,
                    "x": size,
                    "value": 2.0**centre,
                    "band_low": rates.clamp(2.0 ** (centre - octaves)),
                    "band_high": rates.clamp(2.0 ** (centre + octaves)),
                }
            )
    return replace(
        _series(study, points, failed, bands=wedge),
        y=replace(rates, bottom=rates.at(-0.09)),
        description=f"Best {study.tuned.name} against {axis}, one line per scheme",
    )


def loss_section(study: Study) -> Section:
    """The best losses against size."""
    study = by_slice(study)
    return Section(
        title=is_larger_better(study.axis),
        lead=(
            f"The loss at the best {study.tuned.name} of each size, with its interval over seeds. "
            "Crosses: nothing trains."
        ),
        legend=scheme_signs(study),
        plots=[Plot(chart=loss_chart(study))],
        layout="pair",
    )


def loss_chart(study: Study) -> Chart:
    """The loss at each size's own best value."""
    axis = best_loss_axis(study)
    points, failed = _by_scheme(study, "loss", "loss_low", "loss_high", axis)
    return replace(
        _series(study, points, failed),
        y=replace(axis, top=axis.at(1.09)),
        description=f"Best loss against {study.axis}, one line per scheme",
    )


def _series(study: Study, points: list[Row], failed: list[Row], **layers: list[Row]) -> Chart:
    """The chart with one line per scheme, but for the axis of its values and its words."""
    tips = _optimum_tips(study)
    return Chart(
        layers=against_size(points, by="scheme", tips=tips, failed=failed, **layers),
        x=size_axis(study.axis, sizes(study), room=True),
        y=Axis(),
        colours=scheme_colours(study),
        shapes={**scheme_shapes(study), **EDGE_SHAPES},
    )


def _by_scheme(
    study: Study, value: str, low: str, high: str, axis: Axis
) -> tuple[list[Row], list[Row]]:
    """The rows of a chart against size: optima, and sizes at which nothing trains.

    Schemes stand a little apart along the axis, so that equal values all stay visible.
    """
    names = [t.scheme for t in transfers(study)]
    apart = min(0.07, 0.3 / len(names)) if names else 0.0
    shift = {s: 2 ** (apart * (i - (len(names) - 1) / 2)) for i, s in enumerate(names)}
    rows: list[Row] = []
    failed: list[Row] = []
    for optimum in optimum_rows(study):
        row = _plain(optimum, study)
        scheme, size, location = str(row["scheme"]), row["size"], row["place"]
        words = folded(str(row["title"]), 13)
        drawn: Row = {**row, "x": size * shift.get(scheme, 1.0), "mark": scheme, "words": words}
        if location == Place.FAILED.value:
            # Where nothing trains there is no value to draw: the mark stands in the margin, below
            # the learning rates (all are too large), above the losses.
            failed.append({**drawn, "value": axis.at(1.05 if value == "loss" else -0.05)})
            drawn["value"] = None
        else:
            drawn["value"] = row[value]
            drawn.update(band_of(row, low, high, axis))
        if location in EDGE_SHAPES:
            drawn["mark"] = location
        rows.append(drawn)
    last = dict[tuple[int, str], Row]()
    for row in sorted((r for r in rows if known(r["value"])), key=lambda r: r["size"]):
        last[row["window"], row["scheme"]] = row
    # Beside the largest size, as labels of lines that end before would touch other lines.
    for window in {row["window"] for row in last.values()}:
        ends = [row for row in last.values() if row["window"] == window]
        largest = max(row["size"] for row in ends)
        wished = [axis.where(axis.clamp(row["value"])) for row in ends]
        heights = [_LINE * (1 + row["words"].count("\n")) for row in ends]
        for row, centre, height in zip(ends, spread(wished, heights), heights, strict=True):
            # A text of several lines stands where its first one does.
            row["label"] = axis.at(centre + (height - _LINE) / 2)
            row["label_x"] = largest * max(shift.values())
    return rows, failed


_LINE = 0.055
"""Of a chart's height, that of a label's line."""


def window_of(study: Study, window: int | None = None) -> int:
    """The window of training that a chart shows first."""
    count = len(study.windows)
    chosen = count - 1 if window is None else window
    if not 0 <= chosen < count:
        raise ValueError(f"The study has windows 0 to {count - 1}; got window={window}.")
    return chosen
