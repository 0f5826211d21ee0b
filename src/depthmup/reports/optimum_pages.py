"""Pages of predicted optima: the answer, a chart and the numbers along every axis."""

from collections.abc import Mapping, Sequence

from depthmup.records import Prediction, sentence
from depthmup.records.finding import change, change_span, in_percent
from depthmup.records.prediction import direction
from depthmup.reports.optimum_chart import Movement, movement, optimum_chart
from depthmup.reports.page import Page, Plot, Section, Table
from depthmup.reports.theme import PAGE


def optimum_page(
    movements: Mapping[str, tuple[Movement, Movement | None]],
    *,
    title: str,
    headline: str,
    notes: Sequence[str] = (),
    command: Sequence[str] = (),
    data: str = "",
) -> str:
    """Where the best learning rate moves, by axis: a chart and the numbers for each.

    Args:
        movements: by axis, what is predicted and, if there is any, what was measured.
        title: of the page.
        headline: the answer, in one sentence.
        notes: sentences below it.
        command: that made it.
        data: name of the file of numbers beside the page.

    Returns:
        The HTML.

    Example:
        >>> from depthmup.records import Estimate
        >>> stays, falls = (Estimate(value=v, low=v - 0.1, high=v + 0.1) for v in (0.0, -0.5))
        >>> falling = Movement(label="predicted", sizes=(8, 16), octaves=(stays, falls))
        >>> text = optimum_page({"depth": (falling, None)}, title="SP", headline="It falls.")
        >>> "It falls." in text and "\N{MINUS SIGN}34% to \N{MINUS SIGN}24%" in text
        True
    """
    sections = []
    for axis, (predicted, measured) in movements.items():
        drawn = optimum_chart(predicted, measured=measured, axis=axis, title="", style=PAGE)
        dots = "" if measured is None else " Dots: measured."
        columns = {axis: [str(size) for size in predicted.sizes], **_table(predicted, measured)}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        sections.append(
            Section(
                title=f"Along {axis}",
                lead=f"{predicted.label[:1].upper()}{predicted.label[1:]}.{dots}",
                plots=[Plot(chart=drawn)],
                table=Table(rows=rows, numbers=tuple(columns), name=f"Optima along {axis}"),
            )
        )
    return Page(
        title=title,
        headline=headline,
        lead=notes,
        sections=sections,
        command=command,
        files=[data][: bool(data)],
    ).html()


def _table(predicted: Movement, measured: Movement | None) -> dict[str, list[str]]:
    """Columns by their titles; an interval that nothing has is left out."""
    columns = {"change from the base": [change(at.value) for at in predicted.octaves]}
    if any(at.low < at.high for at in predicted.octaves):
        columns["interval"] = [change_span(at.low, at.high) for at in predicted.octaves]
    if measured is not None:
        beside = dict(zip(measured.sizes, measured.octaves, strict=True))
        columns["measured"] = [
            in_percent(beside[size]) if size in beside else "" for size in predicted.sizes
        ]
    return columns


def prediction_page(prediction: Prediction, *, command: Sequence[str] = ()) -> str:
    """A prediction as one page.

    Args:
        prediction: of a network's optimum.
        command: that made it.

    Returns:
        The HTML.

    Example:
        >>> from depthmup.reports import example_prediction
        >>> "Along depth" in prediction_page(example_prediction())
        True
    """
    axes = [along.axis for along in prediction.axes]
    undecided = [a for a in axes if prediction.drift(a).known and prediction.moves(a) is None]
    return optimum_page(
        {along.axis: (movement(along), None) for along in prediction.axes},
        title=f"{prediction.title}, {prediction.scheme}, {prediction.optimizer}",
        headline=" ".join(
            f"Undecided along {axis}." if axis in undecided else f"{direction(prediction, axis)}."
            for axis in axes
        ),
        notes=[
            "A rule of thumb for SGD; nothing was trained. The intervals do not include the error "
            "of the rule itself: on small batches the direction is usually right and the size "
            "often too large.",
            *(sentence(prediction, axis) for axis in axes),
            *prediction.notes,
        ],
        command=command,
    )
