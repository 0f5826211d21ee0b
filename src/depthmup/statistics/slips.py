"""Sizes of a table whose rates or losses are in another unit than those of all others.

Each size is judged by its own points, and not by the posterior: its law draws the minimum of a
coarse curve to the other sizes, once 8 octaves beyond the rates tried, and hides the slip. With its
minima and levels 2 of 16 planted slips were missed, none with these.
"""

import math

import numpy as np

from depthmup.posterior.intervals import Array, Flags
from depthmup.statistics.levels import levels_of
from depthmup.statistics.trend import Trend, trend_of

RATE_SCATTER = 0.3
"""Octaves: the least scatter of optima about their law that is believed."""

OUTLYING = 6.0
"""Robust standard deviations beyond which a size's optimum is off: two normal errors in 1e9 are;
of Student's t with 3 degrees of freedom, averaged over a curve's points, fewer than 1e-3, which
would still have to be off by ``RATE_JUMP``."""

RATE_JUMP, RATE_SPACINGS = 2.5, 3.0
"""Octaves, and spacings of its grid, by which an optimum must be off at least."""

RATE_BOUND_JUMP, TRAINED_BOUND_JUMP = 6.0, 4.0
"""Octaves by which all rates tried at a size without an optimum must be off: fewer where one of
them trained as well as the trend of all sizes promises, which no rate so far off can."""

LOSS_SCATTER = 0.01
"""The least scatter of levels about their trend that is believed, as log loss."""

OUTLYING_LOSS = 5.0
"""Robust standard deviations beyond which a level is off, by a factor between known units."""

LOSS_JUMP = 0.2
"""Log loss by which a level must be off at least."""

LOSS_FACTORS = (1 / math.log(2), math.log(2), *(10.0**k for k in (1, 2, 3, -1, -2, -3)))
"""Units of loss that are mistaken for each other: bits and nats, percent, thousandths."""

NEAR_FACTOR = 0.15
"""How near the logarithm of such a factor a shift must lie, and how well a size's runs must agree
on it. Of 393 simulated slips all were within it, of all but one in a hundred within 0.08."""


SIZE_SPACE, SIZE_SPACES = 5.0, 3.0
"""Octaves of empty space between an axis's values, and in multiples of the next largest space,
that a sweep does not leave: a batch in tokens is some 10 beyond one in sequences."""


def two_units(values: Array) -> tuple[float, float] | None:
    """The values on both sides of a space that suggests two units along one axis; else None.

    Two values alone have one space, which nothing is compared with.
    """
    distinct = np.unique(values)
    spaces = np.diff(np.log2(distinct))
    if len(spaces) < 2:
        return None
    widest, next_one = np.argsort(-spaces, kind="stable")[:2]
    if spaces[widest] < max(SIZE_SPACE, SIZE_SPACES * spaces[next_one]):
        return None
    return float(distinct[widest]), float(distinct[widest + 1])


def law_of_rates(positions: Array, optima: Array, spacing: Array) -> Trend | None:
    """The trend of most optima; those of coarse grids count less, as they are less precise."""
    return trend_of(positions, optima, least=RATE_SCATTER, errors=np.maximum(spacing, 1.0))


def slipped_rates(
    positions: Array,
    optima: Array,
    low: Array,
    high: Array,
    spacing: Array,
    well: Flags | None = None,
) -> dict[int, float]:
    """Sizes whose rates are octaves off the law of all others' optima: rates of another unit.

    A size without an optimum is off if all rates that were tried there are.
    """
    law = law_of_rates(positions, optima, spacing)
    if law is None:
        return {}
    above, below = low - law.expected, high - law.expected
    bound = np.nan_to_num(np.where(above > 0, above, np.where(below < 0, below, 0.0)))
    known = np.isfinite(optima)
    off = np.where(known, optima - law.expected, bound)
    reach = np.where(False if well is None else well, TRAINED_BOUND_JUMP, RATE_BOUND_JUMP)
    least = np.where(known, np.maximum(RATE_JUMP, RATE_SPACINGS * spacing), reach)
    jump = np.maximum(least, OUTLYING * law.scatter * np.maximum(spacing, 1.0))
    return law.few_off(off, np.abs(off) > jump)


def slipped_losses(
    positions: Array, log2_lrs: Array, log_losses: Array, optima: Array, spacing: Array
) -> dict[int, float]:
    """Sizes whose losses are off the trend of all others by a factor between known units."""
    best = _best(positions, optima, spacing)
    values = levels_of(log2_lrs, log_losses, best, within=NEAR_FACTOR)
    trends = [trend_of(positions, values, least=LOSS_SCATTER, curved=c) for c in (True, False)]
    # Of the trends that can be fitted, the one that most sizes agree on best.
    trend = min((t for t in trends if t is not None), key=lambda t: t.scatter, default=None)
    if trend is None:
        return {}
    off = np.nan_to_num(values - trend.expected)
    factor = np.abs(np.log(LOSS_FACTORS)[:, None] - off).min(0) <= NEAR_FACTOR
    beyond = np.abs(off) > max(LOSS_JUMP, OUTLYING_LOSS * trend.scatter)
    return trend.few_off(off, factor & beyond)


def trained(
    positions: Array, log2_lrs: Array, log_losses: Array, optima: Array, spacing: Array
) -> Flags:
    """Sizes with a run that ends near the trend of all levels: its rate cannot be far off."""
    levels = levels_of(log2_lrs, log_losses, _best(positions, optima, spacing))
    trend = trend_of(positions, levels, least=LOSS_SCATTER)
    if trend is None:
        return np.zeros(len(positions), bool)
    lowest = np.where(np.isfinite(log_losses), log_losses, math.inf).min(-1)
    return np.asarray(lowest < trend.expected + LOSS_JUMP)


def _best(positions: Array, optima: Array, spacing: Array) -> Array:
    """Every size's best rate: by the law of most, and its own where that is elsewhere."""
    law = law_of_rates(positions, optima, spacing)
    if law is None:
        return optima
    elsewhere = np.abs(optima - law.expected) > np.maximum(RATE_JUMP, RATE_SPACINGS * spacing)
    return np.where(elsewhere, optima, law.expected)
