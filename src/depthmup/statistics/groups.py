"""One answer from many groups: random effects.

Group i has the true slope mu + u_i, with u_i of standard deviation tau. It was measured as y_i with
standard error e_i. With w_i = 1 / (e_i^2 + tau^2), over k groups,

    mu = sum_i w_i y_i / sum_i w_i,
    half-width = t_{k-1} sqrt(sum_i w_i (y_i - mu)^2 / ((k - 1) sum_i w_i)).

The half-width rests on how groups scatter, and not on how wide their own intervals are: one factor
by which all of these are too wide or too narrow leaves it as it is. tau is not known. It is learned
from the groups, with a half-normal prior, and averaged over: its mean square makes the weights, and
a new group, normal about mu with variance tau^2 + error(mu)^2, gets an interval that allows for all
that tau may be.

*Source:* Hartung and Knapp (2001), Statistics in Medicine 20:1771-1782, for the interval; Higgins,
Thompson and Spiegelhalter (2009), Journal of the Royal Statistical Society A 172:137-159, for a
new group.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from depthmup.records import LEARNING_RATE, UNKNOWN, Axis, Estimate, Tuned
from depthmup.records.finding import change, change_span
from depthmup.statistics.intervals import CONFIDENCE, Array, around, student

FEWEST_GROUPS = 3
"""With fewer, groups do not show how they scatter."""

BETWEEN = 0.3
"""Scale of tau's half-normal prior, octaves per doubling."""


WORTH_A_NOTE = 5
"""Groups of a table from which on a report says what they show together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AcrossGroups:
    """What groups say together.

    Attributes:
        mean: over all groups like these, with its 95% interval.
        scatter: root mean square of tau, between groups, in the unit of the mean.
        new_group: where one more group would lie, with its 95% interval.
        groups: how many were pooled.
    """

    mean: Estimate
    scatter: float
    new_group: Estimate
    groups: int


def across_groups(estimates: Sequence[Estimate]) -> AcrossGroups:
    """The mean of groups' slopes, and where a new group's would lie.

    *Source:* Hartung and Knapp (2001), Statistics in Medicine 20:1771-1782.
    """
    used = [e for e in estimates if e.known and 0 < e.high - e.low < math.inf]
    unit = used[0].unit if used else ""
    if len(used) < FEWEST_GROUPS:
        return AcrossGroups(mean=UNKNOWN, scatter=math.nan, new_group=UNKNOWN, groups=len(used))
    y = np.array([e.value for e in used])
    variance = np.array([((e.high - e.low) / 2 / float(student(math.inf))) ** 2 for e in used])
    taus, share = _posterior(y, variance)
    between, freedom = float(share @ taus**2), len(used) - 1
    weight = 1 / (variance + between)
    mean = float(weight @ y / weight.sum())
    error = math.sqrt(float(weight @ (y - mean) ** 2) / freedom / float(weight.sum()))
    deviations = np.hypot(taus, error)

    def beyond(half: float) -> float:
        """Probability that a new group lies farther away, less the 5% that may."""
        return float(share @ (2 * ndtr(-half / deviations))) - (1 - CONFIDENCE)

    from scipy.optimize import brentq  # a fifth of a second, for which no other import waits

    new = brentq(beyond, 0.0, 10 * float(deviations.max()))
    return AcrossGroups(
        mean=around(mean, float(student(freedom)) * error, unit),
        scatter=math.sqrt(between),
        new_group=around(mean, new, unit),
        groups=len(used),
    )


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


def across_groups_sentence(
    together: AcrossGroups, *, tolerance: float, axis: Axis, tuned: Tuned = LEARNING_RATE
) -> str:
    """What all groups show along an axis, with the verdict of their mean.

    Example:
        >>> together = across_groups([around(v, 0.2) for v in (0.3, 0.4, 0.35, 0.3, 0.4)])
        >>> print(across_groups_sentence(together, tolerance=0.15, axis="rank"))
        All 5 groups together: the best learning rate moves by +27% per doubling of rank, 95% \
interval +22% to +33%: it drifts. A new group's lies in +12% to +45%.
    """
    mean, new = together.mean, together.new_group
    verdict = "undecided"
    if mean.outside(-tolerance, tolerance):
        verdict = "it drifts"
    elif mean.inside(-tolerance, tolerance):
        verdict = "it transfers"
    return (
        f"All {together.groups} groups together: the best {tuned.name} moves by "
        f"{change(mean.value)} per doubling of {axis}, 95% interval "
        f"{change_span(mean.low, mean.high)}: {verdict}. A new group's lies in "
        f"{change_span(new.low, new.high)}."
    )
