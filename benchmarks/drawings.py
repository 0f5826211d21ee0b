"""The measurements as pictures; each names the hardware."""

from typing import Any

from benchmarks import engines, scaling
from benchmarks.subjects import BATCH, PEAKS
from depthmup.reports import Picture, configured

ORDER = [row for row in engines.ROWS if row not in PEAKS]


def of_engines(result: engines.Result, hardware: str) -> Picture:
    """Share of the product's peak that every row reaches, by size."""
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
    y = {**_name("row"), "sort": ORDER, "title": None, "axis": {"labelLimit": 220}}
    native = {"test": "datum.row === 'native'", "value": "#0072B2"}
    bars = {
        "mark": "bar",
        "encoding": {
            "y": y,
            "x": {
                **_number("share"),
                "title": "share of the measured peak of sgemm",
                "axis": {"format": "%"},
                "scale": {"domainMin": 0},
            },
            "color": {"condition": native, "value": "#A9B4BF"},
            "tooltip": [_name("row"), _name("size"), {**_number("rate"), "format": ".0f"}],
        },
    }
    numbers = {
        "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 11},
        "encoding": {
            "y": y,
            "x": _number("share"),
            "text": {**_number("rate"), "format": ",.0f"},
        },
    }
    facet = {
        **_name("size"),
        "title": None,
        "sort": [f"width {n}, depth {d}" for n, d in engines.SIZES],
        "header": {"labelFontSize": 12},
    }
    return configured(
        {
            "data": {"values": values},
            "facet": facet,
            "columns": 2,
            "spec": {"width": 300, "height": 150, "layer": [bars, numbers]},
            "resolve": {"scale": {"x": "shared"}},
            "title": {
                "text": "Training steps per second, and the share of what the processor can do",
                "subtitle": f"{hardware}; batch {BATCH}, Adam; numbers are steps of one network/s",
            },
        }
    )


def of_scaling(result: scaling.Result, hardware: str) -> Picture:
    """Time per parameter and step against depth and against members: both should be flat."""

    def panel(values: list[dict[str, Any]], x: str, title: str, group: str) -> dict[str, Any]:
        return {
            "title": title,
            "width": 320,
            "height": 240,
            "data": {"values": values},
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": {**_number(x), "scale": {"type": "log", "base": 2}, "title": x},
                "y": {
                    **_number("ns"),
                    "title": "ns per parameter, step and core",
                    "scale": {"domainMin": 0, "zero": True},
                },
                "color": {**_name(group), "title": group, "sort": None},
                "tooltip": [_number(x), {**_number("ns"), "format": ".2f"}],
            },
        }

    by_depth = [{"depth": d, "ns": ns, "width": str(n)} for (n, d), ns in result.depth.items()]
    by_members = [
        {"members": m, "ns": ns, "engine": row} for (row, m), ns in result.members.items()
    ]
    return configured(
        {
            "hconcat": [
                panel(by_depth, "depth", "Against depth", "width"),
                panel(by_members, "members", "Against members (width 64, depth 8)", "engine"),
            ],
            "resolve": {"scale": {"color": "independent"}},
            "title": {"text": "What a step costs", "subtitle": f"{hardware}; Adam"},
        }
    )


def _name(column: str) -> dict[str, Any]:
    return {"field": column, "type": "nominal"}


def _number(column: str) -> dict[str, Any]:
    return {"field": column, "type": "quantitative"}
