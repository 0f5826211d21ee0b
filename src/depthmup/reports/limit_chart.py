"""A limit as pictures: the loss over training, and the size of the stream over depth."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from depthmup.reports.page import Page, Plot, Section, Table
from depthmup.reports.theme import BLUE, configured, ramp

if TYPE_CHECKING:
    import altair as alt


def limit_chart(
    losses: Sequence[float],
    positions: Sequence[float],
    rms: Sequence[Sequence[float]],
    *,
    title: str,
) -> "alt.HConcatChart":
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
        >>> [part.title for part in chart.hconcat]
        ['Loss', 'Residual stream']
    """
    import altair as alt

    size = {"width": 340, "height": 280}
    loss = loss_chart(losses).properties(title="Loss", **size)
    stream = stream_chart(positions, rms).properties(title="Residual stream", **size)
    result: alt.HConcatChart = configured(alt.hconcat(loss, stream).properties(title=title))
    return result


def loss_chart(losses: Sequence[float]) -> Any:
    """The loss before each update."""
    import altair as alt

    rows = [{"step": t, "loss": loss} for t, loss in enumerate(losses)]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=True, color=BLUE)
        .encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("loss:Q", title="training loss", scale=alt.Scale(zero=False)),
            tooltip=["step:Q", alt.Tooltip("loss:Q", format=".4g")],
        )
    )


def stream_chart(positions: Sequence[float], rms: Sequence[Sequence[float]]) -> Any:
    """The RMS of x against depth, a line for each step."""
    import altair as alt

    rows = [
        {"step": t, "position": p, "rms": value}
        for t, line in enumerate(rms)
        for p, value in zip(positions, line, strict=True)
    ]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line()
        .encode(
            x=alt.X("position:Q", title="depth, as a fraction"),
            y=alt.Y("rms:Q", title="RMS of x", scale=alt.Scale(zero=False)),
            color=alt.Color("step:Q", scale=alt.Scale(range=ramp(7)), title="step"),
            detail="step:Q",
            tooltip=["step:Q", "position:Q", alt.Tooltip("rms:Q", format=".4g")],
        )
    )


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
    tall = {"width": "container", "height": 300}
    return Page(
        title=title,
        headline=headline,
        lead=[f"At infinite width; no network was trained. Status: {status}."],
        sections=[
            Section(
                title="The loss",
                plots=[Plot(chart=configured(loss_chart(losses).properties(**tall)))],
            ),
            Section(
                title="The residual stream",
                lead="Root mean square entry of x along the depth, one line for each step.",
                plots=[Plot(chart=configured(stream_chart(positions, rms).properties(**tall)))],
            ),
            Section(
                title="The numbers",
                table=Table(rows=rows, numbers=("step", "loss", "RMS of x at the output")),
            ),
        ],
        facts={"": facts},
        files=[data][: bool(data)],
    ).html()
