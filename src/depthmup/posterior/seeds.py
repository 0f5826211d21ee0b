"""What seeds have of their own: the noise of runs, and how far each seed's minima lie from others'.

Seed j's minimum at size i is k_i + a_j + d_j t_i + w_ij, t the doublings along all axes together.
Of seeds trained at the same sizes the contrasts tell how much: least squares along the valley's
slope h' gives each seed's shift z_ij from its fellows, of variance sigma^2 / g_i, g_i = sum h'^2
once the seed's level is eliminated. Then every contrast is normal with the covariance

    a^2 1 1' + d^2 t t' + w^2 I + diag(sigma^2 / g).

SeedAverages over S seeds keep a part 1/S of it as an error of all minima.
"""

from dataclasses import dataclass

import numpy as np

from depthmup.posterior.curve import Curves, two_way
from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.posterior.priors import (
    FAR_ABOVE,
    LEAST_SLOPE,
    OF_OWN,
    OWN,
    SHIFTS,
    STEEP_SHARE,
    STEEP_SLOPE,
    TAILS,
)

PASSES = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class SeedAverages:
    """Seed-averaged curves with the noise that replicates show.

    Attributes:
        y: log losses, (batch, sizes, rates); not finite where nothing is.
        count: seeds that count there: a run that strays counts little.
        runs: log losses less the average and their seed's level, (batch, sizes, rates, seeds).
        level: of each seed over the average, (batch, sizes, seeds); NaN where it has no run.
        weight: of every run.
        square, freedom: of the noise, as replicates show it, (batch,).
    """

    y: Array
    count: Array
    runs: Array
    level: Array
    weight: Array
    square: Array
    freedom: Array


def averages(curves: Curves) -> SeedAverages:
    """SeedAverages over seeds at every rate; rates at which a seed diverged have none."""
    y = np.where(curves.broken[..., None] & ~np.isnan(curves.losses), np.inf, curves.log_losses)
    usable = np.isfinite(y) & ~np.isposinf(y).any(-1, keepdims=True)
    weight = usable.astype(float)
    values = np.where(usable, y, 0.0)
    seeds_there = usable.any(-2)
    replicated = usable.sum(-1) > 1
    # Runs at rates with one seed fit their own average.
    runs_there = (usable & replicated[..., None]).sum((-3, -2, -1))
    levels = (usable & replicated[..., None]).any(-2).sum((-2, -1))
    rates = replicated.sum((-2, -1))
    sizes = replicated.any(-1).sum(-1)
    freedom = np.maximum(runs_there - rates - levels + sizes, 0).astype(float)
    mean = rest = level = np.zeros(())
    inflated = (runs_there / np.maximum(freedom, 1))[..., None, None, None]
    tails, there = weight, usable.any(-1)
    height = np.where(there, values.sum(-1) / np.maximum(usable.sum(-1), 1), np.inf)
    # Far up, seeds may scatter as they do not near the minimum.
    far = height > height.min(-1, keepdims=True, initial=np.inf) + FAR_ABOVE
    for _ in range(PASSES):
        mean, rest, level = _two_way(values, weight)
        square = (weight * rest**2).sum((-3, -2, -1))
        if not (freedom > 0).any():
            break
        variance = np.maximum(square / np.maximum(freedom, 1), 1e-12)[..., None, None, None]
        loud = np.where(far, _louder((tails * rest**2).sum(-1), replicated, usable), 1.0)[..., None]
        standard = rest**2 / (variance * loud) * inflated
        tails = usable * np.where(replicated[..., None], (TAILS + 1) / (TAILS + standard), 1.0)
        weight = tails / loud
    square, louder = _unequal(weight * rest**2, replicated, usable)
    weight = weight / louder[..., None, None]
    return SeedAverages(
        y=np.where(there, mean, np.where(np.isposinf(y).any(-1), np.inf, np.nan)),
        count=weight.sum(-1),
        runs=rest,
        level=np.where(seeds_there, level, np.nan),
        weight=weight,
        # Of Student's t a weighted mean has (t + 3)/(t + 1) times the variance of its scale.
        square=square * (freedom > 0) * (TAILS + 3) / (TAILS + 1),
        freedom=freedom,
    )


EQUAL = 8.0
"""Degrees of freedom with which sizes, and rates, are taken to be equally noisy."""


def _louder(own: Array, replicated: Flags, usable: Flags) -> Array:
    """By how much a rate is louder than the middle one, as its squares ``own`` show; 1 at least.

    Half of all rates may be so loud that their scatter says nothing about the others.
    """
    freedom = np.where(replicated, usable.sum(-1) - 1.0, 0.0)
    # The median of a chi square of so many degrees of freedom (Wilson and Hilferty 1931).
    median = np.maximum(freedom, 1) * (1 - 2 / (9 * np.maximum(freedom, 1))) ** 3
    each = np.where(replicated, own / median, np.nan).reshape(*own.shape[:-2], -1)
    each[np.isnan(each).all(-1)] = 1.0
    common = np.maximum(np.nanmedian(each, -1), 1e-12)[..., None, None]
    return np.asarray(np.where(replicated, np.maximum(_ratio(own, freedom, common), 1.0), 1.0))


def _ratio(own: Array, freedom: Array, common: Array) -> Array:
    """Squares over what is common, as if ``EQUAL`` further degrees of freedom were common."""
    return np.asarray((EQUAL * common + own) / np.maximum((EQUAL + freedom) * common, 1e-300))


def _unequal(square: Array, replicated: Flags, usable: Flags) -> tuple[Array, Array]:
    """Squares of the noise, and by how much each size's is louder, as its replicates show."""
    own = square.sum((-2, -1))
    rows = usable & replicated[..., None]
    freedom = rows.sum((-2, -1)) - replicated.sum(-1) - rows.any(-2).sum(-1) + replicated.any(-1)
    freedom = np.maximum(freedom, 0)
    common = own.sum(-1, keepdims=True) / np.maximum(freedom.sum(-1, keepdims=True), 1)
    loud = np.where(common > 0, _ratio(own, freedom, common), 1.0)
    return np.asarray((own / loud).sum(-1)), np.asarray(loud)


def _two_way(values: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Least squares of ``rate + seed``: the rates' part, what is left of each run, and levels."""
    if not (np.ptp(weight.sum(-2), axis=-1) > 0).any() and (weight == weight[..., :1]).all():
        share = weight / np.maximum(weight.sum(-1), 1e-300)[..., None]
        mean = (share * values).sum(-1)
        level = _mean_over(values - mean[..., None], weight)
    else:
        mean, level = two_way(values, weight)
    rest = np.where(weight > 0, values - mean[..., None] - level[..., None, :], 0.0)
    return mean, rest, level


def _mean_over(values: Array, weight: Array) -> Array:
    total = np.maximum(weight.sum(-2), 1e-300)
    return np.asarray((weight * values).sum(-2) / total)


NODES = tuple(
    (a, w, d, wa * ww * wd)
    for a, wa in SHIFTS
    for w, ww in OWN
    for d, wd in ((LEAST_SLOPE + OF_OWN * w, 1 - STEEP_SHARE), (STEEP_SLOPE, STEEP_SHARE))
)
"""What a, w and d may be, with weights."""


def shared_errors(there: Array, t: Array) -> Array:
    """What averages over seeds keep of their own minima, (..., nodes, sizes, sizes).

    ``there`` says which seeds a size has, (..., sizes, seeds); ``t`` are all doublings, (sizes,).
    """
    shares = there / np.maximum(there.sum(-1, keepdims=True), 1)
    overlap = shares @ np.swapaxes(shares, -1, -2)
    t = t - t.mean()
    slopes, own = np.outer(t, t), np.eye(len(t))
    parts = [overlap * (a**2 + d**2 * slopes + w**2 * own) for a, w, d, _ in NODES]
    return np.stack(parts, -3)


def seed_weights(
    curves: Curves, of_seeds: SeedAverages, slope: Array, sigma: Array, t: Array
) -> Array:
    """Log weights of the nodes after the contrasts of seeds, (batch, nodes).

    ``slope`` is h' at every point, (batch, sizes, rates), and ``sigma`` the noise, (batch,).
    """
    t = t - t.mean()
    there = curves.seeds
    log_weight = np.tile(np.log([weight for *_, weight in NODES]), (len(slope), 1))
    for group in curves.groups:
        at = np.asarray(there[..., group].all((0, -1)))
        if len(group) < 2 or not at.any():
            continue
        z, noise = _shifts(of_seeds, slope, sigma, group, at)
        own = t[at]
        for number, (a, w, d, _) in enumerate(NODES):
            shared = a**2 + d**2 * np.outer(own, own) + w**2 * np.eye(len(own))
            covariance = shared + noise[..., None] * np.eye(len(own))
            _, logs = np.linalg.slogdet(covariance)
            solved = np.linalg.solve(covariance, z)
            log_weight[:, number] -= 0.5 * ((len(group) - 1) * logs + (z * solved).sum((-2, -1)))
    return log_weight


def _shifts(
    of_seeds: SeedAverages, slope: Array, sigma: Array, group: Index, at: Flags
) -> tuple[Array, Array]:
    """Shifts of a group's seeds from its mean, (batch, sizes, seeds), and their variances."""
    weight = of_seeds.weight[:, at][..., group]
    rest = of_seeds.runs[:, at][..., group]
    h = slope[:, at]
    common = weight.min(-1)
    total = np.maximum(common.sum(-1, keepdims=True), 1e-300)
    centred = h - (common * h).sum(-1, keepdims=True) / total
    g = np.maximum((common * centred**2).sum(-1), 1e-12)
    # A seed whose minimum lies higher has losses that fall where the valley rises.
    z = -np.einsum("bir,birs->bis", common * centred, rest) / g[..., None]
    z = z - z.mean(-1, keepdims=True)
    return z, sigma[:, None] ** 2 / g
