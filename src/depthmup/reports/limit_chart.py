"""A limit as a picture: the loss over training, and the size of the stream over depth."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from depthmup.reports.style import MUTED, configured

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
    """
    import altair as alt

    loss_rows = [{"step": t, "loss": loss} for t, loss in enumerate(losses)]
    rms_rows = [
        {"step": t, "position": p, "rms": value}
        for t, line in enumerate(rms)
        for p, value in zip(positions, line, strict=True)
    ]
    loss = (
        alt.Chart(alt.Data(values=loss_rows), title="Loss")
        .mark_line(point=True, color=MUTED)
        .encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y("loss:Q", title="training loss", scale=alt.Scale(zero=False)),
            tooltip=["step:Q", alt.Tooltip("loss:Q", format=".4g")],
        )
        .properties(width=340, height=280)
    )
    stream = (
        alt.Chart(alt.Data(values=rms_rows), title="Residual stream")
        .mark_line()
        .encode(
            x=alt.X("position:Q", title="depth, as a fraction"),
            y=alt.Y("rms:Q", title="RMS of x", scale=alt.Scale(zero=False)),
            color=alt.Color("step:Q", scale=alt.Scale(scheme="plasma"), title="step"),
            detail="step:Q",
            tooltip=["step:Q", "position:Q", alt.Tooltip("rms:Q", format=".4g")],
        )
        .properties(width=340, height=280)
    )
    result: alt.HConcatChart = configured(alt.hconcat(loss, stream).properties(title=title))
    return result
