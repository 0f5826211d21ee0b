"""A certificate, judged by runs that were made at its target after it was written."""

import math

import numpy as np

from depthmup.records import UNKNOWN, Certificate, Estimate, Fate, Place, Score
from depthmup.records.printable import printable
from depthmup.records.sizes import size_text
from depthmup.statistics.cost import cost
from depthmup.statistics.runs import Runs


def scored(certificate: Certificate, groups: list[Runs]) -> Score:
    """The certificate against the one group of a table that its target's runs are in."""
    runs = _group_of(certificate, groups)
    if runs.problem:
        raise ValueError(runs.problem)
    if certificate.target not in runs.sizes:
        there = "; ".join(size_text(size) for size in runs.sizes[-5:])
        raise ValueError(
            f"Expected runs at the forecast's target, {printable(size_text(certificate.target))}; "
            f"the table has none. Its largest sizes: {printable(there)}."
        )
    i = runs.sizes.index(certificate.target)
    curves, best = runs.curves, runs.best(certificate.confidence)[i]
    if best.place is Place.FAILED:
        raise ValueError(
            f"Expected runs that train at {printable(size_text(certificate.target))}; none does."
        )
    excess = UNKNOWN
    if best.place is Place.INTERIOR:
        found, at = runs.minima, runs.trains.index(i)
        row = np.zeros(len(found.at))
        row[at] = -1.0
        price = cost(found, at, row, math.log2(certificate.value.value), certificate.confidence)
        level = best.loss.value
        excess = Estimate(value=price.value / level, low=price.low / level, high=price.high / level)
    below = excess.within(0.0, certificate.penalty.high)
    return Score(
        certificate=certificate,
        best=best,
        excess=excess,
        rates=int((~np.isnan(curves.log2_lrs[i])).sum()),
        seeds=int(curves.seeds[i].sum()),
        value=_fate(certificate.value, best.log2_lr),
        bound={True: Fate.HELD, False: Fate.MISSED, None: Fate.UNDECIDED}[below],
    )


def _fate(forecast: Estimate, best: Estimate) -> Fate:
    """Whether an interval of values holds an optimum that is known with an interval of its own."""
    low, high = math.log2(forecast.low), math.log2(forecast.high)
    if best.outside(low, high):
        return Fate.MISSED
    as_sharp = best.high - best.low <= high - low
    return Fate.HELD if low <= best.value <= high and as_sharp else Fate.UNDECIDED


def _group_of(certificate: Certificate, groups: list[Runs]) -> Runs:
    """The group that the forecast is about: by its name, or the only one."""
    about = {certificate.title, certificate.scheme}
    named = [runs for runs in groups if {runs.name, runs.title} & about]
    found = named if len(named) == 1 else groups
    if len(found) > 1:
        names = ", ".join(printable(runs.name) for runs in groups)
        raise ValueError(
            f"Expected the runs of one variant; the table has {names}. Pick one with a filter."
        )
    return found[0]
