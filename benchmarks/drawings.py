"""The measurements as pictures; each names the hardware."""

from typing import Any

from benchmarks import engines, scaling
from benchmarks.subjects import BATCH, PEAKS
from depthmup.reports.theme import configured

ORDER = [row for row in engines.ROWS if row not in PEAKS]


def of_engines(result: engines.Result, hardware: str) -> Any:
    """Share of the product's peak that every row reaches, by size."""
    import altair as alt

    values = [
        {
            "row": row,
            "size": f"width {n}, depth {d}",
            "rate": result.median(row, (n, d)),
            "share": result.share(row, (n, d)),
        }
        for row in ORDER
        if row in result.rates
        for n, d in result.rates[row]
    ]
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("row:N", sort=ORDER, title=None, axis=alt.Axis(labelLimit=220)),
    )
    bars = base.mark_bar().encode(
        x=alt.X(
            "share:Q",
            title="share of the measured peak of sgemm",
            axis=alt.Axis(format="%"),
            scale=alt.Scale(domainMin=0),
        ),
        color=alt.condition(alt.datum.row == "native", alt.value("#0072B2"), alt.value("#A9B4BF")),
        tooltip=["row:N", "size:N", alt.Tooltip("rate:Q", format=".0f")],
    )
    numbers = base.mark_text(align="left", dx=4, fontSize=11).encode(
        x="share:Q", text=alt.Text("rate:Q", format=",.0f")
    )
    chart = (
        alt.layer(bars, numbers)
        .properties(width=300, height=150)
        .facet(
            facet=alt.Facet(
                "size:N",
                title=None,
                sort=[f"width {n}, depth {d}" for n, d in engines.SIZES],
                header=alt.Header(labelFontSize=12),
            ),
            columns=2,
        )
        .resolve_scale(x="shared")
        .properties(
            title=alt.Title(
                "Training steps per second, and the share of what the processor can do",
                subtitle=f"{hardware}; batch {BATCH}, Adam; numbers are steps of one network/s",
            )
        )
    )
    return configured(chart)


def of_scaling(result: scaling.Result, hardware: str) -> Any:
    """Time per parameter and step against depth and against members: both should be flat."""
    import altair as alt

    def panel(values: list[dict[str, Any]], x: str, title: str, group: str) -> Any:
        return (
            alt.Chart(alt.Data(values=values), title=title)
            .mark_line(point=True)
            .encode(
                x=alt.X(f"{x}:Q", scale=alt.Scale(type="log", base=2), title=x),
                y=alt.Y(
                    "ns:Q",
                    title="ns per parameter, step and core",
                    scale=alt.Scale(domainMin=0, zero=True),
                ),
                color=alt.Color(f"{group}:N", title=group, sort=None),
                tooltip=[f"{x}:Q", alt.Tooltip("ns:Q", format=".2f")],
            )
            .properties(width=320, height=240)
        )

    by_depth = [{"depth": d, "ns": ns, "width": str(n)} for (n, d), ns in result.depth.items()]
    by_members = [
        {"members": m, "ns": ns, "engine": row} for (row, m), ns in result.members.items()
    ]
    chart = alt.hconcat(
        panel(by_depth, "depth", "Against depth", "width"),
        panel(by_members, "members", "Against members (width 64, depth 8)", "engine"),
    ).resolve_scale(color="independent")
    return configured(
        chart.properties(title=alt.Title("What a step costs", subtitle=f"{hardware}; Adam"))
    )
