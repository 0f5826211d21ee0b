"""The minima of a fitted valley, and the covariance of their errors: of noise, of what is not told.

Both are propagated through the fit to first order. Points are observations of their own errors; so
are the priors, of each minimum and of the shape.

*Source:* Huber (1967), Fifth Berkeley Symposium 1:221-233, for the covariance of weighted ones.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.statistics.intervals import Array
from depthmup.statistics.valley_fit import SHARED, TURNS, Linear

KEEPS, TURNING = 0.02, 0.2
"""Change per doubling of the logarithm of how steep a side is, where valleys keep their shape, and
the share of valleys that turn (``TURNS``)."""

WALLED = 0.5
"""Of what one curve misses beside a wall, this is left to a fit of all."""


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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Turn:
    """How valleys turn under the mixture, and how their minima follow."""

    mean: Array
    variance: Array
    follow: Array
    """Regression of the minima on t, (batch, sizes, axes)."""
    back: Array
    """By how much the fit's t moves the minima back to those under the mixture's mean."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Errors:
    """Errors of minima and shape, (batch, sizes + shared, sizes + shared), of a solved fit."""

    linear: Linear

    @property
    def _sizes(self) -> int:
        return len(self.linear.problem.s)

    @property
    def _turns(self) -> slice:
        """The columns of t among the minima and the shape."""
        sizes, axes = self.linear.problem.s.shape
        return slice(sizes + SHARED + axes, None)

    @cached_property
    def noise(self) -> Array:
        """Of the scatter of points."""
        linear = self.linear
        # A point far off its valley is no noise: what it moves it moves by as much.
        variance = linear.state.variance[:, None, None] * linear.problem.blur
        points = np.maximum(variance, linear.residual**2 / 2)
        return self._covariance(linear.gain[..., 1, :], linear.shared_gain, points)

    @cached_property
    def left(self) -> Array:
        """Of what the priors stand for where data do not tell."""
        linear, problem = self.linear, self.linear.problem
        nearness, carried = problem.nearness, linear.carried[..., 1, :]
        pseudo = linear.state.variance[:, None] * nearness
        of_minimum = linear.inverse[..., 1, 1] * pseudo
        of_shape = -np.einsum("bqp,bip->bqi", linear.schur, carried) * pseudo[:, None]
        near = self._covariance(of_minimum[..., None], of_shape[..., None], 1 / nearness[..., None])
        _, precision = problem.prior
        weak = linear.schur * (linear.state.variance[:, None] * precision)[:, None]
        spread = np.einsum("bqp,p,brp->bqr", weak, 1 / precision, weak)
        carry = np.concatenate([-carried, np.broadcast_to(np.eye(weak.shape[1]), weak.shape)], 1)
        return np.asarray(near + np.einsum("biq,bqp,bjp->bij", carry, spread, carry))

    def _covariance(self, gain: Array, shared: Array, variance: Array) -> Array:
        """Of minima and shape: observations of their own errors.

        ``gain`` (batch, sizes, rates) in the minimum of their size, ``shared`` (batch, shared,
        sizes, rates) in the shape, ``variance`` (batch, sizes, rates).
        """
        carried = self.linear.carried[..., 1, :]
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

    @cached_property
    def total(self) -> Array:
        """Of both."""
        return np.asarray(self.noise + self.left)

    @cached_property
    def turn(self) -> _Turn:
        """t under the mixture, which the minima follow by their own regression on it."""
        linear, last, total = self.linear, self._turns, self.total
        turn, of_turn = linear.state.shape[:, last.start - self._sizes :], total[:, last, last]
        freedom = linear.points_left + linear.problem.known[1]
        mean, kept = _turned(turn, np.einsum("baa->ba", of_turn), freedom[:, None])
        follow = total[:, : self._sizes, last] @ np.linalg.inv(of_turn)
        share = np.divide(mean, turn, out=np.zeros_like(mean), where=np.abs(turn) > 1e-12)
        return _Turn(mean=mean, variance=kept, follow=follow, back=follow * (share - 1)[:, None])

    @cached_property
    def of_minima(self) -> tuple[Array, Array]:
        """Covariances of the minima that follow t: of noise, and of what is left."""
        sizes, last, turn = self._sizes, self._turns, self.turn
        # A map of minima and shape to the minima as they follow.
        to = np.zeros((len(turn.mean), sizes, self.noise.shape[-1]))
        to[:, np.arange(sizes), np.arange(sizes)] = 1.0
        to[..., last] = turn.back
        noise = to @ self.noise @ np.swapaxes(to, -1, -2)
        total, follow = self.total, turn.follow
        whole = total[:, :sizes, :sizes] - follow @ total[:, last, last] @ np.swapaxes(
            follow, -1, -2
        )
        whole = whole + np.einsum("bia,ba,bja->bij", follow, turn.variance, follow)
        left = whole - noise
        left[:, np.arange(sizes), np.arange(sizes)] += (WALLED * self.linear.problem.steep) ** 2
        return noise, left

    def _level(self, of_level: Array, moved: Array) -> tuple[Array, Array]:
        """Levels and how they move: no higher than the lowest point, but for its noise."""
        problem, fitted = self.linear.problem, self.linear.state.level
        noise = np.minimum(problem.known[0], self.linear.state.variance)
        highest = problem.low + np.sqrt(noise)[:, None]
        lowest = np.where(problem.finite, problem.y, math.inf).argmin(-1)
        of_lowest = np.take_along_axis(moved, lowest[:, :, None, None], -1)[..., 0]
        below = fitted <= highest
        return np.minimum(fitted, highest), np.where(below[..., None], of_level, of_lowest)

    def valley(self, batch: tuple[int, ...], moved: Array) -> Valley:
        """The minima and their errors; ``moved`` (batch, sizes, seeds, rates) without each seed."""
        linear, turn = self.linear, self.turn
        problem, state = linear.problem, linear.state
        turns = slice(self._turns.start - self._sizes, None)
        fit = state.shape[:, turns]
        shape_moved = np.einsum("bqir,bisr->bqs", linear.shared_gain, moved)
        own_moved = np.einsum("bidr,bisr->dbis", linear.gain, moved)
        own_moved = own_moved - np.einsum("bidq,bqs->dbis", linear.carried, shape_moved)
        of_level, without = own_moved
        without = without + np.einsum("bia,bas->bis", turn.back, shape_moved[:, turns])
        known = problem.finite.any(-1)
        followed = state.minimum + np.einsum("bia,ba->bi", turn.follow, turn.mean - fit)
        minimum = np.where(known, followed, math.nan)
        level, of_level = self._level(of_level, moved)
        level = np.where(known, level, math.inf)
        shape = state.shape.copy()
        shape[:, turns] = turn.mean
        noise, left = self.of_minima

        def shaped(a: Array) -> Array:
            return np.asarray(a.reshape((*batch, *a.shape[1:])))

        return Valley(
            minimum=shaped(minimum),
            without=shaped(minimum[..., None] + without),
            level=shaped(level),
            level_without=shaped(level[..., None] + of_level),
            noise=shaped(noise),
            left=shaped(left),
            variance=shaped(state.variance),
            freedom=shaped(linear.points_left + problem.known[1]),
            turn=shaped(turn.mean),
            turn_error=shaped(np.sqrt(turn.variance)),
            alike=np.zeros(batch),
            steep=shaped(problem.steepness(shape)),
            powers=shaped(shape[:, 2:SHARED]),
            round=shaped(problem.round[..., 0]),
        )


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
