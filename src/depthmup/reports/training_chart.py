"""The loss over training of the best value that was run at each size."""

from dataclasses import replace
from typing import Any

from depthmup.records import Curve, Study, Window
from depthmup.reports.axes import Axis, loss_axis
from depthmup.reports.chart import Chart, Layer, known
from depthmup.reports.charts import size_colours
from depthmup.reports.layers import GREY
from depthmup.reports.study_rows import Row, size_of, transfers, verdicts_of


def training_charts(study: Study) -> list[Chart]:
    """A panel for each scheme; none of a table, or of a study of a single window."""
    windows = (*study.training, *study.windows)
    if not study.headline.stop or len(windows) < 2:
        return []
    rows = {t.scheme: _rows(study, windows, t.scheme) for t in transfers(study)}
    losses = loss_axis(row["loss"] for of in rows.values() for row in of)
    # What the slider shows in the other charts.
    shown = [
        {"window": i, "start": window.start, "stop": window.stop}
        for i, window in enumerate(study.windows)
    ]
    steps = Axis(title="steps", format=",.0f", grid=False)
    place: dict[str, Any] = {"x": "steps", "y": "loss", "by": study.axis}
    tips = [
        (study.axis, study.axis, ""),
        ("rate", study.tuned.name, ".3~g"),
        ("of", "steps", ""),
        ("loss", "loss", ".4~g"),
    ]
    return [
        Chart(
            layers=[
                Layer(mark="rect", rows=shown, x="start", x2="stop", look=GREY),
                Layer(mark="line", rows=rows[t.scheme], **place, order="steps",
                      look={"strokeWidth": 2, "clip": True}),
                Layer(mark="point", rows=rows[t.scheme], **place, tips=tips,
                      look={"filled": True, "size": 26, "clip": True}),
            ],
            x=replace(steps, low=windows[0].start, high=windows[-1].stop),
            y=losses,
            colours=size_colours(study),
            legend=study.axis,
            title=t.title,
            verdicts=verdicts_of(study, t.scheme),
            description=f"Training loss against steps by {study.axis}: {t.title}",
            height=230,
        )
        for t in transfers(study)
        if rows[t.scheme]
    ]  # fmt: skip


def _rows(study: Study, windows: tuple[Window, ...], scheme: str) -> list[Row]:
    """The loss in every window at the value that is best in the last one, for each size."""
    rows = []
    for curve in _curves(study.headline, scheme):
        points = [point for point in curve.points if known(point.loss.value)]
        if not points:
            continue
        best = min(points, key=lambda point: point.loss.value)
        for window in windows:
            for same in _curves(window, scheme):
                rows += [
                    {
                        study.axis: size_of(study, curve),
                        "rate": 2.0**point.log2_lr,
                        "steps": (window.start + window.stop) / 2,
                        "of": f"{window.start}–{window.stop}",
                        "loss": point.loss.value,
                    }
                    for point in same.points
                    if same.size == curve.size and point.log2_lr == best.log2_lr
                    if known(point.loss.value)
                ]
    return rows


def _curves(window: Window, scheme: str) -> list[Curve]:
    return [curve for curve in window.curves if curve.scheme == scheme]
