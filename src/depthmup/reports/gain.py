"""Gains in words, as rows, and as a chart: which variant is better, and whether it stays so."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from statistics import median

from depthmup.records import Estimate, Study
from depthmup.records.gain import Gain, GainVerdict
from depthmup.records.sizes import size_number, size_text
from depthmup.reports import theme
from depthmup.reports.axes import Axis, size_axis
from depthmup.reports.chart import DASHED, Chart, Layer, against_size, band_of, draw
from depthmup.reports.page import Plot, Section, Table
from depthmup.reports.picture import Picture
from depthmup.reports.sentences import number
from depthmup.reports.study_rows import Row, title_of

SHOWN = 4
"""Gains that a console shows."""

LEAST = 5e-4
"""Percent: less is none."""

WIDEST = 3.0
"""An interval is drawn this many times the median one beyond all gains, and no further."""

MOST = 1e4
"""Percent: a loss a hundred times as large; that it is larger still tells nothing."""

MOST_RESERVATIONS = 2
"""Of a gain, on a console."""


def percent(log: float, digits: int = 2) -> str:
    """A gain in nats as how much lower the loss is, in percent, with two significant digits.

    Example:
        >>> percent(0.035), percent(-0.0075), percent(0.0)
        ('3.4%', '−0.75%', '0%')
    """
    if not math.isfinite(log):
        return number(log)
    value = -100 * math.expm1(-log)
    if abs(value) < LEAST:
        return "0%"
    if value < -MOST:
        return f"<−{MOST:.0f}%"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{number(value, min(places, 4))}%"


def spanned(gain: Estimate) -> str:
    """A gain in percent with its interval."""
    return f"{percent(gain.value)} ({percent(gain.low)} to {percent(gain.high)})"


_BECOMES = {
    GainVerdict.HOLDS: "it holds",
    GainVerdict.GROWS: "it grows",
    GainVerdict.FADES: "it fades",
    GainVerdict.CROSSES: "it crosses",
    GainVerdict.WORSE: "no gain: it is worse",
    GainVerdict.UNDECIDED: "undecided",
}


def gain_sentence(study: Study, gain: Gain) -> str:
    """The gain at the base and at the target, and the verdict."""
    first = next((s for s in gain.sizes if dict(s.size) == dict(gain.base)), gain.sizes[0])
    names = f"{title_of(study, gain.of)} over {title_of(study, gain.over)}"
    start = f"{percent(first.tuned.value)} at {_place(gain, gain.base)}"
    if dict(gain.target) == dict(gain.base):
        return f"{names}: gain {spanned(first.tuned)} at {_place(gain, gain.base)}."
    end = f"{spanned(gain.tuned)} at {_place(gain, gain.target)}"
    return f"{names}: gain {start}, {end}: {_BECOMES[gain.verdict]}."


def _place(gain: Gain, size: Mapping[str, float]) -> str:
    """A size by the axes of which sizes have several values."""
    sizes = [*(s.size for s in gain.sizes), gain.target]
    varied = [axis for axis in size if len({s[axis] for s in sizes}) > 1] or list(size)
    return " ".join(f"{axis} {size_number(size[axis])}" for axis in varied)


def why_sentence(gain: Gain) -> str:
    """The reason, what the gain is worth, and what it is as trained where that differs."""
    parts = [gain.why]
    if gain.verdict is not GainVerdict.WORSE:
        parts += [
            f"Worth {number(worth.value, 2)} times the {axis} "
            f"({number(worth.low, 2)} to {number(worth.high, 2)})."
            for axis, worth in gain.worth.items()
            if worth.low > 1 or worth.high < 1
        ]
    carried, tuned = gain.as_trained, gain.tuned
    if not carried.low <= tuned.value <= carried.high:
        parts.append(f"With each base's value as it is: {spanned(carried)}.")
    return " ".join(parts)


def gain_lines(study: Study) -> list[str]:
    """Two lines for each gain, for a console; reservations below."""
    lines = []
    for gain in study.gains[:SHOWN]:
        lines += [gain_sentence(study, gain), f"  {why_sentence(gain)}"]
        lines += [f"  {text}" for text in gain.reservations[:MOST_RESERVATIONS]]
    if more := len(study.gains) - SHOWN if len(study.gains) > SHOWN else 0:
        lines.append(f"Gains of {more} more variants: --json has all.")
    return lines


def gain_section(study: Study) -> Section:
    """The gain against size along the study's axis, and at the target."""
    lead = (
        "How much lower the best loss is than the other's, in percent, each at its own best "
        f"{study.tuned.name}. Bars: 95% intervals."
    )
    if any(not gain.trained for gain in study.gains):
        lead += " Diamond: the target, 90%."
    return Section(
        title="Which one is better, and does it stay so?",
        lead=lead,
        plots=[Plot(chart=chart)] if (chart := gain_chart(study)) is not None else [],
        legend=[
            (_name(study, gain), "●", colour)
            for gain, colour in zip(study.gains, cycle(theme.SERIES), strict=False)
        ],
    )


def gain_table(study: Study) -> Section:
    """The same as a table."""
    rows = []
    for gain in study.gains:
        for at in gain.sizes:
            rows.append(
                {
                    "gain": _name(study, gain),
                    "size": size_text(at.size),
                    "tuned": percent(at.tuned.value),
                    "95%": f"{percent(at.tuned.low)} to {percent(at.tuned.high)}",
                    "as trained": percent(at.as_trained.value),
                    "verdict": "",
                }
            )
        rows.append(
            {
                "gain": _name(study, gain),
                "size": f"{size_text(gain.target)}{'' if gain.trained else ', foretold'}",
                "tuned": percent(gain.tuned.value),
                "95%": f"{percent(gain.tuned.low)} to {percent(gain.tuned.high)}",
                "as trained": percent(gain.as_trained.value),
                "verdict": gain.verdict.value,
            }
        )
    text = [f"{gain_sentence(study, g)} {why_sentence(g)}" for g in study.gains]
    text += [f"{_name(study, g)}: {said}" for g in study.gains for said in g.reservations]
    return Section(
        title="Gains",
        text=text,
        table=Table(
            rows=rows,
            name="Gains at every size",
            group="gain",
            numbers=("tuned", "95%", "as trained"),
        ),
    )


def _name(study: Study, gain: Gain) -> str:
    return f"{title_of(study, gain.of)} over {title_of(study, gain.over)}"


def gain_chart(study: Study) -> Chart | None:
    """Gains along the study's axis."""
    return chart_of(study.gains, study.axis, [_name(study, gain) for gain in study.gains])


def gain_picture(gain: Gain) -> Picture:
    """One gain along the first axis that its sizes vary along; on a chart of one size there is it
    alone.
    """
    axes = [a for a in gain.base if len({s.size[a] for s in gain.sizes}) > 1] or list(gain.target)
    name = f"{gain.of} over {gain.over}"
    chart = chart_of([gain], axes[0], [name])
    if chart is None:
        raise ValueError(f"Expected two sizes along {axes[0]} for a chart; {name} has one.")
    return draw(chart)


def chart_of(gains: Sequence[Gain], axis: str, names: Sequence[str]) -> Chart | None:
    """Of the sizes along an axis, the other axes at the base's values; none of one size."""
    points: list[Row] = []
    aims: list[Row] = []
    for gain, name in zip(gains, names, strict=True):
        on_arm = [s for s in gain.sizes if _beside(s.size, gain.base, axis)]
        points += [_row(name, s.size[axis], s.tuned) for s in on_arm]
        if not gain.trained and _beside(gain.target, gain.base, axis):
            aims.append(_row(name, gain.target[axis], gain.tuned))
    every = [*points, *aims]
    if len({row["x"] for row in every}) < 2:
        return None
    values = [row["value"] for row in every] + [0.0]
    # The interval of a forecast may be millions of percent wide, beside which all others are none.
    usual = median(row["high"] - row["low"] for row in every)
    reach = max(max(values) - min(values), WIDEST * usual)
    low = max(min(row["low"] for row in every), min(values) - reach)
    high = min(max(row["high"] for row in every), max(values) + reach)
    low, high = min(low, *values), max(high, *values)
    air = 0.08 * (high - low) or 1.0
    y = Axis(title="gain, percent", low=low - air, high=high + air, format=".3~g")
    for row in every:
        row |= band_of(row, "low", "high", y)
    tips = [("name", "gain", ""), ("x", axis, ""), ("value", "percent", ".2f")]
    return Chart(
        layers=[
            Layer(mark="rule", rows=[{"zero": 0.0}], y="zero", look=DASHED),
            *against_size(points, by="name", tips=tips, aims=aims),
        ],
        x=size_axis(axis, [row["x"] for row in every]),
        y=y,
        colours=dict(zip(names, cycle(theme.SERIES), strict=False)),
        shapes={"gain": "circle"},
        description=f"Gain against {axis}",
    )


def _beside(size: Mapping[str, float], base: Mapping[str, float], axis: str) -> bool:
    """Whether a size differs from the base along one axis at most."""
    return all(size[a] == n for a, n in base.items() if a != axis)


def _row(name: str, x: float, log: Estimate) -> Row:
    value, low, high = (-100 * math.expm1(-v) for v in (log.value, log.low, log.high))
    return {"x": x, "value": value, "low": low, "high": high, "name": name, "mark": "gain"}
