"""Parts that the charts share: the window's parameter, data, intervals, tooltips."""

import math
from typing import Any

from depthmup.records import Study
from depthmup.records.codec import strict
from depthmup.reports.study_rows import Row
from depthmup.reports.style import Axis

WINDOW = "window_index"
CROSS = "M-1,-1L1,1M-1,1L1,-1"  # an x; Vega's own "cross" is a plus

Width = int | str  # pixels, or "container": as wide as the page gives


def window_param(study: Study, window: int | None) -> Any:
    import altair as alt

    count = len(study.windows)
    chosen = count - 1 if window is None else window
    if not 0 <= chosen < count:
        raise ValueError(f"The study has windows 0 to {count - 1}; got window={window}.")
    return alt.param(name=WINDOW, value=chosen)


def shown() -> str:
    return f"datum.window === {WINDOW}"


def data(rows: list[Row]) -> Any:
    import altair as alt

    # InlineData, unlike Data, is stored once however many layers draw it; a tuple, unlike a list,
    # is not copied whenever a chart is (half of a page's time).
    values: Any = strict(rows)
    return alt.InlineData(values=tuple(values))


def band_of(row: Row, low: str, high: str, axis: Axis) -> Row:
    """The interval clipped to the axis; nulls if there is none.

    Args:
        row: what is drawn.
        low: the column of the lower end.
        high: that of the upper end.
        axis: on which it is drawn.
    """
    ends = [row[low], row[high]]
    if not all(isinstance(end, (int, float)) and not math.isnan(end) for end in ends):
        return {"band_low": None, "band_high": None}
    return {
        "band_low": axis.clamp(ends[0]),
        "band_high": axis.clamp(ends[1]),
    }


def scale_of(axis: Axis, *, low: float | None = None, high: float | None = None) -> Any:
    """The axis as a scale, fixed whatever is drawn on it.

    Args:
        axis: what is drawn on it, and whether by logarithms.
        low: where the scale begins, if not where the axis does.
        high: where it ends.
    """
    import altair as alt

    domain = [axis.low if low is None else low, axis.high if high is None else high]
    if axis.log:
        return alt.Scale(type="log", domain=domain, nice=False)
    return alt.Scale(domain=domain, nice=False, zero=False)


def known(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def same(channel: Any) -> dict[str, Any]:
    """Arguments that put another field on the axis of a channel."""
    settings = channel.to_dict()
    return {key: settings[key] for key in ("title", "scale", "axis") if key in settings}


def hollow(test: str, colour: Any) -> Any:
    """White where a test holds, else the given colour."""
    import altair as alt

    settings = colour.to_dict()
    return alt.Fill(
        settings["field"],
        type="ordinal",
        sort=settings.get("sort"),
        scale=settings["scale"],
        legend=None,
        condition={"test": test, "value": "white"},
    )


# Vega-Lite writes titles into the expressions of tooltips and of descriptions, with quotes escaped
# and nothing else.
_ENDING_EXPRESSIONS = str.maketrans(
    {"\\": "\N{SET MINUS}", **dict.fromkeys("\n\r\u2028\u2029", " ")}
)


def tip_title(text: str) -> str:
    """A person's words as the title of an axis or of a line in a tooltip.

    Example:
        >>> tip_title("log2 " + chr(92) + "rate")
        'log2 ∖rate'
    """
    return text.translate(_ENDING_EXPRESSIONS)


def optimum_tips(alt: Any, study: Study) -> list[Any]:
    return [
        alt.Tooltip("title:N", title="scheme"),
        alt.Tooltip(f"{study.axis}:O"),
        alt.Tooltip(
            f"{study.tuned.column}:Q",
            title=tip_title(f"best log2 {study.tuned.name}"),
            format=".3f",
        ),
        alt.Tooltip("low:Q", title="from", format=".3f"),
        alt.Tooltip("high:Q", title="to", format=".3f"),
        alt.Tooltip("loss:Q", title="loss there", format=".4~g"),
        alt.Tooltip("place:N"),
    ]
