"""The loss over training of the best value that was run at each size."""

import math
from dataclasses import replace
from typing import Any

from depthmup.records import Study
from depthmup.records.text import begin
from depthmup.reports.axes import Axis, loss_axis
from depthmup.reports.chart import GREY, Chart, Layer, known
from depthmup.reports.charts import all_points, scheme_plot, size_colours, size_signs
from depthmup.reports.page import Section
from depthmup.reports.sentences import loss_word, of_command, share
from depthmup.reports.study_rows import Row, title_of, transfers


def training_section(study: Study) -> Section:
    """A panel for each scheme; none of a table, or of a study of a single window."""
    signs = [sign for sign in size_signs(study) if sign[2]]
    section = Section(
        title="Has training settled?",
        lead=(
            f"Mean {loss_word(study)} of successive windows at the best {study.tuned.name} that "
            f"was run at each {study.axis}, one panel per scheme. Grey: the window that is judged."
        ),
        legend=signs,
        legend_of=study.axis if signs else "",
        layout="panels",
    )
    windows = (*study.training, *study.windows)
    if not study.headline.stop or len(windows) < 2:
        return section
    rows = {t.scheme: _rows(study, t.scheme) for t in transfers(study)}
    losses = loss_axis((row["loss"] for of in rows.values() for row in of), title=loss_word(study))
    # What the slider shows in the other charts.
    shown = [
        {"window": i, "start": share(study, window.start), "stop": share(study, window.stop)}
        for i, window in enumerate(study.windows)
    ]
    unit = "% of the run" if of_command(study) else "steps"
    first, last = (share(study, n) for n in (windows[0].start, windows[-1].stop))
    steps = Axis(title=unit, format=",.0f", grid=False, low=first, high=last)
    place: dict[str, Any] = {"x": "steps", "y": "loss", "by": "size"}
    tips = [
        ("size", study.axis, ""),
        ("rate", study.tuned.name, ".3~g"),
        ("of", unit, ""),
        ("loss", "loss", ".4~g"),
    ]
    charts = {
        scheme: Chart(
            layers=[
                Layer(mark="rect", rows=shown, x="start", x2="stop", look=GREY),
                Layer(mark="line", rows=of, **place, order="steps",
                      look={"strokeWidth": 2, "clip": True}),
                Layer(mark="point", rows=of, **place, tips=tips,
                      look={"filled": True, "size": 26, "clip": True}),
            ],
            x=steps,
            y=losses,
            colours=size_colours(study),
            legend=study.axis,
            description=(
                f"{begin(loss_word(study))} against {unit} by {study.axis}: "
                f"{title_of(study, scheme)}"
            ),
            height=230,
        )
        for scheme, of in rows.items()
        if of
    }  # fmt: skip
    plots = [scheme_plot(study, scheme, chart) for scheme, chart in charts.items()]
    return replace(section, plots=plots)


def _rows(study: Study, scheme: str) -> list[Row]:
    """The loss in every window at the value that is best in the last one, for each size."""
    column, last = study.tuned.column, len(study.windows) - 1
    points = [p for p in all_points(study) if p["scheme"] == scheme and known(p["loss"])]
    best: dict[float, Row] = {}
    for point in points:
        size = point[study.axis]
        if point["window"] == last and point["loss"] < best.get(size, {"loss": math.inf})["loss"]:
            best[size] = point
    return [
        {
            "size": size,
            "rate": 2.0 ** point[column],
            "steps": (point["start"] + point["stop"]) / 2,
            "of": f"{point['start']:.15g}–{point['stop']:.15g}",
            "loss": point["loss"],
        }
        for size, of in best.items()
        for point in points
        if point[study.axis] == size and point[column] == of[column]
    ]
