"""A limit as pictures: the loss over training, and the size of the stream over depth."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from depthmup.reports.axes import Axis
from depthmup.reports.chart import Chart, Layer
from depthmup.reports.figure import picture
from depthmup.reports.page import Page, Plot, Section, Table
from depthmup.reports.picture import Picture
from depthmup.reports.theme import BLUE, Style, ramp


def limit_chart(
    losses: Sequence[float],
    positions: Sequence[float],
    rms: Sequence[Sequence[float]],
    *,
    title: str,
) -> Picture:
    """Loss against step, and RMS of x against depth p = l/L with one line per step.

    Args:
        losses: before each update.
        positions: p of the recorded layers.
        rms: ``rms[t][i]``, the root mean square entry of x at ``positions[i]`` before update t.
        title: of the chart.

    Returns:
        The two charts beside each other.

    Example:
        >>> chart = limit_chart([1.0, 0.5], [0.0, 1.0], [[1.0, 1.2], [1.0, 1.4]], title="Two steps")
        >>> len(chart.spec["concat"])
        2
    """
    plots = [
        Plot(title="Loss", chart=_loss_chart(losses)),
        Plot(title="Residual stream", chart=_stream_chart(positions, rms)),
    ]
    return picture(plots, _PANEL, columns=2, title=title)


_PANEL = Style(width=340, height=280)


def _loss_chart(losses: Sequence[float]) -> Chart:
    """The loss before each update."""
    rows = [{"step": t, "loss": loss} for t, loss in enumerate(losses)]
    tips = [("step", "step", ""), ("loss", "loss", ".4g")]
    place: dict[str, Any] = {"rows": rows, "x": "step", "y": "loss"}
    return Chart(
        layers=[
            Layer(mark="line", **place, look={"color": BLUE, "strokeWidth": 2}),
            Layer(mark="point", **place, tips=tips,
                  look={"color": BLUE, "filled": True, "size": 40}),
        ],
        x=_around(range(len(losses)), "step", air=0.0, grid=False),
        y=_around(losses, "training loss"),
        description="Training loss against step",
        height=300,
    )  # fmt: skip


def _stream_chart(positions: Sequence[float], rms: Sequence[Sequence[float]]) -> Chart:
    """The RMS of x against depth, a line for each step."""
    rows = [
        {"step": t, "position": p, "rms": value}
        for t, line in enumerate(rms)
        for p, value in zip(positions, line, strict=True)
    ]
    tips = [("step", "step", ""), ("position", "depth", ".3~g"), ("rms", "RMS of x", ".4g")]
    return Chart(
        layers=[
            Layer(mark="line", rows=rows, x="position", y="rms", by="step", tips=tips,
                  look={"strokeWidth": 1.6}),
        ],
        x=_around(positions, "depth, as a fraction", air=0.0, grid=False),
        y=_around([row["rms"] for row in rows], "RMS of x"),
        colours=dict(enumerate(ramp(len(rms)))),
        description="Root mean square entry of x against depth, from light to dark by step",
        height=300,
    )  # fmt: skip


def _around(values: Iterable[float], title: str, *, air: float = 0.05, grid: bool = True) -> Axis:
    """A linear axis of what is finite."""
    finite = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    pad = air * (high - low) or (0.0 if high > low else 0.5)
    return Axis(title=title, low=low - pad, high=high + pad, grid=grid)


def limit_page(
    losses: Sequence[float],
    positions: Sequence[float],
    rms: Sequence[Sequence[float]],
    *,
    title: str,
    status: str,
    facts: Mapping[str, object],
    data: str = "",
) -> str:
    """A limit as one page: both charts, the numbers, what was solved.

    Args:
        losses: before each update.
        positions: p of the recorded layers.
        rms: the root mean square entry of x, by step and position.
        title: what was solved.
        status: how the solve ended.
        facts: settings.
        data: name of the JSON file beside the page.

    Returns:
        The HTML.

    Example:
        >>> text = limit_page([1.0, 0.5], [0.0, 1.0], [[1.0, 1.2], [1.0, 1.4]], title="One update",
        ...     status="solved", facts={"depth": "infinite"})
        >>> "The loss goes from 1 to 0.5 in 1 updates." in text
        True
    """
    finite = [loss for loss in losses if loss == loss]
    headline = (
        f"The loss goes from {finite[0]:.4g} to {finite[-1]:.4g} in {len(losses) - 1} updates."
        if finite
        else "Training explodes at the first step."
    )
    rows = [
        {"step": str(t), "loss": f"{loss:.5f}", "RMS of x at the output": f"{line[-1]:.5f}"}
        for t, (loss, line) in enumerate(zip(losses, rms, strict=True))
    ]
    return Page(
        title=title,
        headline=headline,
        lead=[f"At infinite width; no network was trained. Status: {status}."],
        sections=[
            Section(title="The loss", plots=[Plot(chart=_loss_chart(losses))]),
            Section(
                title="The residual stream",
                lead="RMS entry of x along the depth: a line per step, from light to dark.",
                plots=[Plot(chart=_stream_chart(positions, rms))],
            ),
            Section(
                title="The numbers",
                table=Table(rows=rows, numbers=("step", "loss", "RMS of x at the output")),
            ),
        ],
        facts={"": facts},
        files=[data][: bool(data)],
    ).html()
