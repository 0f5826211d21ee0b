"""What became of a forecast, as one page."""

from collections.abc import Sequence

from depthmup.records import Fate, Score
from depthmup.records.finding import percent, ranged, rate
from depthmup.records.sizes import size_text
from depthmup.records.text import begin
from depthmup.reports.page import Card, Page, Section, Table

_SIGNS = {Fate.HELD: "✓", Fate.MISSED: "✗", Fate.UNDECIDED: "?"}


def score_page(score: Score, *, command: Sequence[str] = ()) -> str:
    """A certificate against the runs that were made at its target.

    Args:
        score: of the certificate.
        command: that made it.

    Returns:
        HTML that opens offline.

    Example:
        >>> import depthmup, pandas as pd
        >>> runs = pd.DataFrame(
        ...     [(d, 2.0**k, s, 2 + 0.1 * (k + 4.1 + 0.01 * s) ** 2 + 0.001 * s)
        ...      for d in (4, 8, 16, 32, 64) for s in range(3) for k in range(-9, 0)],
        ...     columns=["depth", "lr", "seed", "loss"])
        >>> columns = dict(axes=["depth"], lr="lr", loss="loss", seed="seed")
        >>> report = depthmup.fit(runs[runs.depth < 64], **columns, target={"depth": 64})
        >>> score = depthmup.score(report.certificates[0], runs, **columns)
        >>> score_page(score).startswith("<!doctype html>")
        True
    """
    forecast, name = score.certificate, score.certificate.tuned.name
    fates = (score.value, score.bound)
    about, *found = score.summary().splitlines()
    found += ["Undecided: the best value lies at the edge of the runs."][len(found) - 1 :]
    cards = [
        Card(title=title, verdict=fate.value.capitalize(), symbol=_SIGNS[fate], text=[_said(line)])
        for title, fate, line in zip(
            (f"The {name}", "The bound on its cost"), fates, found, strict=True
        )
    ]
    excess = score.excess
    rows = [
        {
            "promise": f"best {name}",
            "forecast": ranged(forecast.value),
            "measured": ranged(score.measured),
        },
        {
            "promise": "excess loss of the forecast's value",
            "forecast": f"at most {percent(forecast.penalty.high)}",
            "measured": ranged(excess, percent) if excess.known else percent(excess.value),
        },
    ]
    return Page(
        title=f"A forecast for {size_text(forecast.target)}",
        tab=f"{score.value.capitalize()}: {size_text(forecast.target)}",
        headline=_headline(score),
        lead=[about],
        sections=[
            Section(cards=cards),
            Section(title="The numbers", table=Table(rows=rows, name="Forecast and runs")),
        ],
        facts={"": {"rates at the target": score.rates, "seeds there": score.seeds}},
        command=command,
    ).html()


def _headline(score: Score) -> str:
    """The verdict, and the value to use."""
    forecast, name = score.certificate, score.certificate.tuned.name
    where = size_text(forecast.target)
    if score.value is Fate.UNDECIDED:
        return f"Whether the forecast holds is undecided. Run more values and seeds at {where}."
    use = f"Use {name} {rate(score.measured.value)} at {where}."
    return f"The forecast {score.value}. {use}"


def _said(line: str) -> str:
    """A sentence of the summary without its verdict, which the card has."""
    said = line.partition(": ")[2]
    return begin(said)
