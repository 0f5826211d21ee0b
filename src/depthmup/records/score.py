"""What became of a forecast: a certificate's value and bound against runs made at its target."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from depthmup.records.certificate import Certificate
from depthmup.records.finding import Estimate, Optimum, percent, ranged, rate
from depthmup.records.printable import printable
from depthmup.records.sizes import size_text
from depthmup.records.text import counted


class Fate(StrEnum):
    """Whether what was forecast came."""

    HELD = "held"
    MISSED = "missed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A certificate against the optimum that runs at its target show.

    Attributes:
        certificate: the forecast.
        best: what the runs show, with 90% intervals.
        excess: loss with the forecast's value minus the best loss, as a fraction of that.
        rates, seeds: how many of each were run at the target.
        value: whether the forecast's interval holds the best value. Undecided where the best one
            lies at the edge of what was run, or is known less well than it was forecast.
        bound: whether the excess loss is below the certificate's bound, with its whole interval;
            undecided where that has values on both sides.
    """

    certificate: Certificate
    best: Optimum
    excess: Estimate
    rates: int
    seeds: int
    value: Fate
    bound: Fate

    @property
    def measured(self) -> Estimate:
        """The best value at the target, in units of the base."""
        return self.best.log2_lr.exp2()

    def to_dict(self) -> Mapping[str, object]:
        """What ``--json`` prints."""
        forecast, unit = self.certificate, ("value", "low", "high")
        return {
            "target": dict(forecast.target),
            "tuned": forecast.tuned.key,
            "date": forecast.date,
            "data": forecast.data,
            "forecast": {end: getattr(forecast.value, end) for end in unit},
            "measured": {end: getattr(self.measured, end) for end in unit},
            "value": self.value.value,
            "excess": {end: getattr(self.excess, end) for end in unit},
            "bound_on_excess": forecast.penalty.high,
            "bound": self.bound.value,
            "rates": self.rates,
            "seeds": self.seeds,
        }

    def summary(self) -> str:
        """The forecast, what was found, and both verdicts, a line each."""
        forecast, best, name = self.certificate, self.measured, self.certificate.tuned.name
        dated = f" of {forecast.date}" if forecast.date else ""
        excess = self.excess
        runs = f"{counted(self.rates, 'value')}, {counted(self.seeds, 'seed')}"
        lines = [
            f"Forecast{dated} for {size_text(forecast.target)}: {name} {ranged(forecast.value)}.",
            f"{self.value.capitalize()}: the best one there is {ranged(best)} ({runs}).",
        ]
        if excess.known or excess.value > 0:
            cost, bound = ranged(excess, percent), percent(forecast.penalty.high)
            lines.append(
                f"{self.bound.capitalize()}: {rate(forecast.value.value)} costs {cost} of the best "
                f"loss; the bound was {bound}."
            )
        return printable("\n".join(lines))

    def __repr__(self) -> str:
        return printable(f"<Score for {size_text(self.certificate.target)}: {self.value.value}>")
