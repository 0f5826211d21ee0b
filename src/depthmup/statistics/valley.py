"""One valley for all sizes of a variant: its minimum at each, and what is not known of it.

    log loss = m_i + exp(l) q(x - k_i)^(p_left / 2)     to the left of k_i,
               m_i + exp(r) q(x - k_i)^(p_right / 2)    to its right,   q(u) = u^2 + e^2,
    l = l_0 + sum_a (c_a - t_a) s_ia,    r = r_0 + sum_a (c_a + t_a) s_ia,

less its value at u = 0. x is a log2 rate, k_i the minimum at size i and m_i the level there, s_ia
doublings of the size along axis a. Sizes share the powers and both sides' steepness, which may grow
alike with size (c) or apart, so that valleys *turn* lopsided (t). So a curve that shows one side of
its valley, as beside a divergence, still says where its minimum lies, and what a fit misses of
all valleys alike moves no drift.

Least squares with weights of one over the variance of a point at height h above the minimum,

    v + (h / 10)^2 + v (h / g)^4,

v that of noise, g how far the gentler side rises: a power law misses a part of what it describes,
and what rises above the gentle side, as a wall does, counts little. So steep valleys are fitted
near their minima and shallow ones far out, where alone a flat side shows. Where a fit of the near
points alone drifts otherwise, or has its minima elsewhere, the difference is an error. Of the place
of all minima alike, powers of two sides miss a part: ``LOPSIDED`` times their distance from the
centres of the parabolas.

Priors are observations among the others: each minimum lies near the lowest rate, to ``NEAR``
spacings; the shape is that of common valleys. The covariance of the minima is that of noise, of the
variance that points show about their curves, and of what the priors stand for where data do not
tell (``left``).

Valleys mostly keep their shape; where they do not, it may change fast. So of each t the prior is a
mixture of two normal ones, of standard deviations ``KEEPS`` and ``TURNS``. The fit takes the wider;
the minima follow their own regression on t to the posterior's mean, and its variance is in
``left``.

The fit is in ``statistics.valley_fit``, the errors are in ``statistics.valley_errors``.
"""

import math
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

import numpy as np

from depthmup.statistics.intervals import Array
from depthmup.statistics.misfit import at_index
from depthmup.statistics.optimum import Optima
from depthmup.statistics.valley_errors import Errors, Valley
from depthmup.statistics.valley_fit import ValleyProblem

REACH, NARROW = 2.0, 0.6
"""Bandwidths of the parabola within which points count, as a side that has flattened rises above
the noise far from the minimum alone; and of a second fit, which no far point can mislead."""

LOPSIDED = 0.3
"""Standard error of the place of all minima alike, over their mean distance from the centres."""

SEEDS_FREEDOM = 6.0
"""The most that the scatter of seeds weighs, which knows nothing of what the valleys miss."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A fit that is asked for, equal to another of the same numbers."""

    fitted: Optima = field(compare=False)
    doublings: Array = field(compare=False)
    numbers: tuple[tuple[tuple[int, ...], bytes], ...]


def valley_of(fitted: Optima, doublings: Array) -> Valley:
    """Fit one valley to curves whose sizes lie at ``doublings``, (sizes, axes).

    That of one experiment is kept, as a study asks for it once for each of its answers, and a
    search in each of its rounds; of simulations none comes twice.
    """
    if fitted.centre.ndim > 1:
        return _fit(fitted, doublings)
    curves = fitted.curves.log2_lrs, fitted.curves.losses
    own = (getattr(fitted, of.name) for of in fields(Optima) if of.name != "curves")
    numbers = tuple((a.shape, a.tobytes()) for a in (*curves, *own, np.asarray(doublings, float)))
    return _kept(_Asked(fitted=fitted, doublings=doublings, numbers=numbers))


@lru_cache(maxsize=256)
def _kept(asked: _Asked) -> Valley:
    """A valley that several may hold: nobody writes into it."""
    valley = _fit(asked.fitted, asked.doublings)
    for of in fields(Valley):
        getattr(valley, of.name).setflags(write=False)
    return valley


def _fit(fitted: Optima, doublings: Array) -> Valley:
    batch = fitted.centre.shape[:-1]
    s = np.asarray(doublings, float)
    x = np.nan_to_num(fitted.curves.log2_lrs)
    moved = (
        fitted.averages_without
        - np.where(np.isfinite(fitted.log_losses), fitted.log_losses, 0.0)[..., None, :]
    )

    def twice(a: Array) -> Array:
        """For both fits, (2 x batch, ...): solved at once, they take little longer than one."""
        each = a.reshape(-1, *a.shape[len(batch) :])
        return np.concatenate([each, each])

    own, weight = _scatter(fitted)
    problem = ValleyProblem(
        x=twice(np.broadcast_to(x, fitted.log_losses.shape)),
        y=twice(fitted.log_losses),
        centre=twice(fitted.centre),
        curvature=twice(fitted.curvature),
        lowest=twice(at_index(x, fitted.lowest)),
        edge=twice((fitted.lowest == fitted.last) * 1.0 - (fitted.lowest == fitted.first)),
        spacing=twice(fitted.spacing),
        bandwidth=twice(fitted.bandwidth),
        steep=twice(fitted.steep * fitted.spacing),
        s=s - s.mean(0),
        scatter=(twice(own), twice(weight)),
        seeds=max(fitted.curves.fewest_seeds, 1),
        reach=np.repeat([REACH, NARROW], math.prod(batch)),
    )
    solved = problem.solved()
    both = Errors(linear=problem.linear(solved, problem.parts(solved))).valley(
        (2, *batch), twice(moved)
    )
    wide, narrow = (
        Valley(**{field.name: getattr(both, field.name)[i] for field in fields(Valley)})
        for i in (0, 1)
    )
    return replace(
        wide,
        left=wide.left + _apart(wide, narrow, problem.s),
        alike=_alike(fitted, wide, narrow),
    )


def _apart(wide: Valley, narrow: Valley, s: Array) -> Array:
    """Covariance of minima that drift otherwise near the minimum, (..., sizes, sizes)."""
    slopes = np.asarray(np.linalg.pinv(s), float)
    apart = _unexplained(wide, narrow, slopes)
    return np.asarray(np.einsum("...a,sa,ta->...st", apart, s, s))


def _alike(fitted: Optima, wide: Valley, narrow: Valley) -> Array:
    """Standard error of the place of all minima alike, (...,)."""
    inside = (fitted.lowest != fitted.first) & (fitted.lowest != fitted.last)
    inside = inside & np.isfinite(wide.minimum)
    mean = (inside / np.maximum(inside.sum(-1, keepdims=True), 1)).astype(float)
    aside = (mean * np.nan_to_num(wide.minimum - fitted.centre)).sum(-1)
    apart = _unexplained(wide, narrow, mean[..., None, :])[..., 0]
    return np.asarray(np.hypot(np.sqrt(apart), LOPSIDED * aside))


def _unexplained(wide: Valley, narrow: Valley, weights: Array) -> Array:
    """Square by which combinations, (..., number, sizes), of both fits' minima differ.

    Less what the smaller number of points explains.
    """
    difference = np.nan_to_num(narrow.minimum - wide.minimum)
    apart = (weights * difference[..., None, :]).sum(-1)
    of_wide, of_narrow = (
        np.einsum("...as,...st,...at->...a", weights, part.noise + part.left, weights)
        for part in (wide, narrow)
    )
    explained = np.maximum(of_narrow - of_wide, of_narrow / 4)
    return np.asarray(np.maximum(apart**2 - explained, 0.0))


def _scatter(fitted: Optima) -> tuple[Array, Array]:
    """Variance of runs less the means of their rates and seeds, and its weight, (...,)."""
    y = fitted.curves.log_losses
    near = np.abs(np.nan_to_num(fitted.curves.log2_lrs) - fitted.centre[..., None])
    there = (
        np.isfinite(y)
        & ((near < fitted.bandwidth[..., None]) & np.isfinite(fitted.log_losses))[..., None]
    )
    values = np.where(there, y, 0.0)
    for axis in (-1, -2):
        count = there.sum(axis, keepdims=True)
        values = np.where(there, values - values.sum(axis, keepdims=True) / np.maximum(count, 1), 0)
    seeds, rates = there.any(-2).sum(-1), there.any(-1).sum(-1)
    freedom = np.maximum((there.sum((-1, -2)) - seeds - rates + 1), 0).sum(-1)
    square = (values**2).sum((-3, -2, -1))
    weight = np.minimum(freedom, SEEDS_FREEDOM)
    return square / np.maximum(freedom, 1), weight
