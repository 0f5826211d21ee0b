"""One answer from many groups: random effects.

Group i has the true slope mu + u_i, with u_i of standard deviation tau. It was measured as y_i with
standard error e_i. With w_i = 1 / (e_i^2 + tau^2), over k groups,

    mu = sum_i w_i y_i / sum_i w_i,
    half-width = t_{k-1} sqrt(sum_i w_i (y_i - mu)^2 / ((k - 1) sum_i w_i)).

The half-width rests on how groups scatter, and not on how wide their own intervals are: one factor
by which all of these are too wide or too narrow leaves it as it is. tau is not known. It is learned
from the groups, with a half-normal prior, and averaged over: its mean square makes the weights, and
a new group, normal about mu with variance tau^2 + error(mu)^2, gets an interval that allows for all
that tau may be. A posterior of all groups together would need a law of their minima in common.

*Source:* Hartung and Knapp (2001), Statistics in Medicine 20:1771-1782, for the interval; Higgins,
Thompson and Spiegelhalter (2009), Journal of the Royal Statistical Society A 172:137-159, for a
new group.
"""

import math
from collections.abc import Sequence

import numpy as np

from depthmup.posterior.intervals import CONFIDENCE, Array, around, student
from depthmup.records import UNKNOWN, AcrossGroups, Estimate, Transfer, Verdict
from depthmup.records.finding import verdict_of
from depthmup.statistics.drift import TOLERANCE

FEWEST_GROUPS = 3
"""With fewer, groups do not show how they scatter."""

BETWEEN = 0.3
"""Scale of tau's half-normal prior, octaves per doubling."""

MANY = 5
"""Groups of a table from which on a report begins with what they show together."""

TINY = 1e-12
"""Octaves per doubling, in the place of an error that is none: of groups that agree exactly."""


def across_groups(estimates: Sequence[Estimate], *, tolerance: float = TOLERANCE) -> AcrossGroups:
    """The mean of groups' slopes, and where a new group's would lie.

    *Source:* Hartung and Knapp (2001), Statistics in Medicine 20:1771-1782.
    """
    used = [e for e in estimates if e.known and 0 < e.high - e.low < math.inf]
    unit = used[0].unit if used else ""
    if len(used) < FEWEST_GROUPS:
        return AcrossGroups(
            mean=UNKNOWN,
            scatter=math.nan,
            new_group=UNKNOWN,
            groups=len(used),
            verdict=Verdict.UNDECIDED,
        )
    y = np.array([e.value for e in used])
    variance = np.array([((e.high - e.low) / 2 / float(student(math.inf))) ** 2 for e in used])
    taus, share = _posterior(y, variance)
    between, freedom = float(share @ taus**2), len(used) - 1
    weight = 1 / (variance + between)
    mean = float(weight @ y / weight.sum())
    error = math.sqrt(float(weight @ (y - mean) ** 2) / freedom / float(weight.sum()))
    deviations = np.hypot(taus, max(error, TINY))

    from scipy.special import ndtr

    def beyond(half: float) -> float:
        """Probability that a new group lies farther away, less the 5% that may."""
        return float(share @ (2 * ndtr(-half / deviations))) - (1 - CONFIDENCE)

    from scipy.optimize import brentq  # a fifth of a second, for which no other import waits

    new = brentq(beyond, 0.0, 10 * float(deviations.max()))
    on_average = around(mean, float(student(freedom)) * error, unit)
    return AcrossGroups(
        mean=on_average,
        scatter=math.sqrt(between),
        new_group=around(mean, new, unit),
        groups=len(used),
        verdict=verdict_of(on_average, -tolerance, tolerance),
    )


def comparable(transfers: Sequence[Transfer]) -> list[Estimate]:
    """The drifts of groups that answer one question: of the axis alone, where any do."""
    known = [transfer for transfer in transfers if transfer.drift.known]
    together = min((transfer.together for transfer in known), default=())
    return [transfer.drift for transfer in known if transfer.together == together]


def _posterior(y: Array, variance: Array) -> tuple[Array, Array]:
    """Values of tau and their posterior weights; mu is unknown, its prior flat."""
    taus = BETWEEN * np.linspace(0.0, 5.0, 201)
    weight = 1 / (variance + taus[:, None] ** 2)
    total = weight.sum(-1)
    mean = (weight * y).sum(-1) / total
    squares = (weight * (y - mean[:, None]) ** 2).sum(-1)
    log = 0.5 * (np.log(weight).sum(-1) - np.log(total) - squares) - 0.5 * (taus / BETWEEN) ** 2
    share = np.exp(log - log.max())
    return taus, share / share.sum()
