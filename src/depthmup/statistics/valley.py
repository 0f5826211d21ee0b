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

*Source:* Levenberg (1944), Quarterly of Applied Mathematics 2:164-168, for damped least squares;
Huber (1967), Fifth Berkeley Symposium 1:221-233, for the covariance of weighted ones.
"""

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache

import numpy as np

from depthmup.statistics.intervals import Array, Flags
from depthmup.statistics.misfit import WALL, at_index
from depthmup.statistics.optimum import Optima
from depthmup.statistics.parabola import tricube

NEAR = WALL
"""Spacings from the lowest rate within which the minimum lies, as a standard deviation."""

BEYOND = 0.5
"""Bandwidths by which a minimum lies beyond an edge of its grid, and their standard deviation."""

POWER, POWER_SPREAD = 1.7, 0.35
"""Prior of both powers: a kink has 1, a parabola 2."""

STEEPNESS_SPREAD, GROWTH_SPREAD = 1.5, 0.2
"""Of the logarithm of how steep a side is, about that of the parabolas; and per doubling."""

KEEPS, TURNS, TURNING = 0.02, 0.2, 0.2
"""Change per doubling of the logarithm of how steep a side is, where valleys keep their shape and
where they turn, and the share of valleys that turn."""

LOPSIDED = 0.3
"""Standard error of the place of all minima alike, over their mean distance from the centres."""

WALLED = 0.5
"""Of what one curve misses beside a wall, this is left to a fit of all."""

ROUND = 0.05
"""e, in bandwidths."""

REACH, NARROW = 2.0, 0.6
"""Bandwidths of the parabola within which points count, as a side that has flattened rises above
the noise far from the minimum alone; and of a second fit, which no far point can mislead."""

HIGH = 5.0
"""Rises of the gentler side above which a point is none of the valley."""

STEEPEST = 3.0
"""Of a parabola's bend, over that of the gentler side: beyond it, a wall bends it."""

MISSED = 0.1
"""Of a point's rise above the minimum, what a power law of it misses."""

USUAL_NOISE, USUAL_FREEDOM, SEEDS_FREEDOM = 0.05, 2.0, 6.0
"""Standard deviation of log losses between runs, over how far a parabola rises in a bandwidth, as
on real tables, and its weight as a prior; the most that the scatter of seeds weighs, which knows
nothing of what the valleys miss."""

LEAST_POWER, MOST_POWER, STEP = 0.9, 3.5, 0.5
PASSES, SETTLED, ROUNDING = 40, 1e-11, 1e-12
SHARED = 4  # l_0, r_0, p_left and p_right; then every axis' c, and its t


@dataclass(frozen=True, kw_only=True, eq=False)
class Valley:
    """The minima of all sizes, arrays over (..., sizes).

    Attributes:
        minimum: log2 rates.
        without: the same without each seed, (..., sizes, seeds).
        level: log losses there; infinite where nothing is finite.
        level_without: the same without each seed, (..., sizes, seeds).
        noise: their covariance as points scatter about the valleys, (..., sizes, sizes).
        left: that of what data do not tell of the shapes, (..., sizes, sizes).
        variance, freedom: of the scatter of points at the minimum, and its degrees, (...,).
        turn: t of each axis and its standard error, (..., axes).
        alike: standard error of the place of all minima alike, (...,).
        steep, powers: l and r of every size, (..., sizes, 2); the powers of both sides, (..., 2).
        round: e, in octaves.
    """

    minimum: Array
    without: Array
    level: Array
    level_without: Array
    noise: Array
    left: Array
    variance: Array
    freedom: Array
    turn: Array
    turn_error: Array
    alike: Array
    steep: Array
    powers: Array
    round: Array

    def rise(self, size: int, octaves: Array) -> Array:
        """Log loss above the minimum of one size of one experiment, so far from it."""
        right = (octaves > 0).astype(int)
        power, e = self.powers[right], self.round[size]
        above = (octaves**2 + e**2) ** (power / 2) - e**power
        return np.asarray(np.exp(np.clip(self.steep[size][right], -40, 15)) * above)


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
    problem = _Problem(
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
    both = problem.linear(solved, problem.parts(solved)).valley((2, *batch), twice(moved))
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _State:
    """Levels and minima, (batch, sizes), the shape, (batch, shared), and the variance of points."""

    level: Array
    minimum: Array
    shape: Array
    variance: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class _Problem:
    """Curves, (batch, sizes, rates), and the scatter of their seeds: a variance, its weight."""

    x: Array
    y: Array
    centre: Array
    curvature: Array
    lowest: Array
    edge: Array
    spacing: Array
    bandwidth: Array
    steep: Array
    s: Array
    scatter: tuple[Array, Array]
    seeds: int
    reach: Array

    @cached_property
    def known(self) -> tuple[Array, Array]:
        """Variance of seed-averaged points beside what they miss of the fit, and its weight."""
        own, weight = self.scatter
        usual = USUAL_NOISE * self.bend * np.median(self.bandwidth, -1) ** 2
        total = weight + USUAL_FREEDOM
        return (weight * own + USUAL_FREEDOM * usual**2) / total / self.seeds, total

    @cached_property
    def finite(self) -> Flags:
        return np.isfinite(self.y)

    @cached_property
    def values(self) -> Array:
        return np.where(self.finite, self.y, 0.0)

    @cached_property
    def low(self) -> Array:
        """Of every size, 0 where nothing is finite."""
        low = np.where(self.finite, self.y, math.inf).min(-1)
        return np.where(np.isfinite(low), low, 0.0)

    @cached_property
    def round(self) -> Array:
        return ROUND * self.bandwidth[..., None]

    @property
    def start(self) -> Array:
        return np.where(np.isfinite(self.centre), self.centre, self.lowest)

    @cached_property
    def taper(self) -> Array:
        reach = (self.reach[:, None] * self.bandwidth)[..., None]
        return np.asarray(tricube((self.x - self.start[..., None]) / reach) * self.finite)

    @cached_property
    def rise(self) -> Array:
        """Above the lowest point, where the taper reaches."""
        return np.where(self.taper > 0, self.values - self.low[..., None], 0.0)

    @cached_property
    def gentler(self) -> tuple[Array, Array]:
        """How far the gentler side rises, and at what distance, the medians over the sizes."""
        away = self.x - self.lowest[..., None]
        rises, distances = [], []
        for side in (-1, 1):
            rise = np.where(side * away > 0, self.rise, 0.0)
            rises.append(rise.max(-1))
            distances.append(np.abs(at_index(away, rise.argmax(-1))))
        left = ((rises[0] > 0) & (rises[0] < rises[1])) | (rises[1] <= 0)
        rise, distance = (np.median(np.where(left, *of), -1) for of in (rises, distances))
        there = (rise > 0) & (distance > 0)
        return np.where(there, rise, 1.0), np.where(there, distance, np.median(self.bandwidth, -1))

    @property
    def gentle(self) -> Array:
        return self.gentler[0]

    @cached_property
    def blur(self) -> Array:
        """Variance of points over that of the lowest: no power law holds far above the minimum."""
        noise, _ = self.known
        missed = (MISSED * self.rise) ** 2 / noise[:, None, None]
        return np.asarray(1 + missed + (self.rise / self.gentle[:, None, None]) ** 4)

    @cached_property
    def weight(self) -> Array:
        """None for what is far above the gentle side: a run that all but diverged."""
        valley = self.rise <= HIGH * self.gentle[:, None, None]
        return np.asarray(self.taper / self.blur * valley)

    @cached_property
    def bend(self) -> Array:
        """Of the parabolas, the median over the sizes, no wall among their sides, (batch,)."""
        bends = np.where(self.curvature > 0, self.curvature, math.nan)
        known = np.isfinite(bends).any(-1)
        rise, distance = self.gentler
        bend = rise / distance**2
        bend[known] = np.minimum(np.nanmedian(bends[known], -1), STEEPEST * bend[known])
        return np.asarray(bend)

    @cached_property
    def prior(self) -> tuple[Array, Array]:
        """Means and precisions of the shape, (batch, shared) and (shared,)."""
        axes = self.s.shape[1]
        mean = np.zeros((len(self.x), SHARED + 2 * axes))
        mean[:, :2] = np.log(self.bend)[:, None]
        mean[:, 2:SHARED] = POWER
        spreads = [STEEPNESS_SPREAD] * 2 + [POWER_SPREAD] * 2 + [GROWTH_SPREAD] * axes
        return mean, 1 / np.array(spreads + [TURNS] * axes) ** 2

    @cached_property
    def near(self) -> Array:
        """Where the minima are looked for: at the lowest rates, or beyond those at an edge."""
        return np.asarray(self.lowest + self.edge * BEYOND * self.bandwidth)

    @cached_property
    def nearness(self) -> Array:
        """Precisions of the minima about these places, (batch, sizes)."""
        spread = np.where(self.edge == 0, NEAR * self.spacing, BEYOND * self.bandwidth)
        return np.asarray(1 / spread**2)

    def steepness(self, shape: Array) -> Array:
        """l and r of every size, (batch, sizes, 2)."""
        axes = self.s.shape[1]
        grows, turns = (shape[:, i : i + axes] @ self.s.T for i in (SHARED, SHARED + axes))
        return np.asarray(shape[:, None, :2] + np.stack([grows - turns, grows + turns], -1))

    def parts(self, state: _State) -> tuple[Array, Array, Array]:
        """Residuals, and derivatives of the valleys by k and by the shape."""
        axes = self.s.shape[1]
        u = self.x - state.minimum[..., None]
        square, right = u**2 + self.round**2, u > 0
        left_right = self.steepness(state.shape)
        steep = np.where(right, left_right[..., 1, None], left_right[..., 0, None])
        power = np.where(right, state.shape[:, None, None, 3], state.shape[:, None, None, 2])
        scale = np.exp(_within(steep, -40, 15))
        high, least = scale * square ** (power / 2), scale * self.round**power
        rise = high - least
        residual = self.values - state.level[..., None] - rise
        by_k = -power * u * high / square
        by_power = np.log(square) / 2 * high - np.log(self.round) * least
        by_shape = np.empty((*u.shape, SHARED + 2 * axes))
        for column, slope in ((0, rise), (2, by_power)):
            by_shape[..., column] = slope * ~right
            by_shape[..., column + 1] = slope * right
        grows = rise[..., None] * self.s[:, None]
        by_shape[..., SHARED : SHARED + axes] = grows
        by_shape[..., SHARED + axes :] = np.where(right, 1.0, -1.0)[..., None] * grows
        return residual, by_k, by_shape

    def loss(self, state: _State, residual: Array) -> tuple[Array, Array]:
        """Weighted squares of the residuals, and of the distances from the priors."""
        mean, precision = self.prior
        away = (precision * (state.shape - mean) ** 2).sum(-1)
        away += (self.nearness * (state.minimum - self.near) ** 2).sum(-1)
        return (self.weight * residual**2).sum((-2, -1)), away

    def solved(self) -> _State:
        """Damped least squares, with the variance of points as it comes out."""
        mean, _ = self.prior
        state = _State(
            level=self.low,
            minimum=self.start,
            shape=mean,
            variance=self.known[0],
        )
        parts = self.parts(state)
        damping, here = np.full(len(mean), 1e-2), self.loss(state, parts[0])
        noise, weight = self.known
        for _ in range(PASSES):
            before, linear = state.minimum, self.linear(state, parts, damping)
            tried = linear.step()
            parts = self.parts(tried)
            there = self.loss(tried, parts[0])
            now, then = (fit + state.variance * away for fit, away in (here, there))
            better = then <= now * (1 + ROUNDING)
            damping = _within(np.where(better, damping / 5, damping * 6), 1e-9, 1e6)
            one = better[:, None]
            here = np.where(better, there[0], here[0]), np.where(better, there[1], here[1])
            variance = (here[0] + weight * noise) / (linear.points_left + weight)
            state = _State(
                level=np.where(one, tried.level, state.level),
                minimum=np.where(one, tried.minimum, state.minimum),
                shape=np.where(one, tried.shape, state.shape),
                variance=variance,
            )
            if not better.all():
                parts = self.parts(state)
            elif np.nanmax(np.abs(tried.minimum - before)) < SETTLED:
                break
        return state

    def linear(
        self, state: _State, parts: tuple[Array, Array, Array], damping: Array | None = None
    ) -> "_Linear":
        """The problem to first order around a state, of which these are the parts."""
        residual, by_k, by_shape = parts
        mean, precision = self.prior
        nearness = state.variance[:, None] * self.nearness
        own = np.ones((*by_k.shape, 2))  # of a size's level and minimum
        own[..., 1] = by_k
        weighted = self.weight[..., None] * own
        block = _over_rows(own, weighted)
        block[..., 1, 1] += nearness
        block[..., 0, 0] += 1e-12
        pull = _over_rows(weighted, residual[..., None])[..., 0]
        pull[..., 1] -= nearness * (state.minimum - self.near)
        across = _over_rows(weighted, by_shape)
        of_points = _flat(by_shape)
        shared = _over_rows(of_points, _flat(self.weight[..., None]) * of_points)
        stiff = state.variance[:, None] * precision
        axes = np.arange(len(precision))
        shared[:, axes, axes] += stiff
        pull_shared = _over_rows(of_points, _flat((self.weight * residual)[..., None]))[..., 0]
        pull_shared = pull_shared - stiff * (state.shape - mean)
        if damping is not None:
            shared[:, axes, axes] *= 1 + damping[:, None]
            for d in (0, 1):
                block[..., d, d] *= 1 + damping[:, None]
        inverse = np.asarray(np.linalg.inv(block), float)
        carried = inverse @ across  # of a size's own, with the shape
        left = shared - _over_rows(_flat(across), _flat(carried))
        return _Linear(
            problem=self,
            state=state,
            residual=residual,
            own=own,
            by_shape=by_shape,
            inverse=inverse,
            carried=carried,
            schur=np.asarray(np.linalg.inv(left), float),
            pull=pull,
            pull_shared=pull_shared,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Linear:
    """Least squares to first order: blocks of the sizes' own, and what they share."""

    problem: _Problem
    state: _State
    residual: Array
    own: Array
    by_shape: Array
    inverse: Array
    carried: Array
    schur: Array
    pull: Array
    pull_shared: Array

    def step(self) -> _State:
        """The next state."""
        total = self.pull_shared - np.einsum("bidq,bid->bq", self.carried, self.pull)
        shape = _within(np.einsum("bqp,bp->bq", self.schur, total), -STEP, STEP)
        own = np.einsum("bidf,bif->bid", self.inverse, self.pull)
        own = own - np.einsum("bidq,bq->bid", self.carried, shape)
        reach = STEP * np.maximum(self.problem.spacing, 1.0)
        shape = self.state.shape + shape
        shape[:, 2:SHARED] = _within(shape[:, 2:SHARED], LEAST_POWER, MOST_POWER)
        return _State(
            level=self.state.level + own[..., 0],
            minimum=self.state.minimum + _within(own[..., 1], -reach, reach),
            shape=shape,
            variance=self.state.variance,
        )

    @cached_property
    def gain(self) -> Array:
        """Of points in each size's own, as if the shape were known, (batch, sizes, 2, rates)."""
        weighted = self.problem.weight[..., None] * self.own
        return np.asarray(self.inverse @ np.swapaxes(weighted, -1, -2))

    @cached_property
    def within(self) -> Array:
        """By how much the shape moves points beside what each size's own follows of it."""
        return np.asarray(self.by_shape - self.own @ self.carried)

    @cached_property
    def shared_gain(self) -> Array:
        """Of points in the shape, (batch, shared, sizes, rates)."""
        weighted = self.problem.weight[..., None] * self.within
        gain = self.schur @ np.swapaxes(_flat(weighted), -1, -2)
        return np.asarray(gain.reshape(*gain.shape[:2], *weighted.shape[1:3]))

    @cached_property
    def points_left(self) -> Array:
        """Points less those that fix the valleys, by weight: what a variance is divided by."""
        weight = self.problem.weight
        own = (np.swapaxes(self.own, -1, -2) * self.gain).sum(-2)
        shared = (np.moveaxis(self.within, -1, 1) * self.shared_gain).sum(1)
        return np.asarray(np.maximum((weight * (1 - own - shared)).sum((-2, -1)), 0.0))

    def _covariance(self, gain: Array, shared: Array, variance: Array) -> Array:
        """Of minima and shape, (batch, sizes + shared, ...): observations of their own errors.

        ``gain`` (batch, sizes, rates) in the minimum of their size, ``shared`` (batch, shared,
        sizes, rates) in the shape, ``variance`` (batch, sizes, rates).
        """
        carried = self.carried[..., 1, :]
        sizes = gain.shape[1]
        spread = np.einsum("bqir,bir,bpir->bqp", shared, variance, shared)
        cross = np.einsum("bir,bir,bqir->biq", gain, variance, shared)
        of_shape = cross - np.einsum("biq,bqp->bip", carried, spread)
        minima = -np.einsum("biq,bjq->bij", cross, carried)
        minima = minima + np.swapaxes(minima, -1, -2)
        minima += np.einsum("biq,bqp,bjp->bij", carried, spread, carried)
        minima[:, np.arange(sizes), np.arange(sizes)] += (gain**2 * variance).sum(-1)
        return np.concatenate(
            [
                np.concatenate([minima, of_shape], -1),
                np.concatenate([np.swapaxes(of_shape, -1, -2), spread], -1),
            ],
            -2,
        )

    def valley(self, batch: tuple[int, ...], moved: Array) -> Valley:
        """The minima and their errors; ``moved`` (batch, sizes, seeds, rates) without each seed."""
        problem, state = self.problem, self.state
        sizes, axes = problem.s.shape
        gain, shared = self.gain[..., 1, :], self.shared_gain
        # A point far off its valley is no noise: what it moves it moves by as much.
        points = np.maximum(state.variance[:, None, None] * problem.blur, self.residual**2 / 2)
        noise = self._covariance(gain, shared, points)
        # The priors are observations: of each minimum, and of the shape.
        nearness = problem.nearness
        pseudo = state.variance[:, None] * nearness
        of_minimum = self.inverse[..., 1, 1] * pseudo
        of_shape = -np.einsum("bqp,bip->bqi", self.schur, self.carried[..., 1, :]) * pseudo[:, None]
        left = self._covariance(of_minimum[..., None], of_shape[..., None], 1 / nearness[..., None])
        _, precision = problem.prior
        weak = self.schur * (state.variance[:, None] * precision)[:, None]
        spread = np.einsum("bqp,p,brp->bqr", weak, 1 / precision, weak)
        carry = np.concatenate(
            [-self.carried[..., 1, :], np.broadcast_to(np.eye(weak.shape[1]), weak.shape)], 1
        )
        left = left + np.einsum("biq,bqp,bjp->bij", carry, spread, carry)
        total = noise + left
        last = slice(sizes + SHARED + axes, None)
        turn, of_turn = state.shape[:, SHARED + axes :], total[:, last, last]
        freedom = self.points_left + problem.known[1]
        variance = np.einsum("baa->ba", of_turn)
        mean, kept = _turned(turn, variance, freedom[:, None])
        # The minima follow t by their own regression on it.
        follow = total[:, :sizes, last] @ np.linalg.inv(of_turn)
        minimum = state.minimum + np.einsum("bia,ba->bi", follow, mean - turn)
        share = np.divide(mean, turn, out=np.zeros_like(mean), where=np.abs(turn) > 1e-12)
        back = follow * (share - 1)[:, None]
        # A map of minima and shape to the minima as they follow.
        to = np.zeros((len(turn), sizes, sizes + SHARED + 2 * axes))
        to[:, np.arange(sizes), np.arange(sizes)] = 1.0
        to[..., last] = back
        own = to @ noise @ np.swapaxes(to, -1, -2)
        whole = total[:, :sizes, :sizes] - follow @ of_turn @ np.swapaxes(follow, -1, -2)
        whole = whole + np.einsum("bia,ba,bja->bij", follow, kept, follow)
        own_left = whole - own
        own_left[:, np.arange(sizes), np.arange(sizes)] += (WALLED * problem.steep) ** 2
        shape_moved = np.einsum("bqir,bisr->bqs", shared, moved)
        without = np.einsum("bir,bisr->bis", gain, moved)
        without = without - np.einsum("biq,bqs->bis", self.carried[..., 1, :], shape_moved)
        without = without + np.einsum("bia,bas->bis", back, shape_moved[:, SHARED + axes :])
        known = problem.finite.any(-1)
        minimum = np.where(known, minimum, math.nan)
        level = np.where(known, state.level, math.inf)
        of_level = np.einsum("bir,bisr->bis", self.gain[..., 0, :], moved)
        of_level = of_level - np.einsum("biq,bqs->bis", self.carried[..., 0, :], shape_moved)
        shape = state.shape.copy()
        shape[:, SHARED + axes :] = mean

        def shaped(a: Array) -> Array:
            return np.asarray(a.reshape((*batch, *a.shape[1:])))

        return Valley(
            minimum=shaped(minimum),
            without=shaped(minimum[..., None] + without),
            level=shaped(level),
            level_without=shaped(level[..., None] + of_level),
            noise=shaped(own),
            left=shaped(own_left),
            variance=shaped(state.variance),
            freedom=shaped(freedom),
            turn=shaped(mean),
            turn_error=shaped(np.sqrt(kept)),
            alike=np.zeros(batch),
            steep=shaped(problem.steepness(shape)),
            powers=shaped(shape[:, 2:SHARED]),
            round=shaped(problem.round[..., 0]),
        )


def _over_rows(first: Array, second: Array) -> Array:
    """Sums over rows of the products of columns, (..., columns, columns), by the fastest product.

    A third of a fit's time is spent here: ``einsum`` takes several times as long.
    """
    return np.asarray(np.swapaxes(first, -1, -2) @ second)


def _within(values: Array, low: float | Array, high: float | Array) -> Array:
    """``np.clip``, which takes several times as long for arrays as small as these."""
    return np.asarray(np.minimum(np.maximum(values, low), high))


def _flat(columns: Array) -> Array:
    """The rows of all sizes as one, (batch, sizes, rows, columns) to (batch, all, columns)."""
    return columns.reshape(len(columns), -1, columns.shape[-1])


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


def _turned(turn: Array, variance: Array, freedom: Array) -> tuple[Array, Array]:
    """Mean and variance of t under the mixture, from those under the wider prior alone."""
    precision = np.maximum(1 / variance - 1 / TURNS**2, 1e-6)
    error, seen = 1 / precision, turn / variance / precision
    parts = []
    for part, deviation in ((1 - TURNING, KEEPS), (TURNING, TURNS)):
        total = deviation**2 + error
        density = part * (1 + seen**2 / total / freedom) ** (-(freedom + 1) / 2) / np.sqrt(total)
        gain = deviation**2 / total
        parts.append((density, gain * seen, gain * error))
    density, means, variances = (np.stack(part) for part in zip(*parts, strict=True))
    density = density / density.sum(0)
    mean = (density * means).sum(0)
    return mean, (density * (variances + means**2)).sum(0) - mean**2
