"""Curves of all sizes as one least squares problem with priors: its weights and its solution.

The valley, its weights and its priors are those of ``statistics.valley``.

*Source:* Levenberg (1944), Quarterly of Applied Mathematics 2:164-168, for damped least squares.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.statistics.intervals import Array, Flags
from depthmup.statistics.misfit import WALL, at_index
from depthmup.statistics.parabola import tricube

NEAR = WALL
"""Spacings from the lowest rate within which the minimum lies, as a standard deviation."""

BEYOND = 0.5
"""Bandwidths by which a minimum lies beyond an edge of its grid, and their standard deviation."""

POWER, POWER_SPREAD = 1.7, 0.35
"""Prior of both powers: a kink has 1, a parabola 2."""

STEEPNESS_SPREAD, GROWTH_SPREAD = 1.5, 0.2
"""Of the logarithm of how steep a side is, about that of the parabolas; and per doubling."""

TURNS = 0.2
"""Change per doubling of the logarithm of how steep a side is, where valleys turn."""

ROUND = 0.05
"""e, in bandwidths."""

HIGH = 5.0
"""Rises of the gentler side above which a point is none of the valley."""

STEEPEST = 3.0
"""Of a parabola's bend, over that of the gentler side: beyond it, a wall bends it."""

MISSED = 0.1
"""Of a point's rise above the minimum, what a power law of it misses."""

USUAL_NOISE, USUAL_FREEDOM = 0.05, 2.0
"""Standard deviation of log losses between runs, over how far a parabola rises in a bandwidth, as
on real tables, and its weight as a prior."""

LEAST_POWER, MOST_POWER, STEP = 0.9, 3.5, 0.5
PASSES, SETTLED, ROUNDING = 40, 1e-11, 1e-12
SHARED = 4  # l_0, r_0, p_left and p_right; then every axis' c, and its t


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """Levels and minima, (batch, sizes), the shape, (batch, shared), and the variance of points."""

    level: Array
    minimum: Array
    shape: Array
    variance: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class ValleyProblem:
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

    def parts(self, state: State) -> tuple[Array, Array, Array]:
        """Residuals, and derivatives of the valleys by k and by the shape."""
        axes = self.s.shape[1]
        u = self.x - state.minimum[..., None]
        square, right = u**2 + self.round**2, u > 0
        left_right = self.steepness(state.shape)
        steep = np.where(right, left_right[..., 1, None], left_right[..., 0, None])
        power = np.where(right, state.shape[:, None, None, 3], state.shape[:, None, None, 2])
        scale = np.exp(within_bounds(steep, -40, 15))
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

    def loss(self, state: State, residual: Array) -> tuple[Array, Array]:
        """Weighted squares of the residuals, and of the distances from the priors."""
        mean, precision = self.prior
        away = (precision * (state.shape - mean) ** 2).sum(-1)
        away += (self.nearness * (state.minimum - self.near) ** 2).sum(-1)
        return (self.weight * residual**2).sum((-2, -1)), away

    def solved(self) -> State:
        """Damped least squares, with the variance of points as it comes out."""
        mean, _ = self.prior
        state = State(
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
            damping = within_bounds(np.where(better, damping / 5, damping * 6), 1e-9, 1e6)
            one = better[:, None]
            here = np.where(better, there[0], here[0]), np.where(better, there[1], here[1])
            variance = (here[0] + weight * noise) / (linear.points_left + weight)
            state = State(
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
        self, state: State, parts: tuple[Array, Array, Array], damping: Array | None = None
    ) -> "Linear":
        """The problem to first order around a state, of which these are the parts."""
        residual, by_k, by_shape = parts
        mean, precision = self.prior
        nearness = state.variance[:, None] * self.nearness
        own = np.ones((*by_k.shape, 2))  # of a size's level and minimum
        own[..., 1] = by_k
        weighted = self.weight[..., None] * own
        block = over_rows(own, weighted)
        block[..., 1, 1] += nearness
        block[..., 0, 0] += 1e-12
        pull = over_rows(weighted, residual[..., None])[..., 0]
        pull[..., 1] -= nearness * (state.minimum - self.near)
        across = over_rows(weighted, by_shape)
        of_points = flat(by_shape)
        shared = over_rows(of_points, flat(self.weight[..., None]) * of_points)
        stiff = state.variance[:, None] * precision
        axes = np.arange(len(precision))
        shared[:, axes, axes] += stiff
        pull_shared = over_rows(of_points, flat((self.weight * residual)[..., None]))[..., 0]
        pull_shared = pull_shared - stiff * (state.shape - mean)
        if damping is not None:
            shared[:, axes, axes] *= 1 + damping[:, None]
            for d in (0, 1):
                block[..., d, d] *= 1 + damping[:, None]
        inverse = np.asarray(np.linalg.inv(block), float)
        carried = inverse @ across  # of a size's own, with the shape
        left = shared - over_rows(flat(across), flat(carried))
        return Linear(
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
class Linear:
    """Least squares to first order: blocks of the sizes' own, and what they share."""

    problem: ValleyProblem
    state: State
    residual: Array
    own: Array
    by_shape: Array
    inverse: Array
    carried: Array
    schur: Array
    pull: Array
    pull_shared: Array

    def step(self) -> State:
        """The next state."""
        total = self.pull_shared - np.einsum("bidq,bid->bq", self.carried, self.pull)
        shape = within_bounds(np.einsum("bqp,bp->bq", self.schur, total), -STEP, STEP)
        own = np.einsum("bidf,bif->bid", self.inverse, self.pull)
        own = own - np.einsum("bidq,bq->bid", self.carried, shape)
        reach = STEP * np.maximum(self.problem.spacing, 1.0)
        shape = self.state.shape + shape
        shape[:, 2:SHARED] = within_bounds(shape[:, 2:SHARED], LEAST_POWER, MOST_POWER)
        return State(
            level=self.state.level + own[..., 0],
            minimum=self.state.minimum + within_bounds(own[..., 1], -reach, reach),
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
        gain = self.schur @ np.swapaxes(flat(weighted), -1, -2)
        return np.asarray(gain.reshape(*gain.shape[:2], *weighted.shape[1:3]))

    @cached_property
    def points_left(self) -> Array:
        """Points less those that fix the valleys, by weight: what a variance is divided by."""
        weight = self.problem.weight
        own = (np.swapaxes(self.own, -1, -2) * self.gain).sum(-2)
        shared = (np.moveaxis(self.within, -1, 1) * self.shared_gain).sum(1)
        return np.asarray(np.maximum((weight * (1 - own - shared)).sum((-2, -1)), 0.0))


def over_rows(first: Array, second: Array) -> Array:
    """Sums over rows of the products of columns, (..., columns, columns), by the fastest product.

    A third of a fit's time is spent here: ``einsum`` takes several times as long.
    """
    return np.asarray(np.swapaxes(first, -1, -2) @ second)


def within_bounds(values: Array, low: float | Array, high: float | Array) -> Array:
    """``np.clip``, which takes several times as long for arrays as small as these."""
    return np.asarray(np.minimum(np.maximum(values, low), high))


def flat(columns: Array) -> Array:
    """The rows of all sizes as one, (batch, sizes, rows, columns) to (batch, all, columns)."""
    return columns.reshape(len(columns), -1, columns.shape[-1])
